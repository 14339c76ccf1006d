"""Leaf matrices from stored arrays: the same when they are whole, and refused where compiled code would be misled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream.errors import CorruptionError
from stream.recourse.comparators.leaf_matrix import LeafMatrix
from stream.recourse.comparators.stored_matrix import stored_matrix
from tests.recourse.lenders import LENDERS, Approve, Lender, Library, lender

Array = Any
PAIRS = pytest.mark.parametrize(("library", "approve"), LENDERS)
ARRAYS = list(LeafMatrix.__dataclass_fields__)


def stored(shop: Lender, **changed: Array) -> LeafMatrix:
    model = shop.model
    arrays = model.matrix.arrays() | changed
    return stored_matrix(arrays, model.forest, model.cells, model.rules, sign=model.policy.sign, where="here")


@PAIRS
def test_stored_arrays_are_the_same_matrix(library: Library, approve: Approve, tmp_path: Path) -> None:
    """Given a matrix written to files, when put together from read-only maps of them, then every array is the same bytes."""
    shop = lender(library, approve)
    whole = shop.model.matrix.arrays()
    for name, array in whole.items():
        np.save(tmp_path / f"{name}.npy", array)
    again = stored(shop, **{name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in whole})
    for name, array in again.arrays().items():
        assert not array.flags.writeable
        assert (array.dtype, array.tobytes()) == (whole[name].dtype, whole[name].tobytes())


FORMS: dict[str, Callable[[Array], Array]] = {
    "no rows": lambda a: a[:0],
    "one row less": lambda a: a[:-1],
    "no dimension": lambda _: np.array(3),
    "flat": lambda a: a.reshape(-1) if a.ndim > 1 else a.reshape(1, -1),
    "one dimension more": lambda a: a[..., None],
    "texts": lambda a: a.astype("S8"),
    "complex": lambda a: a.astype("c16"),
    "other bytes": lambda a: a.astype(a.dtype.newbyteorder(">") if a.dtype.itemsize > 1 else "i1"),
    "narrower": lambda a: a.astype("f2"),
    "other order": lambda a: np.asfortranarray(a) if a.ndim > 1 else np.repeat(a, 2)[::2],
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_an_array_of_another_form_is_refused(form: Callable[[Array], Array], name: str) -> None:
    """Given an array of another shape, type or order, then it is refused before anything indexes by it."""
    shop = lender("xgboost")
    with pytest.raises(CorruptionError, match="build or fetch the bundle again"):
        stored(shop, **{name: form(shop.model.matrix.arrays()[name])})


@pytest.mark.parametrize("name", ARRAYS)
def test_an_absent_array_is_named(name: str) -> None:
    """Given all arrays but one, then that one is named."""
    shop = lender("xgboost")
    model = shop.model
    arrays = {key: array for key, array in model.matrix.arrays().items() if key != name}
    with pytest.raises(CorruptionError, match=f"{name!r} is absent"):
        stored_matrix(arrays, model.forest, model.cells, model.rules, sign=1, where="here")


def put(place: Any, value: Any) -> Callable[[Array], Array]:
    def change(array: Array) -> Array:
        changed = array.copy()
        changed[place] = value
        return changed

    return change


def one_ulp_up(array: Array) -> Array:
    return put(0, np.nextafter(array[0], -np.inf, dtype=array.dtype))(array)


WRONG: dict[str, tuple[str, Callable[[Array], Array], str]] = {
    "a leaf beyond its tree": ("codes", put((3, 1), 250), "a leaf that its tree does not have"),
    "another leaf": ("codes", lambda a: a[::-1].copy(), "is not what the leaves of `codes` add up to"),
    "a cell below 0": ("cells", put((0, 0), -1), "a cell that its feature does not have"),
    "a cell beyond the last": ("cells", put((0, 0), 1 << 30), "a cell that its feature does not have"),
    "cells of others": ("cells", lambda a: a[::-1].copy(), "is not that of `rows`"),
    "rows of others": ("rows", lambda a: a[::-1].copy(), "is not that of `rows`"),
    "a value without end": ("rows", put((1, 0), np.inf), "(holds inf|is not that of `rows`)"),
    "margins that are none": ("margins", put(-1, np.nan), "does not ascend"),
    "margins without end": ("margins", put(-1, np.inf), "does not ascend"),
    "margins that descend": ("margins", lambda a: a[::-1].copy(), "does not ascend"),
    "a margin one bit off": ("margins", one_ulp_up, "is not what the leaves of `codes` add up to"),
    "a scale of nothing": ("scales", put(0, 0.0), "no finite number above 0"),
    "a scale below nothing": ("scales", put(0, -1.0), "no finite number above 0"),
    "a scale without end": ("scales", put(0, np.inf), "no finite number above 0"),
    "a median that is none": ("medians", put(0, np.nan), "is no number"),
    "a start beyond the codes": ("category_start", put(-1, 1 << 40), "does not part the codes"),
    "a start below 0": ("category_start", put(0, -5), "does not part the codes"),
    "starts that descend": ("category_start", put(1, 1 << 40), "does not part the codes"),
    "codes of a number": ("category_start", put(slice(1, -1), 1), "does not add up|does not ascend"),
    "a code that is none": ("category_codes", put(0, np.nan), "no finite number"),
    "codes that descend": ("category_codes", lambda a: a[::-1].copy(), "does not ascend"),
    "a code of nobody": ("category_counts", put(0, 0), "that nobody has"),
    "a code of too many": ("category_counts", put(0, 1 << 40), "does not add up"),
}


@pytest.mark.parametrize(("name", "change", "named"), WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_an_array_of_another_pool_is_refused(
    library: Library, name: str, change: Callable[[Array], Array], named: str
) -> None:
    """Given an array of the right form that leads out of the model, or is not of these people, then it is refused by name."""
    shop = lender(library)
    with pytest.raises(CorruptionError, match=named):
        stored(shop, **{name: change(shop.model.matrix.arrays()[name])})


def test_a_pool_of_the_other_side_is_refused() -> None:
    """Given a pool sorted for a model that approves above, when the policy approves below, then it is refused."""
    model = lender("xgboost", "above").model
    with pytest.raises(CorruptionError, match="does not ascend"):
        stored_matrix(model.matrix.arrays(), model.forest, model.cells, model.rules, sign=-1, where="here")
