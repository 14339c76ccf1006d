from __future__ import annotations

import time
from typing import Any, cast

import pytest

from stream.bundle.manifest import Manifest
from stream.errors import ConfigurationError
from stream.models.model_table import ModelTable
from stream.models.publishing import BEGINNING_MS, LEAD_MS, PublishRequest, as_before, effective_from, publish
from stream.runtime.settings import Settings
from stream.times import time_ms
from tests.models.test_model_table import published

PUBLISHED_FROM = "2026-01-01T00:00:00Z"


def manifest(revision: int, *, version: str = "1") -> Manifest:
    return cast("Manifest", {"model_id": "m", "model_version": version, "revision": revision})


def table() -> ModelTable:
    """Revision 1 of version 1 of model m is published."""
    found = ModelTable()
    record = published(1, PUBLISHED_FROM, version="1")
    record["model_id"] = "m"
    found.learn(record, 7)
    return found


def test_the_first_publication_of_a_version_answers_every_decision_that_names_it() -> None:
    """Given a version that nobody published, when it is published without a time, then it is effective from the beginning, for no decision can name a version before it exists."""
    for known in (ModelTable(), table()):
        since_ms, why = effective_from(known, manifest(1, version="2"), PublishRequest(uri="x"))
        assert (since_ms, "first publication" in why) == (BEGINNING_MS, True)


def test_a_revision_published_again_keeps_its_time() -> None:
    """Given a published revision, when it is published again without a time, then it stays effective from when it was."""
    since_ms, why = effective_from(table(), manifest(1), PublishRequest(uri="x"))
    assert (since_ms, "epoch 7" in why) == (time_ms(PUBLISHED_FROM), True)


def test_a_revision_published_again_keeps_its_approval() -> None:
    """Given a published revision that somebody approved, when it is published again without a name, then the name stays, for the topic keeps only the last record; a new name, and another revision, take nothing over."""
    known = ModelTable()
    record = published(1, PUBLISHED_FROM, version="1")
    record |= {"model_id": "m", "approved_by": "Model Risk", "supersedes": "m/1/0"}
    known.learn(record, 7)
    again = as_before(known, manifest(1), PublishRequest(uri="x"))
    assert (again.approved_by, again.supersedes) == ("Model Risk", "m/1/0")
    assert as_before(known, manifest(1), PublishRequest(uri="x", approved_by="The board")).approved_by == "The board"
    assert as_before(known, manifest(2), PublishRequest(uri="x")).approved_by is None


def test_a_new_revision_changes_nothing_for_decisions_already_taken() -> None:
    """Given a published revision, when a higher one is published without a time, then it is effective soon, when all workers have read of it."""
    before_ms = time.time_ns() // 1_000_000
    since_ms, why = effective_from(table(), manifest(2), PublishRequest(uri="x"))
    assert before_ms + LEAD_MS <= since_ms <= before_ms + 2 * LEAD_MS
    assert "when all workers know it" in why


def test_a_time_that_was_asked_for_holds() -> None:
    """Given a time, when anything is published, then it is effective from then."""
    for known in (ModelTable(), table()):
        assert effective_from(known, manifest(1), PublishRequest(uri="x", effective_from_ms=5)) == (5, "as asked")


@pytest.mark.parametrize(
    "uri",
    [
        "s3://user:hunter2@bucket/b",
        "https://hunter2@host/b",
        "https://host/b?X-Amz-Signature=hunter2",
        "s3://b/c?token=hunter2",
    ],
)
def test_a_uri_with_a_secret_is_not_published(uri: str) -> None:
    """Given a URI with a user, password or signature in it, when it is to be published, then it is refused before anything is asked, and the error does not repeat it."""
    with pytest.raises(ConfigurationError, match="topic models") as raised:
        publish(Settings(), PublishRequest(uri=uri))
    assert "hunter2" not in str(raised.value)


def test_a_folder_that_does_not_exist_is_a_wrong_argument(tmp_path: Any) -> None:
    """Given a path without a folder, when it is to be published, then it is refused by name."""
    with pytest.raises(ConfigurationError, match="no such folder"):
        publish(Settings(), PublishRequest(uri=str(tmp_path / "nowhere")))
