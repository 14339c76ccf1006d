"""Every rival by the name that tables call it, each made from a setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from tests.evaluation.baselines.face import Face
from tests.evaluation.baselines.feature_tweaking import FeatureTweaking
from tests.evaluation.baselines.interface import Method, Setting
from tests.evaluation.baselines.lime import NAME as BY_LIME
from tests.evaluation.baselines.lime import greedy_by_lime
from tests.evaluation.baselines.nice import Nice
from tests.evaluation.baselines.shap import NAME as BY_SHAP
from tests.evaluation.baselines.shap import greedy_by_shap
from tests.evaluation.baselines.treecf_search import Treecf

EVERY: Final[Mapping[str, Callable[[Setting], Method]]] = MappingProxyType(
    {
        Nice.name: Nice,
        Face.name: Face,
        FeatureTweaking.name: FeatureTweaking,
        BY_SHAP: greedy_by_shap,
        BY_LIME: greedy_by_lime,
        "treecf fast": Treecf,
    }
)
