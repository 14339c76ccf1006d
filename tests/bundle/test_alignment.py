from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stream.bundle.alignment import check_names, hint_of_spelling
from stream.errors import ConfigurationError
from tests.bundle.inputs import FEATURES, content_of, inputs, write_table


def toml(*names: str) -> str:
    return "".join(f'["{name}"]\ntype = "number"\nmutability = "mutable"\n' for name in names)


def test_names_that_match_in_any_order_pass() -> None:
    """Given tables in another order, nothing is said."""
    check_names(["a", "b"], toml("b", "a"))


def test_names_that_do_not_match_are_shown_from_both_sides() -> None:
    """Given seven names here and one there that the other does not have, then the first of each are told, how many there are, and what to do."""
    features = ["a", *(f"x{i}" for i in range(7))]
    with pytest.raises(ConfigurationError) as refusal:
        check_names(features, toml("a", "other"))
    assert str(refusal.value) == (
        "features.toml does not fit the model: 7 of the model's features have no table there: 'x0', 'x1', 'x2', 'x3', 'x4' and "
        "2 more; 1 of its tables are for no feature of the model: 'other'; add a table for each feature of the model and "
        "remove or rename those that are for none"
    )


def test_names_that_one_side_alone_has_are_told_with_what_to_do() -> None:
    """Given a table too few, then it is to be added; given one too many, then it is to be removed."""
    with pytest.raises(
        ConfigurationError,
        match=r": 1 of the model's features have no table there: 'b'; add a table for each .* model$",
    ):
        check_names(["a", "b"], toml("a"))
    with pytest.raises(
        ConfigurationError,
        match=r": 1 of its tables are for no feature of the model: 'b'; remove or rename those .* none$",
    ):
        check_names(["a"], toml("a", "b"))


@pytest.mark.parametrize(
    ("model", "table"), [("my_income", "my income"), ("my_income", "my  income"), ("myincome", "my_income")]
)
def test_names_that_differ_in_white_space_alone_get_a_hint(model: str, table: str) -> None:
    """Given a name that LightGBM has changed, then the error says what to call the table."""
    with pytest.raises(
        ConfigurationError,
        match=rf"the table '{table}' differs from '{model}' only in white space .* call it '{model}'$",
    ):
        check_names(["a", model], toml("a", table))


def test_the_nearest_name_is_told() -> None:
    """Given a name that is misspelt, then the error says which one it is near to, and what to call it."""
    with pytest.raises(
        ConfigurationError, match=r"; the table 'incmoe' is near to 'income': if it is meant, call it 'income'$"
    ):
        check_names(["age", "income"], toml("age", "incmoe"))


def test_there_is_no_hint_for_what_is_not_near() -> None:
    """Given names that have nothing in common, or the very same, no hint is given."""
    assert not hint_of_spelling(["income"], ["debts", "income"], "column")
    assert not hint_of_spelling([], ["debts"], "column")


def test_a_bundle_of_other_names_is_refused(tmp_path: Path) -> None:
    """Given features.toml of another model, then the build names both sides."""
    given = inputs(tmp_path)
    (tmp_path / "features.toml").write_text(FEATURES.replace("[f3]", "[g3]"))
    with pytest.raises(ConfigurationError, match=r"have no table there: 'f3'; 1 of its tables .*: 'g3'"):
        given.build()


def test_reordered_columns_give_the_same_bytes(tmp_path: Path) -> None:
    """Given the pool with its columns in another order, every file of the bundle is the same."""
    given = inputs(tmp_path)
    plain = given.build()
    table = pool_of(tmp_path)
    write_table(tmp_path / "reordered.csv", table.select(["f3", "f1", "target", "f0", "f2"]))
    again = given.build("again", pool_path=tmp_path / "reordered.csv")
    assert content_of(again.folder) == content_of(plain.folder)


def test_an_absent_column_is_an_error_and_a_renamed_one_gets_a_hint(tmp_path: Path) -> None:
    """Given a pool without a feature, then the error names it and what to do; where a column is called nearly so, it says that too."""
    given = inputs(tmp_path)
    table = pool_of(tmp_path)
    write_table(tmp_path / "short.csv", table.drop(["f2"]))
    lacks = r"lacks the model's features 'f2', and has columns that are no features"
    with pytest.raises(
        ConfigurationError, match=r"lacks the model's features 'f2'; give the data .* as the model names its features$"
    ):
        given.build(pool_path=tmp_path / "short.csv")
    for there, hint in {"f 2": "differs from 'f2' only in white space .*", "f22": "is near to 'f2': .*"}.items():
        write_table(tmp_path / "renamed.csv", table.rename_columns(["f0", "f1", there, "f3", "target"]))
        with pytest.raises(
            ConfigurationError, match=rf"{lacks}: '{there}'; give .*; the column '{there}' {hint} call it 'f2'$"
        ):
            given.build(pool_path=tmp_path / "renamed.csv")


def pool_of(folder: Path) -> Any:
    import pyarrow.csv  # noqa: PLC0415 - read back as a user would

    return pyarrow.csv.read_csv(folder / "pool.csv")
