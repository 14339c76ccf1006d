"""The error tree. Its branches say what the worker does next; its leaves say what happened.

A message names what happened, where, and what to do about it, and never a feature value or a secret.
"""

from __future__ import annotations

import traceback

NAME_CHARACTERS_MAX = 80
FOUND_SOMETHING_WRONG, WRONG_USAGE, DEPENDENCY_UNREACHABLE = 1, 2, 3  # exit codes


def shown(text: str, characters_max: int = NAME_CHARACTERS_MAX) -> str:
    """Give a text that others chose as a message may repeat it: in one line, bounded, what is not printable escaped."""
    cut = text[:characters_max]
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)
    return safe if len(text) <= characters_max else f"{safe}..."


def where_raised(fault: BaseException) -> str:
    """File, line and function where a fault was raised, without its text, which may hold a feature's value."""
    frames = traceback.extract_tb(fault.__traceback__)
    if not frames:
        return "no place"
    file = frames[-1].filename.rpartition("/")[2]
    return f"{file}:{frames[-1].lineno} in {frames[-1].name}"


class StreamError(Exception):
    """Root of the tree; caught only where a process or a command ends."""


class PoisonError(StreamError):
    """This one record can never succeed: dead-letter it with stage and reason, then ack.

    `stage` is where it failed (decode, validate, resolve, score, answer, encode, deliver, notify); `reason` is the
    class name, which dead letters and metrics carry.
    """

    stage = "answer"
    retryable = False

    @property
    def reason(self) -> str:
        """The typed reason that dead letters and metrics carry."""
        return type(self).__name__


def poison_kinds(error: type[PoisonError] = PoisonError) -> list[type[PoisonError]]:
    """`error` and all its kinds that are known to this process, for whoever counts them from 0 on."""
    return [error, *(kind for one in error.__subclasses__() for kind in poison_kinds(one))]


class MalformedRecord(PoisonError):
    """The bytes are neither a well-formed Avro record of a known schema nor a JSON object of the right shape."""

    stage = "decode"


class UnreadableRecords(PoisonError):
    """A batch of Kafka's log that no record can be read from; the dead letter holds the batch, its header included."""

    stage = "decode"


class UnknownSchema(PoisonError):
    """The frame names a schema that neither `schemas/` nor the registry holds, or one that ours cannot read."""

    stage = "decode"


class SchemaUnavailable(PoisonError):
    """The schema registry did not answer within the wait, and only it knows the schema that wrote the record."""

    stage = "decode"
    retryable = True


class InvalidDecision(PoisonError):
    """A field of the decision breaks its contract (missing, wrong type, not an allowed word)."""

    stage = "validate"


class UnknownOutcome(InvalidDecision):
    """`outcome` is neither approved nor declined."""


class MissingFeature(InvalidDecision):
    """A feature of the model is absent from the decision; null would have been a value, absence is not."""


class UnknownFeature(InvalidDecision):
    """The decision names a feature that the model does not have."""


class WrongFeatureType(InvalidDecision):
    """A feature holds a value of the wrong type (a word for a number, a number for a word)."""


class NonFiniteFeature(InvalidDecision):
    """A feature is inf or NaN; a known-missing value is null."""


class UnknownCategory(InvalidDecision):
    """A category that neither features.toml nor the model file lists for this feature: the model never saw it."""


class OverrideRefused(InvalidDecision):
    """A policy override names an unknown feature or label, or would loosen what features.toml forbids."""


class ModelNotPublished(PoisonError):
    """Nobody published the model version (or a revision effective at the event's time) within the wait."""

    stage = "resolve"
    retryable = True


class BundleLost(ModelNotPublished):
    """The bundle of a published model is neither in the cache nor at its URI: its decisions wait, the others go on."""


class BundleLoading(ModelNotPublished):
    """The bundle of a published model is being fetched or opened: its decisions wait, the others go on."""


class ClaimMismatch(PoisonError):
    """The margin or probability that the decider claims is not what the named model gives."""

    stage = "score"


class DecisionConflict(PoisonError):
    """A decision_id came again with other content within the stated window."""

    stage = "validate"


class RecordTooLarge(PoisonError):
    """An output record is larger than the topic takes."""

    stage = "encode"


class DeliveryRefused(PoisonError):
    """The broker refuses an output for good."""

    stage = "deliver"


class RecommendationRefused(PoisonError):
    """A recommendation breaks a rule of its contract, so that no true letter can be made of it."""

    stage = "notify"


class ContactRefused(PoisonError):
    """What the contact look-up says of this one applicant is unusable; it can be mended there."""

    stage = "notify"
    retryable = True


class LetterRefused(PoisonError):
    """This one letter cannot be made or is refused for good; with another template or receiver it may succeed."""

    stage = "notify"
    retryable = True


class NoticeGivenUp(PoisonError):
    """This one letter was refused for the time being, again and again, up to its bound."""

    stage = "notify"
    retryable = True


class UnexpectedFault(PoisonError):
    """A fault of this software met this record: the record waits as a dead letter, the ones behind it go on."""

    retryable = True


class DependencyError(StreamError):
    """Something that everything waits for is away: nothing is acked; retry within a named bound, then stop (exit 3)."""


class KafkaUnavailable(DependencyError):
    """No broker answers."""


class RedisUnavailable(DependencyError):
    """Redis does not answer."""


class RedisRefused(RedisUnavailable):
    """Redis answers that it will not: a key of another type, no permission, no memory. Waiting does not change that."""


class RegistryUnavailable(DependencyError):
    """The schema registry does not answer."""


class BundleUnavailable(DependencyError):
    """A bundle's files are neither in the cache nor at their URI."""


class ContactsUnavailable(DependencyError):
    """The contact look-up does not answer, or refuses every question."""


class MailUnavailable(DependencyError):
    """The mail server does not answer, or refuses us whatever the letter."""


class WebhookUnavailable(DependencyError):
    """The webhook's receiver does not answer, or refuses us whatever the letter."""


class DiskUnavailable(DependencyError):
    """A folder of this host cannot be written or read: it is full, gone or somebody else's."""


class ArchiveUnavailable(DependencyError):
    """The audit archive's store cannot be reached, read or written."""


class RecordsLost(StreamError):
    """Records were deleted from a topic before they were kept elsewhere: say which, and stop (exit 1)."""


class CorruptionError(StreamError):
    """Two of our own numbers disagree (a digest, an exact sum): stop and keep the evidence."""


class LeafOutOfRange(CorruptionError):
    """A leaf id does not name a leaf of its own tree."""


class ArchiveDamaged(CorruptionError):
    """A file of the audit archive is missing, or is not what the archive itself says of it."""


class ConfigurationError(StreamError):
    """A setting, file or flag is unusable: exit 2 with one line that names it."""


class ModelRefused(ConfigurationError):
    """The model file holds something we cannot reproduce exactly; the message says what and what to do."""


class ProbeMismatch(StreamError):
    """Our margins or leaves differ from the owner library's on a probe: the bundle is refused (exit 1)."""


class ClaimsDiffer(StreamError):
    """What the lender's own scorer gave for the pool is not what the model gives: the bundle is refused (exit 1)."""


class MachineMismatch(StreamError):
    """This machine computes something else for a bundle's probes than the builder's did: it answers nothing with it."""


def exit_code(error: BaseException | None) -> int:
    """What the process reports for an error: 2 the user's to mend, 3 a dependency's, 1 everything found wrong."""
    if isinstance(error, ConfigurationError):
        return WRONG_USAGE
    return DEPENDENCY_UNREACHABLE if isinstance(error, DependencyError) else FOUND_SOMETHING_WRONG
