"""The keys of features.toml that tie features together: what is read of them, and what is refused by table and key."""

from __future__ import annotations

import itertools

import pytest

from stream.errors import ConfigurationError
from stream.recourse.rules.features import read_features
from stream.recourse.rules.units import Follower, Ratio, Unit

NAMES = ("a", "b", "c", "d")


def text(**more: str) -> str:
    """Tables of four numbers, some with more lines."""
    return "".join(f'[{name}]\ntype = "number"\nmutability = "mutable"\n{more.get(name, "")}\n' for name in NAMES)


def units(**more: str) -> tuple[Unit, ...]:
    return read_features(text(**more), NAMES).units


FOLLOW = 'follows = "a"\nfactor = 0.5'
RATIO = 'ratio_of = ["a", "b"]\nmoves = "a"'


def test_what_moves_together_is_read() -> None:
    """Given a group, a link and a ratio, each is read with its factor, and units stand in the order of their features."""
    assert units(d='group = "g"', b='group = "g"') == (Unit(members=(1, 3)),)
    assert units(c=FOLLOW) == (Unit(members=(0, 2), driver=0, dependents=(Follower(j=2, factor=0.5),)),)
    ratio = Ratio(j=3, factor=100.0, other=0, driver_above=False)
    found = units(d='ratio_of = ["a", "b"]\nmoves = "b"\nratio_factor = 100')
    assert found == (Unit(members=(1, 3), driver=1, dependents=(ratio,)),)
    assert found[0].stays == (0,)
    assert [unit.members for unit in units(a='group = "g"', d='group = "g"', c='follows = "b"\nfactor = 1')] == [
        (0, 3),
        (1, 2),
    ]


def test_several_depend_on_one_driver() -> None:
    """Given a link and two ratios over one driver, all are of one unit; a part that stays may be of both ratios."""
    found = units(b=FOLLOW, d='ratio_of = ["a", "c"]\nmoves = "a"')
    assert [unit.members for unit in found] == [(0, 1, 3)]
    shared = units(b='ratio_of = ["a", "c"]\nmoves = "a"', d='ratio_of = ["a", "c"]\nmoves = "a"')
    assert [(unit.members, unit.stays) for unit in shared] == [((0, 1, 3), (2,))]


def test_the_part_that_could_not_move_needs_no_word() -> None:
    """Given one immutable part of a ratio, the other one is its driver."""
    tables = text(c='ratio_of = ["a", "b"]').replace(
        '[a]\ntype = "number"\nmutability = "mutable"', '[a]\ntype = "number"\nmutability = "immutable"'
    )
    assert read_features(tables, NAMES).units[0].driver == 1


WRONG: dict[str, tuple[dict[str, str], str, str]] = {  # -> the table and the start of what is said of its key
    "a group of one": ({"b": 'group = "g"'}, "b", "group is of this feature alone"),
    "a group and a link": ({"b": f'group = "g"\n{FOLLOW}', "c": 'group = "g"'}, "b", "follows does not go with group"),
    "a link and a ratio": ({"c": f"{FOLLOW}\n{RATIO}"}, "c", "ratio_of does not go with follows"),
    "a link without a factor": ({"b": 'follows = "a"'}, "b", "factor must say"),
    "a factor of zero": ({"b": 'follows = "a"\nfactor = 0'}, "b", "factor must say"),
    "an endless factor": ({"b": 'follows = "a"\nfactor = inf'}, "b", "factor must say"),
    "a factor alone": ({"b": "factor = 2"}, "b", "factor has no meaning without follows"),
    "a ratio's factor alone": ({"b": "ratio_factor = 2"}, "b", "ratio_factor has no meaning without ratio_of"),
    "moves alone": ({"b": 'moves = "a"'}, "b", "moves has no meaning without ratio_of"),
    "a negative factor of a ratio": ({"c": f"{RATIO}\nratio_factor = -1"}, "c", "ratio_factor must be above 0"),
    "a ratio of one": ({"c": 'ratio_of = ["a"]'}, "c", "ratio_of must be a list of two"),
    "a ratio of a text": ({"c": 'ratio_of = "a"'}, "c", "ratio_of must be a list of two"),
    "a ratio of numbers": ({"c": "ratio_of = [1, 2]"}, "c", "ratio_of must be a list of two"),
    "a ratio of one twice": ({"c": 'ratio_of = ["a", "a"]'}, "c", "ratio_of names one feature twice"),
    "a ratio of which both could move": ({"c": 'ratio_of = ["a", "b"]'}, "c", "moves must say which"),
    "a mover that is no part": ({"c": 'ratio_of = ["a", "b"]\nmoves = "d"'}, "c", "moves must be one of the two"),
    "an unknown driver": ({"b": 'follows = "x"\nfactor = 1'}, "b", 'follows names "x", which is no feature'),
    "an unknown part": ({"c": 'ratio_of = ["a", "x"]'}, "c", 'ratio_of names "x", which is no feature'),
    "a feature that follows itself": ({"a": FOLLOW}, "a", 'follows names "a", which is the feature itself'),
    "a ratio of itself": ({"c": 'ratio_of = ["c", "b"]'}, "c", 'ratio_of names "c", which is the feature itself'),
    "two that follow each other": ({"a": 'follows = "b"\nfactor = 1', "b": FOLLOW}, "a", 'follows names "b", which itself'),
    "a chain": ({"b": FOLLOW, "c": 'follows = "b"\nfactor = 1'}, "c", 'follows names "b", which itself depends'),
    "a ratio of a ratio": ({"c": RATIO, "d": 'ratio_of = ["c", "a"]'}, "d", 'ratio_of names "c", which itself depends'),
    "a driver of a group": ({"a": 'group = "g"', "d": 'group = "g"', "b": FOLLOW}, "b", 'follows names "a", which is of a group'),
    "a part that another follows": ({"c": RATIO, "d": 'follows = "b"\nfactor = 1'}, "c", 'ratio_of keeps "b" where it is'),
    "a group that is a list": ({"b": 'group = ["g"]'}, "b", "group must be a text"),
    "a driver that is a number": ({"b": "follows = 1\nfactor = 1"}, "b", "follows must be a text"),
}  # fmt: skip


@pytest.mark.parametrize(("more", "table", "said"), WRONG.values(), ids=WRONG)
def test_what_cannot_move_together_is_refused(more: dict[str, str], table: str, said: str) -> None:
    """Given features tied together as they cannot be, the error names file, table and key, in one line."""
    with pytest.raises(ConfigurationError) as refused:
        read_features(text(**more), NAMES)
    assert str(refused.value).startswith(f'features.toml: ["{table}"] {said}')
    assert "\n" not in str(refused.value)


def as_category(tables: str, name: str) -> str:
    return tables.replace(f'[{name}]\ntype = "number"', f'[{name}]\ntype = "category"')


def test_a_category_is_not_computed_with() -> None:
    """Given a category that follows, is a ratio, or is what these are computed with, it is refused; of a group it may be."""
    for more, name in itertools.product(({"c": RATIO}, {"c": 'follows = "a"\nfactor = 1'}), "ac"):
        with pytest.raises(ConfigurationError, match="category"):
            read_features(as_category(text(**more), name), NAMES)
    read_features(as_category(text(a='group = "g"', b='group = "g"'), "a"), NAMES)


def test_a_mover_that_is_immutable_is_refused() -> None:
    """Given moves that names an immutable part, the error says so."""
    tables = text(c=RATIO).replace('mutability = "mutable"', 'mutability = "immutable"', 1)
    with pytest.raises(ConfigurationError, match='moves names "a", which is immutable'):
        read_features(tables, NAMES)
