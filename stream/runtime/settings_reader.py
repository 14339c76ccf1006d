"""Settings that describe themselves: a dataclass's annotated fields, read from `COACH_*` variables and flags.

This is the only module that reads the environment. Each part of the house has a dataclass of its own (the service's
`Settings`, the notifier's, ...); a field's variable is `COACH_` and its name in capitals. The names of a part begin with
the part's own word, so that a slip in one part's variable is told by that part alone.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, fields
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal, Protocol, TypeVar, get_args, get_type_hints

from stream.bundle.uris import MASK, without_secrets
from stream.errors import ConfigurationError
from stream.runtime.start_at import StartAt, read_start_at

PREFIX: Final = "COACH_"
PARTS: Final = ("NOTIFY_", "SINK_", "REPLAY_")  # whose variables the service's own settings leave alone
# How Kubernetes tells a pod of the services beside it: one named coach-redis gives COACH_REDIS_PORT=tcp://… and others.
OF_KUBERNETES: Final = re.compile(r".*(_SERVICE_(HOST|PORT)|_PORT_\d+_(TCP|UDP|SCTP)).*|.*_PORT=(tcp|udp|sctp)://.*")
MISSPELT_FROM: Final = 0.85  # share of letters in common, from which on a name is taken for a slip


@dataclass(frozen=True, slots=True)
class About:
    """What a setting means, and what it may be: numbers from `low` to `high`; a text must pass `check`.

    A `secret` is never shown. An `address` may hold secrets: shown without them, and not at all when it is refused.
    """

    doc: str
    low: float = 0
    high: float = 0
    secret: bool = False
    address: bool = False
    check: Callable[[str], None] | None = None


class AnySettings(Protocol):
    """A dataclass whose every field is `Annotated[type, About(...)]` with a default."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


SomeSettings = TypeVar("SomeSettings", bound=AnySettings)


def read_settings_class(
    kind: type[SomeSettings],
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] = MappingProxyType({}),
    *,
    part: str = "",
) -> tuple[SomeSettings, list[str]]:
    """Read one part's settings: a flag that is not None wins over its `COACH_*` variable, which wins over the default.

    An empty variable counts as not set. Returns the settings and what is wrong with what was given, a text each.
    """
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    wrong = _misspelt(kind, environment, part)
    for name, (its_kind, about) in settings_of(kind).items():
        given = flags.get(name)
        if given is None:
            given = environment.get(PREFIX + name.upper()) or None
        if given is None:
            continue
        try:
            values[name] = _read(its_kind, about, str(given))
        except ValueError as reason:
            private = about.secret or about.address
            wrong.append(f"{PREFIX}{name.upper()}={MASK if private else repr(without_secrets(str(given)))}: {reason}")
    return kind(**values), wrong


def refuse(wrong: list[str]) -> None:
    """Raise ConfigurationError if anything is wrong: it names every wrong setting, the fault, and what it takes."""
    if wrong:
        raise ConfigurationError("; ".join(wrong))


def masked(settings: AnySettings) -> dict[str, str]:
    """The settings as `COACH_NAME: value`, without secrets, those within URLs too."""
    shown = {}
    for name, (_, about) in settings_of(type(settings)).items():
        value = getattr(settings, name)
        text = "" if value is None else str(value)
        if about.secret and text:
            text = MASK
        shown[PREFIX + name.upper()] = without_secrets(text) if about.address else text
    return shown


def documentation(kind: type[AnySettings]) -> list[tuple[str, str, str]]:
    """Each setting as (variable, default, meaning), in order."""
    defaults = masked(kind())
    meanings = {PREFIX + name.upper(): about.doc for name, (_, about) in settings_of(kind).items()}
    return [(variable, defaults[variable], meaning) for variable, meaning in meanings.items()]


@cache
def settings_of(kind: type[AnySettings]) -> dict[str, tuple[Any, About]]:
    """Each setting's type and description, in order."""
    hints = get_type_hints(kind, include_extras=True)
    return {one.name: get_args(hints[one.name]) for one in fields(kind)}


def _misspelt(kind: type[AnySettings], environment: Mapping[str, str], part: str) -> list[str]:
    """Variables of this part whose names are no setting's, and nearly one."""
    known = [name.upper() for name in settings_of(kind)]
    wrong = []
    for variable, value in environment.items():
        name = variable.removeprefix(PREFIX)
        ours = name.startswith(part) if part else not name.startswith(PARTS)
        if name == variable or not ours or not value or name in known or OF_KUBERNETES.fullmatch(f"{name}={value}"):
            continue
        meant = difflib.get_close_matches(name, known, n=1, cutoff=MISSPELT_FROM)
        wrong += [f"{variable}: there is no such setting; did you mean {PREFIX}{one}?" for one in meant]
    return wrong


def _read(kind: Any, about: About, text: str) -> object:  # noqa: ANN401 - a type of any form
    if getattr(kind, "__origin__", None) is Literal:
        return _choice(text, get_args(kind))
    if kind in (int, float):
        return _number(text, kind, about)
    if kind is Path:
        return Path(text)
    if StartAt in get_args(kind):
        return read_start_at(text)
    if about.check is not None:
        about.check(text)
    return text


def _choice(text: str, words: tuple[str, ...]) -> str:
    for word in words:
        if text.lower() == word.lower():
            return word
    message = f"must be one of {', '.join(words)}"
    raise ValueError(message)


def _number(text: str, kind: type[float], about: About) -> float:
    wanted = f"must be a {'whole ' if issubclass(kind, int) else ''}number from {about.low:.16g} to {about.high:.16g}"
    try:
        number = kind(text)
    except ValueError:
        raise ValueError(wanted) from None
    if not about.low <= number <= about.high:  # NaN fails this too
        raise ValueError(wanted)
    return number
