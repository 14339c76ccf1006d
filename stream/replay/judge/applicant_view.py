"""What an applicant sees of an answer, and the numbers behind it that no letter shows; compares both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from stream.events import TIERS
from stream.recourse.model import PublishedModel

NUMBERS: Final = ("margin", "probability")
NUMBERS_OF_A_TIER: Final = ("effort", "margin", "probability", "robust_share")
Body: TypeAlias = Mapping[str, Any]
FeatureWords: TypeAlias = Mapping[str, tuple[str, str | None]]  # feature -> label, unit


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicantView:
    """What a letter can say of an answer. `options`: by tier, the features to change, each from and to what.

    `words` and `expires_at` are None where unknown, and then not compared.
    """

    status: str
    reasons: tuple[str, ...]
    options: Mapping[str, tuple[tuple[str, object, object], ...]]
    words: FeatureWords | None
    expires_at: str | None


def words_of(model: PublishedModel) -> FeatureWords:
    """What a model's rules call its features, and their units."""
    return {rule.name: (rule.label, rule.unit) for rule in model.rules.rules}


def applicant_view(body: Body, words: FeatureWords | None, expires_at: str | None) -> ApplicantView:
    """Extract from an audit body what the applicant is told. Raises: KeyError, TypeError for what is no audit body."""
    own = body["decision"]["features"]
    return ApplicantView(
        status=str(body["status"]),
        reasons=tuple(str(one["text"]) for one in body["reasons"]),
        options={
            str(one["tier"]): tuple((name, own.get(name), to) for name, to in sorted(one["target"].items()))
            for one in body["tiers"]
        },
        words=words,
        expires_at=expires_at,
    )


def view_differences(before: ApplicantView, after: ApplicantView) -> tuple[str, ...]:
    """Name what a letter would say differently: status, reasons' texts, each tier's actions or only their wording, the day."""
    found = ["status"] if before.status != after.status else []
    if before.reasons != after.reasons:
        found.append("reasons")
    for tier in TIERS:
        was, now = before.options.get(tier), after.options.get(tier)
        if was is None or now is None:
            if was is not now:
                found.append(f"{tier}: {'found' if was is None else 'lost'}")
        elif was != now:
            found.append(f"{tier}: actions")
        elif before.words is not None and after.words is not None and _wording(before, tier) != _wording(after, tier):
            found.append(f"{tier}: wording")
    if None not in (before.expires_at, after.expires_at) and before.expires_at != after.expires_at:
        found.append("expiry")
    return tuple(found)


def number_differences(before: Body, after: Body) -> tuple[str, ...]:
    """Name the differing numbers that no letter shows: margins, probabilities, efforts, contributions, codes.

    Raises: KeyError, TypeError for what is no audit body.
    """
    found = [name for name in NUMBERS if before[name] != after[name]]
    found += [
        f"reasons: {what}s"
        for what in ("code", "contribution")
        if [one[what] for one in before["reasons"]] != [one[what] for one in after["reasons"]]
    ]
    sides = [{one["tier"]: one for one in body["tiers"]} for body in (before, after)]
    for tier in TIERS:
        was, now = sides[0].get(tier), sides[1].get(tier)
        if was is not None and now is not None:
            found += [f"{tier}: {name}" for name in NUMBERS_OF_A_TIER if was[name] != now[name]]
            if list(_contributions(was)) != list(_contributions(now)):
                found.append(f"{tier}: contributions")
    return tuple(found)


def _wording(view: ApplicantView, tier: str) -> list[tuple[str, str | None] | None]:
    words = view.words or {}
    return [words.get(feature) for feature, _, _ in view.options[tier]]


def _contributions(tier: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for one in tier["ledgers"]["target"]["features"]:
        yield str(one["feature"]), str(one["contribution"])
