"""Finds the model of an answer: by the digest that a stored answer names, or as a decision names it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stream.bundle.open import open_bundle
from stream.errors import BundleLost, BundleUnavailable, ConfigurationError, ModelNotPublished
from stream.events import Decision, ModelPublished
from stream.models.model_table import ModelTable
from stream.models.open_bundles import OpenBundles
from stream.recourse.model import PublishedModel

BUNDLES_GIVEN_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Published:
    """The publications, and the bundles opened from disk, Redis or URI."""

    table: ModelTable
    open_bundles: OpenBundles


class Models:
    """Finds models among the bundles given by folder, then among those published, where Kafka is in use."""

    def __init__(self, given: Sequence[PublishedModel], published: Callable[[], Published] | None) -> None:
        """`published` is called once, when a bundle is needed that was not given; None without Kafka."""
        self.given = tuple(given)
        self._ask_published = published
        self._known: Published | None = None
        self._by_digest = {model.identity["bundle_sha256"]: model for model in given}

    def by_digest(self, bundle_sha256: str) -> PublishedModel:
        """Return the bundle that a stored answer names.

        Raises: ModelNotPublished when it was neither given nor published; DependencyError when it cannot be fetched now.
        """
        found = self._by_digest.get(bundle_sha256)
        if found is not None:
            return found
        known = self._published
        if known is not None:
            for publication in known.table.publications():
                if publication.published["bundle_sha256"] == bundle_sha256:
                    return self._open(known.open_bundles, publication.published)
        message = f"bundle {bundle_sha256[:12]} is {self._nowhere()}; give its folder with --bundle"
        raise ModelNotPublished(message)

    def of_decision(self, decision: Decision) -> PublishedModel:
        """Return the model that a decision names, in the revision effective at its event_time.

        Bundles given by folder have no effective time: of these, the lowest revision.
        Raises: as `by_digest`.
        """
        given = self._given(decision.model_id, decision.model_version)
        if given:
            return given[0]
        known = self._published
        if known is None or decision.event_time_ms is None:
            message = f"version {decision.model_version} of model {decision.model_id} is {self._nowhere()}; give its folder with --bundle"
            raise ModelNotPublished(message)
        found = known.table.resolve(decision.model_id, decision.model_version, decision.event_time_ms)
        return self._open(known.open_bundles, found.published)

    def of_version(self, model_id: str, model_version: str) -> PublishedModel:
        """Return the highest revision of a version, whenever it is effective. Raises: as `by_digest`."""
        given = self._given(model_id, model_version)
        if given:
            return given[-1]
        known = self._published
        if known is not None:
            wanted = [
                one.published
                for one in known.table.publications()
                if (one.published["model_id"], one.published["model_version"]) == (model_id, model_version)
            ]
            if wanted:
                return self._open(known.open_bundles, max(wanted, key=lambda one: one["revision"]))
        message = f"version {model_version} of model {model_id} is {self._nowhere()}; publish it or give its folder with --bundle"
        raise ModelNotPublished(message)

    def versions(self) -> set[str]:
        """All versions given or published, of any model. Raises: DependencyError."""
        given = {model.identity["model_version"] for model in self.given}
        known = self._published
        return (
            given if known is None else given | {one.published["model_version"] for one in known.table.publications()}
        )

    @property
    def _published(self) -> Published | None:
        if self._known is None and self._ask_published is not None:
            self._known = self._ask_published()
        return self._known

    def _given(self, model_id: str, model_version: str) -> list[PublishedModel]:
        wanted = (model_id, model_version)
        found = [one for one in self.given if (one.identity["model_id"], one.identity["model_version"]) == wanted]
        return sorted(found, key=lambda one: one.identity["revision"])

    @staticmethod
    def _open(open_bundles: OpenBundles, published: ModelPublished) -> PublishedModel:
        try:
            return open_bundles.model(published)
        except (
            BundleLost
        ) as lost:  # for a worker the decision waits; a replay as a whole does, or it would end otherwise
            message = f"{lost}; then start this run again with the same --run-id"
            raise BundleUnavailable(message) from lost

    def _nowhere(self) -> str:
        text = "neither given with --bundle nor on the models topic"
        return text if self._ask_published is not None else "not given with --bundle"


def open_given(folders: Sequence[Path]) -> list[PublishedModel]:
    """Open the bundles given by folder; one given twice is kept once.

    Raises: ConfigurationError, BundleUnavailable, CorruptionError, MachineMismatch, as `open_bundle` does.
    """
    if len(folders) > BUNDLES_GIVEN_MAX:
        message = f"--bundle: {len(folders)} bundles are given; at most {BUNDLES_GIVEN_MAX} are kept open"
        raise ConfigurationError(message)
    opened = [open_bundle(folder) for folder in folders]
    return list({model.identity["bundle_sha256"]: model for model in opened}.values())
