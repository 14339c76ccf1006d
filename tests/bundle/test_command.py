from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from click.testing import CliRunner, Result

from stream.bundle.manifest import MANIFEST
from stream.cli.bundle import BuildStages
from stream.cli.main import coach
from tests.bundle.gate.test_kept_probes import put
from tests.bundle.inputs import inputs, write_pool
from tests.bundle.kinds import LIGHTGBM
from tests.forest.models import USUAL, xgboost_model


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(coach, ["bundle", *map(str, arguments)])


def build(folder: Path, *more: str | Path, model: str = "model.json", threshold: str = "0.5") -> Result:
    given = [("--model", model), ("--pool", "pool.csv"), ("--features", "features.toml"), ("--out", "bundle")]
    paths = [word for flag, name in given for word in (flag, folder / name)]
    return run("build", *paths, "--threshold", threshold, "--target-column", "target", *more)


def test_a_build_says_what_it_made_and_what_it_compared(tmp_path: Path) -> None:
    """Given good inputs, the command exits 0, tells stages on stderr and the bundle's facts on stdout."""
    inputs(tmp_path)
    done = build(tmp_path)
    assert done.exit_code == 0
    assert "every bit equal" in done.stdout
    assert "20 trees" in done.stdout
    assert done.stderr.splitlines()[0] == "reading the model ..."
    assert (tmp_path / "bundle" / MANIFEST).is_file()


def test_a_build_names_features_that_letters_would_call_by_their_columns(tmp_path: Path) -> None:
    """Given features.toml in which all features but one have a label, then that one is named, for people and for machines."""
    inputs(tmp_path)
    rules = (tmp_path / "features.toml").read_text("utf-8")
    names = re.findall(r'^\[+"?([^"\]]+)"?\]', rules, re.MULTILINE)
    labelled = re.sub(r"^(\[.*\])$", r'\1\nlabel = "What people call it"', rules, flags=re.MULTILINE)
    (tmp_path / "features.toml").write_text(labelled.replace('\nlabel = "What people call it"', "", 1), "utf-8")
    assert f"no label      {names[0]}: letters will call them so" in build(tmp_path).stdout
    shutil.rmtree(tmp_path / "bundle")
    assert json.loads(build(tmp_path, "--json").stdout)["unlabelled"] == [names[0]]


def test_a_build_for_machines_is_one_json_object(tmp_path: Path) -> None:
    """Given --json, stdout is one object whose digest `show --json` gives as well."""
    inputs(tmp_path, "txt")
    done = build(tmp_path, "--json", model="model.txt")
    assert done.exit_code == 0
    told = json.loads(done.stdout)
    assert told["probe"]["rows"] > 400
    shown = run("show", tmp_path / "bundle", "--json")
    assert json.loads(shown.stdout) == {"bundle_sha256": told["bundle_sha256"], "manifest": told["manifest"]}


def test_a_build_says_what_it_compared_and_with_which_library(tmp_path: Path) -> None:
    """Given a model with words, then text and JSON count rows of each kind, those in words too, and name the library's version."""
    made = next(LIGHTGBM["categories of a DataFrame, with their words in the file"].models())
    (tmp_path / "model.txt").write_bytes(made.content)
    made.pool.assign(target=0, debt=made.pool["debt"].round()).to_csv(tmp_path / "pool.csv", index=False)
    types = {"income": "number", "debt": "number", "city": "category"}
    tables = [f'[{name}]\ntype = "{kind}"\nmutability = "mutable"\n' for name, kind in types.items()]
    (tmp_path / "features.toml").write_text("".join(tables))
    told = build(tmp_path, model="model.txt").stdout
    shutil.rmtree(tmp_path / "bundle")
    probe = json.loads(build(tmp_path, "--json", model="model.txt").stdout)["probe"]
    assert f"  compared      {probe['rows']:,} rows with lightgbm {lgb.__version__}, every bit equal:\n" in told
    assert (
        f"{probe['pool_rows']:,} of the pool, {probe['threshold_rows']:,} around thresholds, {probe['category_rows']:,} on categories, "
        f"{probe['tripping_rows']:,} missing, zero and the like, {probe['combination_rows']:,} combinations, {probe['node_rows']:,} at splits, "
        f"{probe['word_rows']:,} in words, {probe['integer_rows']:,} in integers, {probe['leaf_rows']:,} at leaves\n"
    ) in told
    assert probe["library_version"] == lgb.__version__
    assert min(probe[name] for name in probe if name.endswith("rows")) > 0


def test_a_build_says_how_many_claims_it_compared_and_which_trees_they_mean(tmp_path: Path) -> None:
    """Given an early-stopped model and its scores, then text and JSON say that the claims are equal and what they told."""
    given = inputs(tmp_path)
    booster = xgb.Booster(model_file=given.model)
    booster.set_attr(best_iteration="4")
    booster.save_model(given.model)
    scores = booster.predict(xgb.DMatrix(given.rows, feature_names=USUAL.names), output_margin=True)
    write_pool(tmp_path / "pool.csv", given.rows, scores)
    flags = ("--claim-column", "target", "--claim-scale", "margin", "--target-column", "f")
    text = (tmp_path / "pool.csv").read_text().splitlines()
    scored = [",".join((line, "f" if i == 0 else str(i % 2))) for i, line in enumerate(text)]
    (tmp_path / "pool.csv").write_text("\n".join(scored) + "\n")
    told = build(tmp_path, *flags).stdout
    assert "  claims        400 of column target (margin), every bit equal\n" in told
    assert "they tell which trees are meant: --trees all\n" in told
    shutil.rmtree(tmp_path / "bundle")
    found = json.loads(build(tmp_path, *flags, "--json").stdout)
    assert found["claims"] == {"column": "target", "scale": "margin", "rows": 400}
    assert found["trees_by_claims"]
    shutil.rmtree(tmp_path / "bundle")
    refused = build(tmp_path, "--claim-column", "target", "--trees", "best")
    assert refused.exit_code == 1
    assert "the claims of column 'target' are not what the model gives" in refused.stderr.splitlines()[-1]


def test_show_computes_the_probes_on_this_machine(tmp_path: Path) -> None:
    """Given a bundle, show says how many probes it computed; where one gives another bit, it exits 1 and says which machine differs."""
    inputs(tmp_path)
    build(tmp_path, "--missing", "-999")
    shown = run("show", tmp_path / "bundle")
    assert f"  probes        2,048 rows computed here, every bit as xgboost {xgb.__version__} gave it\n" in shown.stdout
    assert "  missing       NaN, and -999 as the decider's XGBoost is told\n" in shown.stdout
    margins = np.load(tmp_path / "bundle" / "probes" / "margins.npy")
    put(tmp_path / "bundle", "margins", -margins)
    shown = run("show", tmp_path / "bundle")
    assert shown.exit_code == 1
    assert "this machine (" in shown.stderr


def test_show_says_the_facts(tmp_path: Path) -> None:
    """Given a bundle, show names model, library, threshold and pool."""
    inputs(tmp_path)
    build(tmp_path, "--model-id", "loan", "--model-version", "2026-10", "--revision", "2")
    shown = run("show", tmp_path / "bundle")
    assert shown.exit_code == 0
    assert "loan 2026-10 revision 2" in shown.stdout
    assert "at or above probability 0.5" in shown.stdout
    assert "400 rows" in shown.stdout


def test_a_build_trains_shadows_and_tells_of_them(tmp_path: Path) -> None:
    """Given --shadows and a train.json, build and show say how many are searched and held out; without a train.json it exits 2 and says what is missing."""
    inputs(tmp_path)
    train = tmp_path / "train.json"
    train.write_text('{"params": {"objective": "binary:logistic", "max_depth": 3}, "rounds": 5}')
    refused = build(tmp_path, "--shadows", "3")
    assert refused.exit_code == 2
    assert "--shadows needs --train-params" in refused.stderr.splitlines()[-1]
    done = build(tmp_path, "--shadows", "3", "--train-params", train)
    told = "  shadows       2 searched and 1 held out for each applicant, trained on bootstraps of the pool\n"
    assert done.exit_code == 0
    assert told in done.stdout
    assert "training shadows ..." in done.stderr.splitlines()
    assert told in run("show", tmp_path / "bundle").stdout


def test_show_says_where_robust_share_comes_from(tmp_path: Path) -> None:
    """Given a bundle without shadows, show says that robust_share will be null; given one with some, that it is of those held out."""
    inputs(tmp_path)
    build(tmp_path)
    assert (
        "  shadows       none: the robust_share of every tier will be null\n" in run("show", tmp_path / "bundle").stdout
    )
    shutil.rmtree(tmp_path / "bundle")
    xgboost_model(USUAL, max_depth=2).save_model(tmp_path / "before.ubj")
    build(tmp_path, "--shadow-models", str(tmp_path / "before.ubj"))
    shown = run("show", tmp_path / "bundle").stdout
    assert "  shadows       0 searched and 1 held out for each applicant, given\n" in shown
    assert "a tier's robust_share is the share of those held out that accept it\n" in shown


@pytest.mark.parametrize("spelling", ["words", "repeated", "joined"])
def test_shadow_models_takes_one_path_or_several(tmp_path: Path, spelling: str) -> None:
    """Given files after --shadow-models, after as many of it, or joined to it by =, with another option behind, all are taken in their order."""
    inputs(tmp_path)
    paths = []
    for depth in (1, 2, 4):
        xgboost_model(USUAL, max_depth=depth).save_model(tmp_path / f"v{depth}.ubj")
        paths.append(str(tmp_path / f"v{depth}.ubj"))
    flags = {
        "words": ["--shadow-models", *paths],
        "repeated": [word for path in paths for word in ("--shadow-models", path)],
        "joined": [f"--shadow-models={paths[0]}", *paths[1:]],
    }
    done = build(tmp_path, *flags[spelling], "--json")
    assert done.exit_code == 0, done.output
    entry = json.loads(done.stdout)["manifest"]["shadows"]
    assert (entry["trained"], entry["searched"], entry["held_out"]) == (False, 2, 1)
    kept = [(tmp_path / "bundle" / "shadows" / f"0{i}.ubj").read_bytes() for i in range(3)]
    assert kept == [Path(path).read_bytes() for path in paths]
    assert (
        "  shadows       2 searched and 1 held out for each applicant, given\n"
        in run("show", tmp_path / "bundle").stdout
    )


def test_a_word_that_belongs_to_no_option_is_refused(tmp_path: Path) -> None:
    """Given a path after an option that takes one, or --shadow-models without any, the command exits 2."""
    inputs(tmp_path)
    assert build(tmp_path, "--trees", "all", "stray.json").exit_code == 2
    assert build(tmp_path, "--shadow-models").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "what"),
    [(["--missing", "nan"], "--missing nan"), (["--policy", "features.toml"], "policy.toml: f0 is not a known key")],
)
def test_what_the_user_can_mend_exits_2_with_one_line(tmp_path: Path, arguments: list[str], what: str) -> None:
    """Given a wrong flag or file, the command exits 2 and its last line names it."""
    inputs(tmp_path)
    done = build(tmp_path, *(tmp_path / a if a.endswith(".toml") else a for a in arguments))
    assert done.exit_code == 2
    assert what in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_model_that_is_garbage_exits_2(tmp_path: Path) -> None:
    """Given a model file that no library wrote, the command exits 2 and says what to give instead."""
    inputs(tmp_path)
    (tmp_path / "model.json").write_text("nonsense")
    done = build(tmp_path)
    assert done.exit_code == 2
    assert "XGBoost model refused" in done.stderr.splitlines()[-1]


def test_a_file_that_is_not_there_exits_2(tmp_path: Path) -> None:
    """Given a path without a file, the command exits 2 and names the option."""
    done = build(tmp_path)
    assert done.exit_code == 2
    assert "--model" in done.stderr


def test_a_damaged_bundle_exits_1(tmp_path: Path) -> None:
    """Given a bundle with a changed file, show exits 1 and names the file."""
    inputs(tmp_path)
    build(tmp_path)
    (tmp_path / "bundle" / "features.toml").write_text("")
    shown = run("show", tmp_path / "bundle")
    assert shown.exit_code == 1
    assert "features.toml" in shown.stderr


def test_a_secret_file_must_hold_a_secret(tmp_path: Path) -> None:
    """Given an empty key file, the command exits 2; given a secret, it is used and not shown."""
    inputs(tmp_path)
    key = tmp_path / "key"
    key.write_text("\n")
    assert build(tmp_path, "--reference-key-file", key).exit_code == 2
    key.write_text("open sesame\n")
    done = build(tmp_path, "--reference-key-file", key)
    assert done.exit_code == 0
    assert "sesame" not in done.output
    assert "sesame" not in (tmp_path / "bundle" / MANIFEST).read_text()


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ([0, 1], "AUC 0."),
        (["bad", "good"], "AUC 0."),
        ([0, 0], "not by target: it holds 1 different values instead of 2"),
    ],
)
def test_a_build_tells_how_the_model_ranks_the_pool(tmp_path: Path, target: list[int | str], told: str) -> None:
    """Given a target column, text and JSON say how well the model ranks it; without one they say nothing of it."""
    made = inputs(tmp_path)
    rows, outcomes = made.rows, USUAL.data()[1]
    write_pool(tmp_path / "pool.csv", rows, [target[int(y)] for y in outcomes])
    done = build(tmp_path)
    assert f"  pool ranked   {told}" in done.stdout
    shutil.rmtree(tmp_path / "bundle")
    rank = json.loads(build(tmp_path, "--json").stdout)["pool_rank"]
    assert rank["column"] == "target"
    assert (rank["auc"] is None) == (target[0] == target[1])
    assert rank["auc"] is None or 0.8 < rank["auc"] < 1
    shutil.rmtree(tmp_path / "bundle")
    assert made.build(target_column=None).advice.rank is None


def test_a_pool_that_the_model_cannot_rank_raises_a_doubt(tmp_path: Path) -> None:
    """Given outcomes that have nothing to do with the model, the text asks whether this is the pool it was trained on."""
    made = inputs(tmp_path)
    write_pool(tmp_path / "pool.csv", made.rows, np.arange(len(made.rows)) % 2)
    assert "is this the pool that the model was trained on" in build(tmp_path).stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_exits_2_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a disk that is full while the bundle is written, the command exits 2, says so, and leaves nothing."""
    inputs(tmp_path)

    def full(self: Path, content: bytes) -> int:
        with self.open("wb") as file:
            file.write(content[:3])
        with Path("/dev/full").open("wb", buffering=0) as disk:
            return disk.write(content)

    monkeypatch.setattr(Path, "write_bytes", full)
    done = build(tmp_path)
    assert done.exit_code == 2, done.output
    assert f"cannot write the bundle at {tmp_path / 'bundle'}: No space left on device" in done.stderr.splitlines()[-1]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["features.toml", "model.json", "pool.csv"]


def test_an_out_that_cannot_be_made_exits_2(tmp_path: Path) -> None:
    """Given an --out below a file, or with a name that no file system takes, the command exits 2 with one line."""
    inputs(tmp_path)
    for out in (tmp_path / "pool.csv" / "bundle", tmp_path / ("x" * 300)):
        done = build(tmp_path, "--out", out)
        assert done.exit_code == 2, done.output
        assert done.stderr.splitlines()[-1].startswith("coach: cannot ")


@pytest.mark.parametrize("command", [(), ("build",), ("show",)])
def test_help_shows_an_example(command: tuple[str, ...]) -> None:
    """Given --help, each command shows an example of itself that begins on its own line."""
    shown = run(*command, "--help")
    assert shown.exit_code == 0
    assert "\n  Example:\n    coach bundle" in shown.stdout


def test_on_a_terminal_progress_is_a_bar_that_vanishes(capsys: pytest.CaptureFixture[str]) -> None:
    """Given a terminal, stages share one line with a bar, which is cleared at the end."""
    progress = BuildStages(terminal=True)
    for told in (("comparing", 1, 4), ("comparing", 4, 4), ("writing", 0, 1), ("writing", 1, 1)):
        progress(*told)
    shown = capsys.readouterr().err
    assert " 25% comparing" in shown
    assert "\n" not in shown
    assert shown.endswith("\r\x1b[K")
