"""Hypothesis strategies that several rooms' tests draw from."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from stream.recourse.rules.feature_rule import FeatureRule, Mutability, ReasonTexts

STEPS = [0.01, 0.05, 0.1, 0.25, 0.3, 0.5, 1.0, 2.0, 5.0]
SENTINELS = [-9.0, -8.0, -7.0, -6.0, 7.0, 8.0, 9.0, 0.0]


def halves(low: int, high: int) -> st.SearchStrategy[float]:
    """Multiples of a half, so that values, thresholds, bounds and steps meet each other often."""
    return st.integers(2 * low, 2 * high).map(lambda k: k / 2)


@st.composite
def feature_rules(draw: st.DrawFn, *, name: str = "f", stepped: bool | None = None) -> FeatureRule:
    """The rule of a number or an integer; `stepped` None leaves open whether it has a step."""
    with_step = draw(st.booleans()) if stepped is None else stepped
    whole = with_step and draw(st.booleans())
    bounds = st.integers(-12, 12).map(float) if whole else halves(-12, 12) | st.sampled_from([0.29, -0.1])
    low, high = sorted([draw(bounds), draw(bounds)])
    step = draw(st.sampled_from([s for s in STEPS if s.is_integer() or not whole])) if with_step else None
    return FeatureRule(
        name=name,
        type="integer" if whole else "number",
        mutability=draw(st.sampled_from(list(Mutability))),
        min=low if draw(st.booleans()) else -math.inf,
        max=high if draw(st.booleans()) else math.inf,
        step=step,
        no_record=tuple(draw(st.lists(st.sampled_from(SENTINELS), max_size=5, unique=True))),
        label=name,
        reason=ReasonTexts(code=name, too_low="too low", too_high="too high", missing="missing"),
    )


# JSON values as RFC 8785 has them: finite doubles, integers within 2^53, any text but half of a surrogate pair.
json_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
json_numbers = (
    st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.sampled_from(
        [-0.0, 1e-7, 1e-6, 9.999999e-6, 1e-5, 1e21, 1e20, 2.0**52, 2.0**53, 5e-324, 0.1, 1e15, 1e16, 1e17]
    )
    | st.integers(-324, 308).map(lambda e: float(f"1e{e}"))
)
json_values = st.recursive(
    st.none() | st.booleans() | json_numbers | json_texts,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(json_numbers, max_size=5)
        | st.lists(json_texts, max_size=5)
        | st.dictionaries(json_texts, inner, max_size=5)
        | st.dictionaries(st.text("aZ0_\ue000\U00010000é", max_size=3), inner, max_size=5)
    ),
    max_leaves=20,
)
