from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream.bundle.build import BuiltBundle, build_bundle
from stream.bundle.gate.kept_probes import PROBES_KEPT_MAX
from stream.bundle.gate.probe import INTEGER_POOL_ROWS, LEAVES_OF_TREE_MAX
from stream.bundle.gate.probe_nodes import CODE_ROWS_MAX, CODES_OF_NODE_MAX, CODES_OF_NODE_MIN, NODES_PROBED_MAX
from stream.bundle.gate.probe_rows import COMBINATIONS
from stream.bundle.open import open_bundle
from stream.errors import ConfigurationError
from tests.bundle.kinds import LIGHTGBM, NAMES, OLD, XGBOOST, Kind, Made

REPOSITORY = Path(__file__).parents[2]
KINDS: dict[str, dict[str, Kind]] = {"XGBoost": XGBOOST, "LightGBM": LIGHTGBM}


@dataclass(frozen=True, slots=True)
class Row:
    """A row of docs/models.md."""

    library: str
    title: str
    result: str
    since: str
    why: str

    @property
    def kind(self) -> Kind:
        """The models of this row."""
        return KINDS[self.library][self.title]

    def __str__(self) -> str:
        return f"{self.library} {self.title}"[:60]


def rows() -> list[Row]:
    """The table, as a reader sees it."""
    text = (REPOSITORY / "docs" / "models.md").read_text("utf-8")
    table = text.partition("<!-- models: begin -->")[2].partition("<!-- models: end -->")[0].strip().splitlines()
    return [Row(*(cell.strip() for cell in line.strip("|").split("|"))) for line in table[2:]]


ROWS = rows()
EXACT = [row for row in ROWS if row.result == "exact"]
REFUSED = [row for row in ROWS if row.result != "exact"]


def build(folder: Path, made: Made) -> BuiltBundle:
    """Build a bundle of a model, with margins of any size accepted."""
    folder.mkdir()
    (folder / f"model{made.suffix}").write_bytes(made.content)
    made.pool.to_csv(folder / "pool.csv", index=False)
    types = dict.fromkeys(NAMES, "number") | ({"city": "category"} if made.categories else {})
    tables = "".join(f'[{name}]\ntype = "{kind}"\nmutability = "mutable"\n' for name, kind in types.items())
    listed = "" if made.listed is None else f"categories = {json.dumps(made.listed, ensure_ascii=False)}\n"
    (folder / "features.toml").write_text(tables + listed, "utf-8")
    settings: dict[str, Any] = {"threshold": -1e9, "threshold_scale": "margin", **made.flags}
    return build_bundle(
        model_path=folder / f"model{made.suffix}",
        pool_path=folder / "pool.csv",
        features_path=folder / "features.toml",
        out_dir=folder / "bundle",
        **settings,
    )


def test_the_table_lists_the_models_that_are_tried_and_no_other() -> None:
    """Given the table and the models, when their titles are compared, then each stands in both, in one order."""
    for library, kinds in KINDS.items():
        assert [row.title for row in ROWS if row.library == library] == list(kinds)
    assert len(ROWS) == len(EXACT) + len(REFUSED) == sum(map(len, KINDS.values()))


@pytest.mark.parametrize("row", EXACT, ids=str)
def test_a_model_that_the_table_calls_exact_passes_the_gate(row: Row, tmp_path: Path) -> None:
    """Given a model of each such kind, when a bundle is built and opened, then the gate finds every bit equal, twice."""
    for number, made in enumerate(row.kind.models()):
        built = build(tmp_path / str(number), made)
        assert built.probe.counts["pool"] == len(made.pool)
        assert (built.probe.word_rows > 0) == (made.pool["city"].dtype == "category" and made.listed is None)
        assert (built.probe.counts["category"] > 0) == made.categories
        forest = open_bundle(built.folder).forest
        assert forest.digest == built.manifest["forest_sha256"]


@pytest.mark.parametrize("row", REFUSED, ids=str)
def test_a_model_that_the_table_calls_refused_is_refused_in_those_words(row: Row, tmp_path: Path) -> None:
    """Given a model of each such kind, when a bundle is built, then it is refused in the words that the table quotes, and told what to do."""
    (words,) = re.findall(r"^refused: `(.+)`$", row.result)
    for number, made in enumerate(row.kind.models()):
        with pytest.raises(ConfigurationError, match=re.escape(words)) as refusal:
            build(tmp_path / str(number), made)
        assert "; " in str(refusal.value)
        assert "\n" not in str(refusal.value)


def is_kept(row: Row, folder: Path) -> bool:
    """Whether a folder of old files holds one of the row's kind; where the row tells of words in the file, one that has them."""
    if not list(folder.glob(f"{row.kind.old}.*")):
        return False
    expected = json.loads((folder / f"{row.kind.old}.expected.json").read_text("utf-8"))
    return "with their words in the file" not in row.title or any(expected["words"])


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_oldest_file_is_the_one_that_is_kept_or_is_of_the_locked_version(row: Row) -> None:
    """Given a row, when the kept old files are listed, then the oldest of its kind is of the version that it names."""
    library = row.library.lower()
    if row.kind.old is None:
        lock = (REPOSITORY / "requirements.lock").read_text("utf-8")
        locked = re.search(rf"^{library}(?:-cpu)?==(\S+)", lock, re.MULTILINE)
        assert locked is not None
        assert row.since == locked[1]
        return
    versions = [folder.name.split("-")[1] for folder in OLD.glob(f"{library}-*") if is_kept(row, folder)]
    assert row.since == min(versions, key=lambda version: [int(part) for part in version.split(".")])


def test_the_page_says_how_many_rows_the_gate_asks_and_keeps() -> None:
    """Given the page about models, when its numbers are compared with the gate's, then they are the same."""
    text = (REPOSITORY / "docs" / "models.md").read_text("utf-8")
    assert f"- on {COMBINATIONS:,} rows with several features" in text
    assert f"Up to {PROBES_KEPT_MAX:,} of these rows" in text
    assert f"set to up to {CODES_OF_NODE_MAX} codes" in text
    assert f"up to {INTEGER_POOL_ROWS:,} of its rows" in text
    asks = text.replace("\n", " ")
    bounds = f"{CODE_ROWS_MAX:,} codes over all splits, but at least {CODES_OF_NODE_MIN} of each; and {LEAVES_OF_TREE_MAX:,} leaves of a tree"
    assert f"at most {NODES_PROBED_MAX:,} splits, each distinct feature and threshold first; {bounds}" in asks


def test_a_table_of_words_is_asked_in_another_order_than_the_training_s(tmp_path: Path) -> None:
    """Given a model with words, when its bundle is built, then each word, used or not, and a missing one were asked in a table."""
    for kinds in KINDS.values():
        title = "categories of a DataFrame, with their words in the file"
        made = next(kinds[title].models())
        built = build(tmp_path / made.suffix, made)
        words = open_bundle(built.folder).forest.words[NAMES.index("city")]
        assert words == tuple(made.pool["city"].cat.categories)
        assert built.probe.word_rows == len(made.pool) + len(words) + 1
        assert np.isnan(open_bundle(built.folder).matrix.rows).any()
