"""The lender's own scores of the pool (claims) against the model: they must be equal, bit for bit.

A model file does not say which trees its scorer uses, or which number it takes as missing. Claims reveal both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stream.bundle.gate.owner import owner_of
from stream.bundle.pool import Pool, Rows
from stream.errors import ClaimsDiffer, ConfigurationError
from stream.events import ThresholdScale
from stream.forest.libraries import LIBRARIES
from stream.forest.link import link_of
from stream.forest.trees import Bools, Floats, Forest, TreesUsed
from stream.forest.walk import margins_of

USUAL_SENTINELS: Final = (-999.0, -9999.0, -99.0, -9.0, -1.0, 0.0, 99.0, 999.0, 9999.0, 99999.0)
DIGITS_MAX: Final = 17  # of a double; claims with fewer may be rounded

NO_HINT: Final = (
    "; no other reading that is tried here makes them equal, so compare the model file and the pool with those that the "
    "scorer had"
)

Claims = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimReport:
    """The compared claims, all of them equal."""

    column: str
    scale: ThresholdScale
    rows: int  # with a claim; empty cells have none


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimColumn:
    """Which column of the pool holds claims, and of what."""

    name: str
    scale: ThresholdScale


def trees_meant(forests: Mapping[TreesUsed, Forest], model: bytes, pool: Pool, column: ClaimColumn) -> TreesUsed:
    """Of two readings of one file, the one that the claims were made with.

    Raises: ClaimsDiffer where none reproduces all of them, or both do; it says which other reading fits, if one does.
    """
    claims = _claims(pool, column)
    same = {trees: _equal(forest, pool, claims, column.scale) for trees, forest in forests.items()}
    meant = [trees for trees, equal in same.items() if equal.all()]
    if len(meant) == 1:
        return meant[0]
    counts = " and ".join(f"--trees {trees} {equal.sum():,}" for trees, equal in same.items())
    why = "both readings" if meant else "neither reading"
    readings = {f"--trees {trees}": one for trees, one in forests.items()}
    hint = "" if meant else _hint(readings, model, pool, column)
    message = (
        f"the claims of column {column.name!r} do not tell which trees were meant, for {why} of the file reproduces all of "
        f"them: of {len(claims):,} rows with a claim, {counts}{hint or '; say --trees, or give the scores of the model itself'}"
    )
    raise ClaimsDiffer(message)


def check_claims(
    forest: Forest, model: bytes, pool: Pool, column: ClaimColumn, other_trees: Mapping[TreesUsed, Forest]
) -> ClaimReport:
    """Compare every claim, cast to the library's dtype, with what the model gives.

    `other_trees`: the file with the trees that were not chosen, where it leaves a choice.
    Raises: ClaimsDiffer that names the first row, says both numbers, and which other reading fits, if one does;
    ConfigurationError where there is no claim.
    """
    claims = _claims(pool, column)
    equal = _equal(forest, pool, claims, column.scale)
    if not equal.all():
        index = int(np.flatnonzero(~equal)[0])
        row = int(np.flatnonzero(_has_claim(pool))[index])
        scores = _scores(forest, pool, column.scale)
        readings = {"": forest} | {f"--trees {trees}": one for trees, one in other_trees.items()}
        message = (
            f"the claims of column {column.name!r} are not what the model gives: {(~equal).sum():,} of {len(claims):,} rows "
            f"differ, first row {row} of the pool (from 0): {column.scale} {_cast(claims, scores)[index]!s} claimed, {scores[index]!s} by the model"
            f"{_hint(readings, model, pool, column) or NO_HINT}"
        )
        raise ClaimsDiffer(message)
    return ClaimReport(column=column.name, scale=column.scale, rows=len(claims))


def _claims(pool: Pool, column: ClaimColumn) -> Claims:
    has = _has_claim(pool)
    if pool.claims is None or not has.any():
        message = f"the pool's column {column.name!r}, which --claim-column names, is empty in every row"
        raise ConfigurationError(message)
    return pool.claims[has]


def _has_claim(pool: Pool) -> Bools:
    return np.zeros(len(pool.rows), np.bool_) if pool.claims is None else ~np.isnan(pool.claims)


def _scores(forest: Forest, pool: Pool, scale: ThresholdScale) -> Floats:
    return _given(forest, pool.rows[_has_claim(pool)], scale)


def _given(forest: Forest, rows: Rows, scale: ThresholdScale) -> Floats:
    margins = margins_of(forest, rows)
    return margins if scale == "margin" else link_of(forest).probabilities(margins)


def _cast(claims: Claims, like: Floats) -> Floats:
    with np.errstate(over="ignore"):
        return claims.astype(like.dtype)


def _equal(forest: Forest, pool: Pool, claims: Claims, scale: ThresholdScale) -> Bools:
    return _same_bits(claims, _scores(forest, pool, scale))


def _same_bits(claims: Claims, scores: Floats) -> Bools:
    bits = np.uint32 if scores.dtype == np.float32 else np.uint64
    same: Bools = _cast(claims, scores).view(bits) == scores.view(bits)
    return same


def _hint(readings: Mapping[str, Forest], model: bytes, pool: Pool, column: ClaimColumn) -> str:
    """The reading, of those by their flags, that reproduces all claims, tried with each scale and each usual sentinel.

    Most plausible first: other flags, then `inplace_predict` where it rounds otherwise, then claims that were rounded.
    """
    claims, rows = _claims(pool, column), pool.rows[_has_claim(pool)]
    with_sentinel = {
        f"{flags} --missing {number:g}".strip(): dataclasses.replace(forest, missing=number)
        for flags, forest in readings.items()
        for number in _sentinels(forest, pool)
    }
    other_scale: ThresholdScale = "margin" if column.scale == "probability" else "probability"
    scales = ((column.scale, ""), (other_scale, f"--claim-scale {other_scale}"))
    for how in (_exactly, _in_place, _rounded):
        for scale, flag in scales:
            for flags, forest in (*readings.items(), *with_sentinel.items()):
                fits = how(forest, model, rows, claims, scale)
                if fits is not None:
                    said = f"{flags} {flag}".strip()
                    return f"; {f'with {said} ' if said else ''}{fits}"
    return ""


def _exactly(forest: Forest, _model: bytes, rows: Rows, claims: Claims, scale: ThresholdScale) -> str | None:
    return "all of them are equal" if _same_bits(claims, _given(forest, rows, scale)).all() else None


def _in_place(forest: Forest, model: bytes, rows: Rows, claims: Claims, scale: ThresholdScale) -> str | None:
    given = owner_of(forest, model).in_place(rows)
    if given is None or not _same_bits(claims, given.margins if scale == "margin" else given.predictions).all():
        return None
    return (
        "they are what inplace_predict (which XGBClassifier uses) gives: it rounds a DART model otherwise than "
        "Booster.predict(DMatrix), which is what is reproduced here, so let the scorer use that one"
    )


def _rounded(forest: Forest, _model: bytes, rows: Rows, claims: Claims, scale: ThresholdScale) -> str | None:
    digits = max(_decimals(claim) for claim in claims.tolist())
    scores = _given(forest, rows, scale).astype(np.float64).tolist()
    if digits >= DIGITS_MAX or any(round(a, digits) != b for a, b in zip(scores, claims.tolist(), strict=True)):
        return None
    return f"they are all equal once ours are rounded to {digits} decimals: write the claims with all their digits"


def _sentinels(forest: Forest, pool: Pool) -> list[float]:
    """The usual sentinels in the pool, where the library takes one and none was given."""
    if not LIBRARIES[forest.library].takes_missing or forest.missing is not None:
        return []
    return [number for number in USUAL_SENTINELS if (pool.rows == number).any()]


def _decimals(claim: float) -> int:
    """Digits after the point of the shortest text that gives this double back."""
    mantissa, _, exponent = repr(claim).partition("e")
    digits = len(mantissa.partition(".")[2].rstrip("0"))
    return max(0, digits - int(exponent or 0))
