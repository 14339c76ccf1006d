"""Links and ratios computed exactly: in the decimal numbers that people read, so that 0.1 times 3 is 0.3.

Numbers of one computation are whole numbers of one unit, a power of ten: of int64 where doubles hold all of them, else
Python's own, which are slower and have no bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from itertools import repeat
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

EXACT_BELOW = 2**53  # whole numbers that doubles hold
POWER_MAX = 15  # of ten, below that


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """What one feature is when its driver is elsewhere, for one person.

    link: own + factor * (driver - start); above: factor * driver / other; below: factor * other / driver. Then rounded
    to origin + a whole number of steps, where there is a step; of two equally near it is the greater. `own` is the
    feature's own value for a link, for a ratio `other`; `start` the driver's own value.
    """

    kind: Literal["link", "above", "below"]
    factor: Decimal
    own: Decimal
    start: Decimal
    origin: Decimal
    step: Decimal | None

    @property
    def digits(self) -> int:
        """How many digits after the point its numbers have."""
        return max(map(digits_of, (self.factor, self.own, self.start, self.origin, self.step or Decimal(1))))

    def begins(self) -> float:
        """What the formula gives at the driver's own value, as near as doubles get."""
        factor, own, start = (float(n) for n in (self.factor, self.own, self.start))
        if self.kind == "link":
            return own
        return factor * start / own if self.kind == "above" else factor * own / start

    def back(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """At which of the driver's values the formula gives these, as near as doubles get. Shape: (n,) -> (n,)."""
        factor, own, start = (float(n) for n in (self.factor, self.own, self.start))
        with np.errstate(all="ignore"):
            if self.kind == "link":
                return start + (values - own) / factor
            return values * own / factor if self.kind == "above" else factor * own / values

    def values(self, driver: NDArray[Any], digits: int) -> NDArray[np.float64]:
        """What it is when the driver is there, exactly rounded. Shape: (n,) whole units of 10 ** -digits -> (n,) float64."""
        scale, (factor, own, start, origin, step) = 10**digits, (
            whole(n, digits) for n in (self.factor, self.own, self.start, self.origin, self.step or Decimal(0))
        )  # fmt: skip
        far = int(np.abs(driver).max(initial=0))
        over = abs(own) * scale + abs(factor) * (far + abs(start) + abs(own))
        under = max(scale, abs(own), far)
        if 2 * (over + (abs(origin) + step) * under) + under * scale >= EXACT_BELOW or digits > POWER_MAX:
            driver = driver.astype(object)
        below: Any  # the value is above / below units
        if self.kind == "link":
            above, below = own * scale + factor * (driver - start), scale
        elif self.kind == "above":
            above, below = factor * driver, own
        else:
            above, below = np.full_like(driver, factor * own), driver
        if self.step is None:
            return divided(above, below * scale)
        steps = (2 * (above - origin * below) + step * below) // (2 * step * below)
        return divided(origin + steps * step, scale)


def exact(number: float) -> Decimal:
    """Give the decimal number that people read for a double."""
    return Decimal(repr(number))


def digits_of(number: Decimal) -> int:
    """Count the digits after the point."""
    exponent = number.normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def whole(number: Decimal, digits: int) -> int:
    """Give a number in whole units of 10 ** -digits."""
    return int(number.scaleb(digits))


def digits_of_text(number: str) -> int:
    """Count the digits after the point in a number's text."""
    if "e" in number:
        return digits_of(Decimal(number))
    return 0 if number.endswith(".0") else len(number) - 1 - number.index(".")


def whole_of_text(number: str, digits: int) -> int:
    """Give a number's text in whole units of 10 ** -digits."""
    if "e" in number:
        return whole(Decimal(number), digits)
    before, after = number.split(".")
    return int(before + after[:digits].ljust(digits, "0"))


def wholes(numbers: Iterable[int]) -> NDArray[Any]:
    """Give whole numbers as an array (n,) of int64, or of Python's own where doubles do not hold all of them."""
    listed = list(numbers)
    small = all(-EXACT_BELOW < n < EXACT_BELOW for n in listed)
    return np.array(listed, np.int64 if small else object)


def divided(above: NDArray[Any], below: NDArray[Any] | int) -> NDArray[np.float64]:
    """Give the doubles nearest to above / below, inf beyond them. Shapes: (n,) whole numbers -> (n,) float64."""
    if above.dtype != object and (not isinstance(below, int) or below < EXACT_BELOW):
        quotient: NDArray[np.float64] = above / below  # of two that doubles hold: rounded once
        return quotient
    parts = repeat(below) if isinstance(below, int) else below
    return np.array([_quotient(int(a), int(b)) for a, b in zip(above, parts, strict=False)], np.float64)


def _quotient(above: int, below: int) -> float:
    try:
        return above / below
    except OverflowError:
        return np.inf if (above > 0) == (below > 0) else -np.inf
