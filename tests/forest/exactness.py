"""What exact means in these tests: the leaves, margins and predictions of the owner library, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from stream.forest.link import link_of
from stream.forest.trees import Forest
from stream.forest.walk import leaf_ids, leaf_slots, margins


def assert_equals_owner(
    forest: Forest,
    leaves: npt.NDArray[Any],
    owner_margins: npt.NDArray[Any],
    predictions: npt.NDArray[Any],
    rows: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[Any]]:
    """Compare what the library gave for these rows with what the forest gives; returns our leaf slots and margins.

    Shapes: rows (rows, features); leaves (rows, trees), of one tree also (rows,); the others (rows,). A margin or a
    prediction of another dtype has other bytes, and fails too.
    """
    slots = leaf_slots(forest, rows)
    scored = margins(forest, slots)
    assert np.array_equal(leaf_ids(forest, slots), leaves.reshape(slots.shape))
    assert scored.tobytes() == owner_margins.tobytes()
    assert link_of(forest).probabilities(scored).tobytes() == predictions.tobytes()
    return slots, scored
