"""Checks of the fields of manifest.json, done once on reading, so that all other code can rely on its types."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any, Final, TypeAlias, get_args

from stream.forest.trees import Library

Check: TypeAlias = tuple[Callable[[Any], bool], str]  # whether a value passes, and what it must be
OWN_PATH: Final = "manifest.json"
WHOLE_BELOW: Final = 1 << 53  # JSON readers differ on integers from here on
PATH_BYTES_MAX: Final = 255  # of one name, on any file system
SHADOWS_MAX: Final = 64  # more would not sharpen the shares, and slow down search and opening
SHA256: Final = re.compile(r"[0-9a-f]{64}")


def wrong_field(manifest: Mapping[str, Any]) -> str | None:
    """The first bad or absent field and what it must be; None where all are good."""
    absent = sorted(FIELDS.keys() - manifest.keys())
    if absent:
        return f"lacks {', '.join(absent)}"
    return next((f"{name} must be {what}" for name, (good, what) in FIELDS.items() if not good(manifest[name])), None)


def _whole_from(least: int) -> Check:
    return (lambda value: type(value) is int and least <= value < WHOLE_BELOW), f"a whole number from {least} on"


def _one_of(*allowed: str | None) -> Check:
    return (lambda value: value in allowed), f"one of {', '.join('null' if w is None else w for w in allowed)}"


def _is_number(value: object) -> bool:
    if type(value) is int:
        return abs(value) < WHOLE_BELOW
    return type(value) is float and math.isfinite(value)


def _is_text(value: object) -> bool:
    """Whether it is a text that UTF-8 can encode: JSON can hold half of a surrogate pair."""
    return isinstance(value, str) and not any("\ud800" <= c <= "\udfff" for c in value)


def _is_name(value: object) -> bool:
    """Whether it can be part of a key on the models topic, as the build requires."""
    return isinstance(value, str) and bool(value) and value.isprintable() and "/" not in value


def _is_sha256(value: object) -> bool:
    return isinstance(value, str) and SHA256.fullmatch(value) is not None


def _is_object(value: object, **checks: Check) -> bool:
    """Whether it is an object of exactly these keys, each of which passes its check."""
    return isinstance(value, dict) and value.keys() == checks.keys() and all(checks[k][0](v) for k, v in value.items())


def _is_inside(path: str) -> bool:
    """Whether a path stays in the bundle's folder, on any system, and is in normal form."""
    if not path.isprintable() or "\\" in path or len(path.encode()) > PATH_BYTES_MAX:  # NUL is not printable
        return False
    parts = PurePosixPath(path)
    plain = bool(parts.parts) and str(parts) == path and not parts.is_absolute()
    return plain and ".." not in parts.parts and parts.parts[0] != OWN_PATH


def are_files(value: object) -> bool:
    """Whether it maps paths inside the bundle to digest and size."""
    if not isinstance(value, dict) or not all(map(_is_inside, value)):
        return False
    folders = {str(folder) for path in value for folder in PurePosixPath(path).parents}
    return folders.isdisjoint(value) and all(_is_object(one, **FILE_ENTRY) for one in value.values())


def _are_shadows(value: object) -> bool:
    if not isinstance(value, dict) or not _is_object(value, **SHADOWS_ENTRY):
        return False
    count = len(value["forests_sha256"])
    return 1 <= count <= SHADOWS_MAX and bool(value["searched"] + value["held_out"] == count)


NUMBER: Final[Check] = (_is_number, "a finite number")
TEXT: Final[Check] = (_is_text, "a text")
NAME: Final[Check] = (_is_name, "a printable text without a slash")
DIGEST: Final[Check] = (_is_sha256, "a SHA-256 in hex")
FILE_ENTRY: Final[Mapping[str, Check]] = {"sha256": DIGEST, "bytes": _whole_from(0)}
FEATURE_ENTRY: Final[Mapping[str, Check]] = {"name": TEXT, "type": _one_of("number", "integer", "category")}
SHADOWS_ENTRY: Final[Mapping[str, Check]] = {
    "trained": ((lambda value: type(value) is bool), "true or false"),
    "searched": _whole_from(0),
    "held_out": _whole_from(0),
    "forests_sha256": ((lambda value: isinstance(value, list) and all(map(_is_sha256, value))), "a list of SHA-256"),
}
FIELDS: Final[Mapping[str, Check]] = {
    "format_version": _whole_from(1),
    "engine_version": NAME,
    "model_id": NAME,
    "model_version": NAME,
    "revision": _whole_from(1),
    "library": _one_of(*get_args(Library)),
    "library_version": TEXT,
    "objective": TEXT,
    "link": TEXT,
    "approve": _one_of("above", "below"),
    "threshold": NUMBER,
    "threshold_scale": _one_of("probability", "margin"),
    "cutoff_margin": NUMBER,
    "trees": _one_of(None, "best", "all"),
    "trees_used": _whole_from(1),
    "missing": ((lambda value: value is None or _is_number(value)), "null or a finite number"),
    "forest_sha256": DIGEST,
    "features": (
        (lambda value: isinstance(value, list) and all(_is_object(one, **FEATURE_ENTRY) for one in value)),
        "a list of objects of name and type",
    ),
    "pool": (
        (lambda value: _is_object(value, rows=_whole_from(1), accepted=_whole_from(0), sha256=DIGEST)),
        "an object of rows, accepted and sha256",
    ),
    "probes": (
        (lambda value: _is_object(value, rows=_whole_from(1), library_version=TEXT)),
        "an object of rows and library_version",
    ),
    "shadows": (
        (lambda value: value is None or _are_shadows(value)),
        f"null or an object of trained, searched, held_out and as many forests_sha256, 1 to {SHADOWS_MAX}",
    ),
    "audit_trees": ((lambda value: type(value) is bool), "true or false"),
    "audit_record_bytes_max": _whole_from(1),
    "files": (
        are_files,
        "an object of paths, each with sha256 and bytes, of which none is outside the bundle or its manifest",
    ),
}
