"""The probes stored in a bundle, with the library's results: opening the bundle computes them again.

    probes/rows.npy          (n, features) float64
    probes/margins.npy       (n,) in the model's dtype, by the library
    probes/predictions.npy   (n,) likewise
    probes/leaves.npy        (32,) bytes: SHA-256 of the leaf ids (n, trees) as little-endian int32

A worker on another machine, or with another version of the library, may compute something else than the gate saw.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stream.bundle.gate.owner import OwnerPredictions, Rows, library_version
from stream.bundle.gate.probe_rows import ProbeBatch, ProbeKind
from stream.errors import CorruptionError, MachineMismatch
from stream.forest.cutoffs import Link
from stream.forest.trees import Floats, Forest
from stream.forest.walk import leaf_ids, leaf_slots, margins

PROBES: Final = "probes"
PROBES_KEPT_MAX: Final = 2_048
ARRAYS: Final = ("rows", "margins", "predictions", "leaves")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeptProbes:
    """Shapes: rows (n, features) float64, margins and predictions (n,) in the model's dtype, leaves (32,) uint8."""

    rows: Rows
    margins: Floats
    predictions: Floats
    leaves: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.rows)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays of the bundle's files, by name."""
        return {name: getattr(self, name) for name in ARRAYS}


class ProbeSampler:
    """Samples probes while the gate runs: each kind of `counts` gets its share of the room, spread evenly over its rows."""

    def __init__(self, counts: Mapping[ProbeKind, int], most: int = PROBES_KEPT_MAX) -> None:
        self._indices = {kind: np.arange(share) * counts[kind] // share for kind, share in shares(counts, most).items()}
        self._kept: list[tuple[Rows, OwnerPredictions]] = []

    def add(self, batch: ProbeBatch, answers: OwnerPredictions) -> None:
        """Keep the sampled rows of a batch."""
        indices = self._indices[batch.kind] - batch.start
        indices = indices[(indices >= 0) & (indices < len(batch.rows))]
        if len(indices):
            picked = OwnerPredictions(answers.leaves[indices], answers.margins[indices], answers.predictions[indices])
            self._kept.append((batch.rows[indices], picked))

    def finish(self) -> KeptProbes:
        """All sampled probes, in the order of the gate."""
        answers = [kept for _, kept in self._kept]
        return KeptProbes(
            rows=np.concatenate([rows for rows, _ in self._kept]),
            margins=np.concatenate([kept.margins for kept in answers]),
            predictions=np.concatenate([kept.predictions for kept in answers]),
            leaves=digest_of_leaves(np.concatenate([kept.leaves for kept in answers])),
        )


def shares(counts: Mapping[ProbeKind, int], most: int) -> dict[ProbeKind, int]:
    """How many of each kind are kept: equally many, with the room that small kinds leave given to larger ones."""
    left, given = most, {}
    for n, kind in enumerate(sorted(counts, key=lambda kind: counts[kind])):
        given[kind] = min(counts[kind], left // (len(counts) - n))
        left -= given[kind]
    return given


def digest_of_leaves(leaves: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """SHA-256 of leaf ids (n, trees)."""
    digest = hashlib.sha256(np.ascontiguousarray(leaves, "<i4").tobytes())
    return np.frombuffer(digest.digest(), np.uint8)


def kept_probes(arrays: Mapping[str, npt.NDArray[Any]], forest: Forest, where: str) -> KeptProbes:
    """The probes of a bundle from its arrays. `where` is what messages call the bundle.

    Raises: CorruptionError where one is absent or of another shape or type.
    """
    if absent := [name for name in ARRAYS if name not in arrays]:
        message = f"{where} lacks the probes' array {absent[0]!r}; build the bundle again"
        raise CorruptionError(message)
    kept = KeptProbes(**{name: arrays[name] for name in ARRAYS})
    n, dtype = kept.margins.size, forest.dtype  # any shape has a size
    form: Sequence[tuple[npt.NDArray[Any], tuple[int, ...], Any]] = (
        (kept.rows, (n, len(forest.features)), np.float64),
        (kept.margins, (n,), dtype),
        (kept.predictions, (n,), dtype),
        (kept.leaves, (hashlib.sha256().digest_size,), np.uint8),
    )
    if n == 0 or any(array.shape != shape or array.dtype != kind for array, shape, kind in form):
        message = f"{where}: the probes are not those of this model; build the bundle again"
        raise CorruptionError(message)
    return kept


def check_probes(forest: Forest, link: Link, kept: KeptProbes, *, where: str, built_with: str) -> None:
    """Compute every kept probe again. `built_with`: the library's version at the build.

    Raises: MachineMismatch where one bit differs from what the builder's library gave.
    """
    slots = leaf_slots(forest, kept.rows)
    scored = margins(forest, slots)
    if digest_of_leaves(leaf_ids(forest, slots)).tobytes() != kept.leaves.tobytes():
        raise mismatch(forest, "reaches another leaf than", where, built_with)
    for what, here, there in (
        ("margin", scored, kept.margins),
        ("prediction", link.probabilities(scored), kept.predictions),
    ):
        if here.tobytes() != there.tobytes():
            wrong = sum(a.tobytes() != b.tobytes() for a, b in zip(here, there, strict=True))
            raise mismatch(forest, f"gives another {what} for {wrong} of {len(kept)} probes than", where, built_with)


def mismatch(forest: Forest, what: str, where: str, built_with: str) -> MachineMismatch:
    """An error that names the differing machine and library, and the remedy."""
    machine = f"this machine ({platform.system()} {platform.machine()}, {forest.library} {library_version(forest)})"
    return MachineMismatch(
        f"{where}: {machine} {what} the one that built the bundle ({forest.library} {built_with}); run it on a machine "
        f"and with a version of {forest.library} like the builder's, or build the bundle again on a machine like this one and publish it"
    )
