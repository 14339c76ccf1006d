from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import numpy as np

from stream.bundle.advice.pool_rank import area_under_curve
from stream.bundle.manifest import Manifest
from stream.demo.credit_data import read_credit_data
from stream.demo.decision_messages import decisions
from stream.demo.preparation import Prepared
from stream.demo.scoring_model import Scores
from stream.wire.decisions import read_decision

FEATURES = '[income]\ntype = "number"\nmutability = "mutable"\n'


def test_each_application_becomes_a_decision_that_the_worker_reads(tmp_path: Path) -> None:
    """Given scored applications, when decided about, then each is valid, claims its score bit for bit, and turns at the threshold."""
    (tmp_path / "loans.csv").write_text("income,ok\n1.5,1\n,0\n")
    data = read_credit_data(tmp_path / "loans.csv", FEATURES, target="ok", favourable="1")
    scores = Scores(
        margins=np.array([0.1, -0.2], np.float32),
        probabilities=np.array([0.5, 0.45], np.float32),
        held_out_auc=float("nan"),
    )
    decided_at = datetime(2026, 11, 28, 10, 15, 0, 250_000, tzinfo=UTC)
    manifest = cast("Manifest", {"model_id": "demo", "model_version": "1"})
    posts = decisions(Prepared(data=data, scores=scores, manifest=manifest), threshold=0.5, decided_at=decided_at)
    read = [read_decision(post.value) for post in posts]
    assert [post.declined for post in posts] == [False, True]
    assert [decision.outcome for decision in read] == ["approved", "declined"]
    assert [decision.decision_id for decision in read] == [post.decision_id for post in posts]
    assert [decision.features["income"] for decision in read] == [1.5, None]
    assert {decision.event_time_ms for decision in read} == {int(decided_at.timestamp() * 1000)}
    claims = [(decision.margin or 0, decision.probability or 0) for decision in read]
    assert np.array(claims, np.float32).tobytes() == np.column_stack([scores.margins, scores.probabilities]).tobytes()


def test_the_area_under_the_curve_counts_pairs() -> None:
    """Given scores with a tie, when measured, then the area is the share of pairs in the right order, a tie counting half."""
    scores = np.array([0.9, 0.5, 0.5, 0.1], np.float32)
    favourable = np.array([True, True, False, False])
    assert area_under_curve(scores, favourable) == 3.5 / 4
    assert np.isnan(area_under_curve(scores, np.ones(4, bool)))
