from __future__ import annotations

import pytest

from stream.errors import ModelNotPublished
from stream.events import ModelPublished
from stream.models.model_table import ModelTable, models_key
from stream.times import time_ms

NOON = time_ms("2026-11-27T12:00:00Z")


def published(revision: int, effective_from: str, *, version: str = "v", sha256: str = "") -> ModelPublished:
    return {
        "model_id": "m", "model_version": version, "revision": revision, "bundle_uri": "file:///b",
        "bundle_sha256": sha256 or f"{revision:064d}", "library": "xgboost", "library_version": "", "format_version": 1,
        "objective": "binary:logistic", "link": "logistic", "approve": "above", "threshold": 0.5,
        "threshold_scale": "probability", "cutoff_margin": 0.0, "trees_used": 1, "features": [],
        "effective_from": effective_from, "published_at": effective_from, "approved_by": None,
    }  # fmt: skip


def test_a_decision_is_answered_by_the_highest_revision_that_was_effective() -> None:
    """Given three revisions of which the last is effective later, when a decision between is resolved, then it is the second's."""
    table = ModelTable()
    table.learn(published(1, "2026-01-01T00:00:00Z"), 0)
    table.learn(published(3, "2026-12-01T00:00:00Z"), 1)
    table.learn(published(2, "2026-11-27T12:00:00Z"), 2)
    assert table.resolve("m", "v", NOON).published["revision"] == 2
    assert table.resolve("m", "v", NOON - 1).published["revision"] == 1
    assert table.resolve("m", "v", time_ms("2027-01-01T00:00:00Z")).published["revision"] == 3


def test_what_is_missing_is_said() -> None:
    """Given no version, or no revision effective at the time, when resolved, then the error says which, and is retryable."""
    table = ModelTable()
    table.learn(published(1, "2026-12-01T00:00:00Z"), 0)
    with pytest.raises(ModelNotPublished, match="version other of model m"):
        table.resolve("m", "other", NOON)
    with pytest.raises(ModelNotPublished, match=r"effective at 2026-11-27T12:00:00\.000Z.*2026-12-01T00:00:00\.000Z"):
        table.resolve("m", "v", NOON)
    assert ModelNotPublished.retryable


def test_a_revision_published_again_is_the_later_one_in_any_order_of_reading() -> None:
    """Given one revision published twice, when both are read, in whatever order, then the one of the higher epoch holds."""
    first, second = published(1, "2026-01-01T00:00:00Z", sha256="a"), published(1, "2026-01-01T00:00:00Z", sha256="b")
    for order in ([(first, 4), (second, 9)], [(second, 9), (first, 4)]):
        table = ModelTable()
        for record, epoch in order:
            table.learn(record, epoch)
        assert table.resolve("m", "v", NOON).published["bundle_sha256"] == "b"
        assert [one.epoch for one in table.publications()] == [9]


def test_a_tombstone_withdraws_a_revision() -> None:
    """Given two revisions, when a tombstone withdraws the higher, then the lower answers, and waiting decisions look again."""
    table = ModelTable()
    table.learn(published(1, "2026-01-01T00:00:00Z"), 0)
    table.learn(published(2, "2026-01-01T00:00:00Z"), 1)
    seen = table.changes
    table.forget(models_key("m", "v", 2))
    assert table.resolve("m", "v", NOON).published["revision"] == 1
    assert table.changes > seen
