"""The account at the end of the demo: what came back, three letters of it, and every record verified."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, cast

import orjson

from stream.audit.verify.body import verify
from stream.demo.letter import Thirds, letter
from stream.demo.traffic import Heard, Post
from stream.events import AuditRecord, DeadLetter, Recommendation
from stream.files.answer_lines import answer_line
from stream.wire.avro_records import decode

LETTERS_SHOWN: Final = 3
SHARES: Final = (50, 90, 99)
ANSWERED: Final = "decision.ended"  # the worker's log line at the end of each decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """All decisions of a run, and the records about them on the topics, by decision_id."""

    posts: Sequence[Post]
    recommendations: Mapping[str, Recommendation]
    audits: Mapping[str, AuditRecord]
    dead_letters: Sequence[DeadLetter]

    def faults(self) -> Iterator[str]:
        """List the faults, a line each: answers missing or not due, audit records that do not verify, dead letters."""
        for post in self.posts:
            for what, answers in (("recommendation", self.recommendations), ("audit record", self.audits)):
                if post.declined and post.decision_id not in answers:
                    yield f"{post.decision_id} was declined and has no {what}"
                if not post.declined and post.decision_id in answers:
                    yield f"{post.decision_id} was approved and has a {what}"
        for decision_id, record in self.audits.items():
            for fault in verify(record["body"], record["body_sha256"], self.recommendations.get(decision_id)):
                yield f"audit record of {decision_id}: {fault}"
        for dead in self.dead_letters:
            yield f"dead letter in stage {dead['stage']}: {dead['error']}: {dead['message']}"

    def answers(self) -> Iterator[bytes]:
        """Write out every answer as a line of `coach recommend`, in the order of the decisions."""
        for post in self.posts:
            recommendation, record = self.recommendations.get(post.decision_id), self.audits.get(post.decision_id)
            if recommendation is not None and record is not None:
                yield answer_line(post.decision_id, recommendation, record["body"], record["body_sha256"])

    def letters(self, thirds: Thirds) -> Iterator[str]:
        """Write out the first answers whose first reasons differ, in the order of the decisions."""
        shown: dict[str, str] = {}
        for post in self.posts:
            answer = self.recommendations.get(post.decision_id)
            if answer is not None and answer["tiers"] and answer["reasons"]:
                shown.setdefault(answer["reasons"][0]["code"], post.decision_id)
        for decision_id in list(shown.values())[:LETTERS_SHOWN]:
            yield letter(self.recommendations[decision_id], self.audits[decision_id]["body"], thirds)


def account_of(posts: Sequence[Post], heard: Heard) -> Account:
    """Decode the records that came back. Raises: PoisonError for a record that no schema of ours reads."""
    return Account(
        posts=posts,
        recommendations={k: cast("Recommendation", decode(v)[1]) for k, v in heard.recommendations.items()},
        audits={k: cast("AuditRecord", decode(v)[1]) for k, v in heard.audits.items()},
        dead_letters=[cast("DeadLetter", decode(value)[1]) for value in heard.dead_letters.values()],
    )


def figures(account: Account, heard: Heard, faults: int, worker_log: str) -> list[str]:
    """Counts and latencies, a line each."""
    recommendations = account.recommendations.values()
    declined = sum(post.declined for post in account.posts)
    statuses: Counter[str] = Counter(one["status"] for one in recommendations)
    tiers: Counter[str] = Counter(tier["tier"] for one in recommendations for tier in one["tiers"])
    return [
        f"decisions           {len(account.posts):,}: {len(account.posts) - declined:,} approved, {declined:,} declined",
        f"recommendations     {len(account.recommendations):,}: {by_count(statuses)}",
        f"answers by tier     {by_count(tiers)}",
        f"audit records       {len(account.audits):,}, each verified without the model: {faults} faults",
        f"dead letters        {len(account.dead_letters):,}",
        f"records read twice  {heard.duplicates:,} (delivery is at least once: what is sent again is the same answer)",
        f"decision to answer  {in_milliseconds(list(heard.answered_after_s.values()))}",
        "                    (of it up to 0.1 s because the embedded broker lets an idle reader wait; Kafka itself does not)",
        f"worker's own time   {in_milliseconds(own_times_s(worker_log))} a declined decision",
    ]


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all do not exceed (nearest rank); NaN of nothing."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def in_milliseconds(seconds: Sequence[float]) -> str:
    """`p50 8.1 ms, p90 11.9 ms, p99 31.0 ms`."""
    return ", ".join(f"p{share} {1000 * percentile(seconds, share):.1f} ms" for share in SHARES)


def own_times_s(worker_log: str) -> list[float]:
    """The worker's own time for each answered decision, from its log: bytes in to bytes ready to send, in seconds."""
    found = []
    for text in worker_log.splitlines():
        if ANSWERED in text:
            with suppress(orjson.JSONDecodeError, KeyError):
                found.append(orjson.loads(text)["elapsed_us"] / 1e6)
    return found


def by_count(counts: Mapping[str, int]) -> str:
    """`ok 240, no_feasible_recourse 7`, the most frequent first."""
    return ", ".join(f"{name} {count:,}" for name, count in Counter(counts).most_common()) or "none"
