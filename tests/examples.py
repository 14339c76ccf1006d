"""How many examples property tests try: `COACH_EXAMPLES` scales them all, 1 being what each test says."""

from __future__ import annotations

import os
from typing import Final

SCALE: Final = float(os.environ.get("COACH_EXAMPLES", "1"))
LEAST: Final = 3  # fewer would hardly be a property


def examples(wanted: int) -> int:
    """Scale a test's number of examples."""
    return max(min(wanted, LEAST), round(SCALE * wanted))
