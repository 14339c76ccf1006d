"""The tables that hold one record per model library."""

from __future__ import annotations

from typing import get_args

import pytest

from stream.bundle.gate.owner import OWNERS
from stream.bundle.read_model import MODEL_FILES
from stream.bundle.shadows.training import TRAINERS
from stream.forest.libraries import LIBRARIES
from stream.forest.trees import ARITHMETIC, Library


@pytest.mark.parametrize("table", [LIBRARIES, ARITHMETIC, OWNERS, TRAINERS])
def test_every_library_has_its_record_in_every_table(table: dict[Library, object]) -> None:
    """Given the libraries that are reproduced, then reading, arithmetic, scoring and training each know all of them."""
    assert set(table) == set(get_args(Library))


def test_no_two_libraries_share_a_suffix() -> None:
    """Given the suffixes of model files, then each names one library, and trained files have one of their library's."""
    assert len(MODEL_FILES) == sum(len(library.suffixes) for library in LIBRARIES.values())
    assert all(library.trained_suffix in library.suffixes for library in LIBRARIES.values())
