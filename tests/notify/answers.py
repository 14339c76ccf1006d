"""Recommendations for letters: the engine's own answers about a lender whose features have labels of their own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from stream.events import Recommendation
from stream.recourse.answer import answer
from stream.recourse.rules.features import read_features
from tests.recourse.lenders import FEATURES, RULES, Lender, applicants, lender

LABELS: Final = {
    "income": "Monthly income",
    "share": "Share of your own money",
    "age": "Your years of life",
    "accounts": "Number of your accounts",
    "debts": "Number of your open debts",
    "purpose": "Purpose of the loan",
    "region": "Region you live in",
    "limit": "Limit of your card",
    "balance": "Balance of your card",
}
IMMUTABLE: Final = ("age", "region")
NOW_MS: Final = 1_795_774_500_250  # 2026-11-27T10:15:00.250Z, as the decisions


@cache
def labelled_lender() -> Lender:
    """A small XGBoost lender; nobody can change age or region."""
    rules = RULES.replace('label = "monthly income"\n', "").replace(
        '[region]\ntype = "category"\nmutability = "mutable"', '[region]\ntype = "category"\nmutability = "immutable"'
    )
    for name, label in LABELS.items():
        rules = rules.replace(f"[{name}]\n", f'[{name}]\nlabel = "{label}"\n')
    small = lender("xgboost", trees=14, depth=3)
    return small.with_model(rules=read_features(rules, FEATURES))


def recommendations(count: int, *, skip: int = 0) -> list[Recommendation]:
    """Answers to different applicants: d-0, d-1, ... with the pseudonyms s-0, s-1, ..."""
    made = labelled_lender()
    rows, _ = applicants(7, 3 * (count + skip) + 60)
    declined = rows[~made.accepts(rows)][skip : skip + count]
    assert len(declined) == count
    return [
        answer(made.decide(row, decision_id=f"d-{skip + n}", subject_ref=f"s-{skip + n}"), made.model).recommendation
        for n, row in enumerate(declined)
    ]


def different(one: Recommendation) -> Recommendation:
    """A later, different answer to the same decision."""
    changed: dict[str, Any] = dict(one)
    changed |= {"revision": one["revision"] + 1, "recommendation_id": "f" * 64}
    changed["reasons"] = [{"code": "R9", "text": "Something else than before", "feature": "income"}]
    return changed  # type: ignore[return-value]


def step_labels(text: str) -> list[str]:
    """The labels of all steps that a letter of the shipped template names."""
    return [
        line[4:].rpartition(" (on our records: ")[0].rpartition(": ")[0]
        for line in text.splitlines()
        if line[:4] == "  - "
    ]


def ok_one() -> Recommendation:
    """The first answer with steps."""
    return next(one for one in recommendations(20) if one["status"] == "ok")


def contacts_csv(people: Sequence[str], **changes: Sequence[str]) -> str:
    """A contact file: everybody by e-mail with consent; `changes` list the pseudonyms that differ, by what differs."""
    lines = ["subject_ref,channel,address,locale,consent,bounced,name,postal_address"]
    for one in people:
        channel = next((c for c in ("print", "webhook", "files") if one in changes.get(c, ())), "email")
        consent = "no" if one in changes.get("no_consent", ()) else "yes"
        bounced = "yes" if one in changes.get("bounced", ()) else "no"
        domain = "refused.example" if one in changes.get("refused", ()) else "people.example"
        lines.append(f"{one},{channel},{one}@{domain},en,{consent},{bounced},Pat {one},1 Main St|Springfield IL 62701")
    return "\n".join(lines) + "\n"


def replaced(one: Recommendation, **changes: Any) -> Recommendation:
    """The same with other fields."""
    whole: dict[str, Any] = dict(one)
    return whole | changes  # type: ignore[return-value]
