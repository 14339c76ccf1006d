"""What a what-if changes: another model, threshold, features.toml or policy, and the decision as it would then be asked.

Other rules make another answer, so they make another identity: the digest of a model with rules of a what-if is that of
no bundle, and its revision is 0, which no published one has.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Final

from stream.canonical import sha256
from stream.errors import ConfigurationError, InvalidDecision, ModelNotPublished
from stream.events import BundleIdentity, Decision, ThresholdScale
from stream.recourse.model import PublishedModel, published_model
from stream.recourse.rules.features import FeatureRules, rules_for
from stream.recourse.rules.policy import Policy, read_policy
from stream.replay.judge.models import Models

REVISION: Final = 0  # published revisions begin at 1
CHANGED_MODELS_MAX: Final = 16
OF_THE_POOL: Final = ("type", "no_record", "categories")  # what the pool was encoded with when the bundle was built


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What changes; None: as before. `features` and `policy` are whole files."""

    model_version: str | None = None
    threshold: float | None = None
    threshold_scale: ThresholdScale | None = None
    features: bytes | None = None
    policy: bytes | None = None


class ChangedModels:
    """The model that a what-if asks, for each decision."""

    def __init__(self, models: Models, change: Change) -> None:
        """Of several bundles given by folder, each decision takes that of its own version, unless a version is named."""
        self._models = models
        self._change = change
        self._changed: OrderedDict[str, PublishedModel] = OrderedDict()

    def for_decision(self, decision: Decision) -> PublishedModel:
        """Return the model to ask about a decision.

        Raises: ModelNotPublished when there is none; ConfigurationError where the changed rules or threshold do not fit it;
        DependencyError.
        """
        base = self._base(decision)
        digest = base.identity["bundle_sha256"]
        found = self._changed.get(digest)
        if found is None:
            found = base
            if self._change.features is not None or self._change.policy is not None:
                found = with_rules(base, self._change.features, self._change.policy)
            self._check_threshold(found)
            self._changed[digest] = found
            while len(self._changed) > CHANGED_MODELS_MAX:
                self._changed.popitem(last=False)
        return found

    def _check_threshold(self, model: PublishedModel) -> None:
        threshold, scale = self._change.threshold, self._change.threshold_scale or model.threshold_scale
        if threshold is None:
            return
        try:
            model.link.cutoff(threshold, scale, model.policy.approve)
        except (InvalidDecision, ConfigurationError) as error:
            message = f"--threshold {threshold:g} on scale {scale}: {error}"
            raise ConfigurationError(message) from error

    def _base(self, decision: Decision) -> PublishedModel:
        version = self._change.model_version
        if version is not None:
            return self._models.of_version(decision.model_id, version)
        if not self._models.given:
            return self._models.of_decision(decision)
        if len(self._models.given) > 1:
            return self._models.of_version(decision.model_id, decision.model_version)
        [only] = self._models.given
        if only.identity["model_id"] != decision.model_id:
            message = f"the bundle is of model {only.identity['model_id']}, and the decision of another"
            raise ModelNotPublished(message)
        return only


def with_rules(model: PublishedModel, features: bytes | None, policy: bytes | None) -> PublishedModel:
    """Return a model with other rules, which answers as a bundle built with them would, under its own identity.

    Raises: ConfigurationError for a file that is not usable, or rules that the pool of a bundle is encoded with.
    """
    identity: BundleIdentity = model.identity.copy()
    rules, its_policy = model.rules, model.policy
    if features is not None:
        rules = rules_for(model.forest, _text(features, "--features"))
        _refuse_other_encoding(model.rules, rules)
        identity["features_sha256"] = hashlib.sha256(features).hexdigest()
    if policy is not None:
        its_policy = read_policy(_text(policy, "--policy"))
        _refuse_other_matrix(model.policy, its_policy)
        identity["policy_sha256"] = hashlib.sha256(policy).hexdigest()
    identity["revision"] = REVISION
    identity["bundle_sha256"] = sha256(
        {
            "what_if_of": model.identity["bundle_sha256"],
            "features_sha256": identity["features_sha256"],
            "policy_sha256": identity["policy_sha256"],
        }
    )
    return published_model(
        identity=identity,
        forest=model.forest,
        cells=model.cells,
        rules=rules,
        policy=its_policy,
        matrix=model.matrix,
        threshold=model.threshold,
        threshold_scale=model.threshold_scale,
        audit_trees=model.audit_trees,
        shadows=model.shadows,
    )


def asked_of(decision: Decision, model: PublishedModel, change: Change) -> tuple[Decision, int]:
    """Return the decision to ask another model, and how many of its features that model does not take.

    Margin, probability and threshold are what the deciding model gave or was held to, so they stand only where the same
    model is asked again.
    """
    same = is_same_model(decision, model)
    asked = replace(decision, model_version=model.identity["model_version"])
    left_out = 0
    if not same:
        names = set(model.forest.features)
        kept = {name: value for name, value in decision.features.items() if name in names}
        overrides = {name: label for name, label in decision.policy_overrides.items() if name in names}
        left_out = len(decision.features) - len(kept)
        asked = replace(
            asked,
            features=kept,
            policy_overrides=overrides,
            margin=None,
            probability=None,
            threshold=None,
            threshold_scale=None,
        )
    if change.threshold is not None:
        asked = replace(asked, threshold=change.threshold, threshold_scale=change.threshold_scale)
    return asked, left_out


def is_same_model(decision: Decision, model: PublishedModel) -> bool:
    """Whether a model is the one that decided: revisions of a version differ in their rules alone."""
    named = (decision.model_id, decision.model_version)
    return named == (model.identity["model_id"], model.identity["model_version"])


def _text(content: bytes, flag: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        message = f"{flag}: is not UTF-8 text"
        raise ConfigurationError(message) from error


def _refuse_other_encoding(before: FeatureRules, after: FeatureRules) -> None:
    for own, other in zip(before.rules, after.rules, strict=True):
        for key in OF_THE_POOL:
            if getattr(own, key) != getattr(other, key):
                message = (
                    f"--features: {own.name} has another `{key}` than the bundle, whose pool is encoded with it; build a "
                    "bundle with `coach bundle build` and replay with --bundle"
                )
                raise ConfigurationError(message)


def _refuse_other_matrix(before: Policy, after: Policy) -> None:
    # The pool is sorted by the side, told of by the key, and measured by the scale that the bundle was built with.
    for key in ("approve", "reference_key_id", "scale"):
        was, is_now = getattr(before, key), getattr(after, key)
        if was != is_now:
            message = (
                f'--policy: `{key}` is {is_now!r}, and the bundle was built with {was!r}; write `{key} = "{was}"` into the file, '
                "or build a bundle with `coach bundle build` and replay with --bundle"
            )
            raise ConfigurationError(message)
