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
    """Given tables in another order, nothing is said; nor where only one side has names of its own, which the reader of the tables says."""
    check_names(["a", "b"], toml("b", "a"))
    check_names(["a", "b"], toml("a"))
    check_names(["a"], toml("a", "b"))


def test_names_that_do_not_match_are_shown_from_both_sides() -> None:
    """Given seven names here and one there that the other does not have, then the first of each are told, with how many there are."""
    features = ["a", *(f"x{i}" for i in range(7))]
    with pytest.raises(ConfigurationError) as refusal:
        check_names(features, toml("a", "other"))
    told = str(refusal.value)
    assert "for 7 of the model's there is no table for: 'x0', 'x1', 'x2', 'x3', 'x4' and 2 more" in told
    assert "1 of its tables are for no feature of the model: 'other'" in told
    assert "white space" not in told


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


def test_there_is_no_hint_for_what_differs_otherwise() -> None:
    """Given other names, or the very same, no hint is given."""
    assert not hint_of_spelling(["income"], ["Income", "income", "incomes"], "column")


def test_a_bundle_of_other_names_is_refused(tmp_path: Path) -> None:
    """Given features.toml of another model, then the build names both sides."""
    given = inputs(tmp_path)
    (tmp_path / "features.toml").write_text(FEATURES.replace("[f3]", "[g3]"))
    with pytest.raises(ConfigurationError, match=r"no table for: 'f3'; and 1 of its tables .*: 'g3'"):
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
    """Given a pool without a feature, then the error names it; where a column differs in white space alone, it says that too."""
    given = inputs(tmp_path)
    table = pool_of(tmp_path)
    write_table(tmp_path / "short.csv", table.drop(["f2"]))
    with pytest.raises(ConfigurationError, match=r"lacks the model's features 'f2'$"):
        given.build(pool_path=tmp_path / "short.csv")
    write_table(tmp_path / "spaced.csv", table.rename_columns(["f0", "f1", "f 2", "f3", "target"]))
    with pytest.raises(
        ConfigurationError, match="lacks the model's features 'f2'; the column 'f 2' differs from 'f2' only in"
    ):
        given.build(pool_path=tmp_path / "spaced.csv")


def pool_of(folder: Path) -> Any:
    import pyarrow.csv  # noqa: PLC0415 - read back as a user would

    return pyarrow.csv.read_csv(folder / "pool.csv")
