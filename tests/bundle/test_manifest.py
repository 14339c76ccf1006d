"""Manifests whose digests fit and whose fields do not: each is refused by name, and none ends in a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream.bundle.build import BuiltBundle
from stream.bundle.manifest import FORMAT_VERSION, MANIFEST, Manifest, decode_manifest, digest_of_file
from stream.bundle.manifest_fields import SHADOWS_MAX
from stream.bundle.open import open_bundle
from stream.errors import ConfigurationError, CorruptionError
from tests.bundle.inputs import inputs

Json = Any
OTHER: list[Any] = [
    None,
    [],
    {},
    "",
    "x",
    "a\ud800",
    ["a"],
    {"a": 1},
    True,
    -1,
    0.5,
    float("inf"),
    float("nan"),
    1 << 53,
]
GOOD: dict[str, list[Any]] = {  # what of OTHER a field may be as far as its type goes
    "engine_version": ["x"], "model_id": ["x"], "model_version": ["x"], "library_version": ["", "x"],
    "objective": ["", "x"], "link": ["", "x"], "threshold": [-1, 0.5], "cutoff_margin": [-1, 0.5],
    "missing": [None, -1, 0.5], "trees": [None], "features": [[]], "files": [{}], "audit_trees": [True],
    "shadows": [None],
}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> BuiltBundle:
    return inputs(tmp_path_factory.mktemp("whole")).build()


@pytest.fixture
def built(tmp_path: Path) -> BuiltBundle:
    return inputs(tmp_path).build()


def decoded(manifest: Json) -> Manifest:
    return decode_manifest(json.dumps(manifest).encode(), "here")


@pytest.mark.parametrize("field", sorted(Manifest.__annotations__))
def test_a_field_of_another_type_is_named(whole: BuiltBundle, field: str) -> None:
    """Given any other JSON value for one field, decoding names that field and says what to do, and with its own value all is as it was."""
    assert decoded(whole.manifest) == whole.manifest
    for value in OTHER:
        changed: Json = whole.manifest | {field: value}
        if any(type(value) is type(good) and value == good for good in GOOD.get(field, [])):
            assert decoded(changed) == changed
        elif field == "format_version" and type(value) is int:
            with pytest.raises(ConfigurationError, match="bundle format"):
                decoded(changed)
        else:
            with pytest.raises(CorruptionError, match=rf"{MANIFEST} {field} must be .*build or fetch the bundle again"):
                decoded(changed)


@pytest.mark.parametrize(
    ("field", "inner", "value"),
    [
        ("pool", "rows", 0), ("pool", "accepted", -1), ("pool", "sha256", "x"), ("probes", "rows", True),
        ("probes", "library_version", None), ("files", "model.json", {}), ("files", "model.json", None),
        ("files", "model.json", {"sha256": "0" * 64, "bytes": 1.5}), ("files", "model.json", {"sha256": 1, "bytes": 1}),
    ],
)  # fmt: skip
def test_what_lies_in_an_object_is_checked_too(whole: BuiltBundle, field: str, inner: str, value: Any) -> None:
    """Given an object of the manifest with a wrong value, with one too many or one too few, decoding names the object."""
    entry: Json = dict(whole.manifest[field])  # type: ignore[literal-required]
    for changed in (entry | {inner: value}, *([] if field == "files" else [{}, entry | {"more": 1}])):
        with pytest.raises(CorruptionError, match=f"{field} must be an object"):
            decoded(whole.manifest | {field: changed})


ENTRY: dict[str, Any] = {"trained": True, "searched": 1, "held_out": 1, "forests_sha256": ["0" * 64, "1" * 64]}
MANY: dict[str, Any] = {
    "trained": False,
    "searched": SHADOWS_MAX,
    "held_out": 0,
    "forests_sha256": ["0" * 64] * SHADOWS_MAX,
}


def test_shadows_are_counted_and_named(whole: BuiltBundle) -> None:
    """Given what a manifest may say of shadows, decoding takes it; given other counts than digests, none, too many, or another type of one, it names the field."""
    for good in (ENTRY, MANY):
        assert decoded(whole.manifest | {"shadows": good})["shadows"] == good
    for change in (
        {"trained": 1}, {"searched": 0}, {"searched": True}, {"held_out": -1, "searched": 3}, {"forests_sha256": ["0" * 64]},
        {"forests_sha256": ["0" * 64, "x"]}, {"forests_sha256": "0" * 64}, {"more": 1},
        {"searched": 0, "held_out": 0, "forests_sha256": []},
        {"searched": SHADOWS_MAX, "forests_sha256": ["0" * 64] * (SHADOWS_MAX + 1)},
    ):  # fmt: skip
        with pytest.raises(
            CorruptionError, match=rf"{MANIFEST} shadows must be null or an object of trained, .* 1 to 64"
        ):
            decoded(whole.manifest | {"shadows": ENTRY | change})


@pytest.mark.parametrize(
    "path",
    [
        "../secret", "/etc/passwd", MANIFEST, f"./{MANIFEST}", f"{MANIFEST}/x", "", ".", "a/../b", "a//b", "./model.json",
        "a\0b", "a\ud800b", "a\nb", "..\\secret", "a" * 256, "model.json/inner", "probes",
    ],
)  # fmt: skip
def test_a_path_that_is_none_of_a_bundle_is_refused(whole: BuiltBundle, path: str) -> None:
    """Given a path out of the folder, spelt otherwise than plainly, that no disk takes, or that is file and folder at once, decoding refuses it."""
    files = whole.manifest["files"]
    with pytest.raises(CorruptionError, match="outside the bundle"):
        decoded(whole.manifest | {"files": files | {path: files["model.json"]}})


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b'{"a":' * 100_000, b'{"format_version":' + b"1" * 5_000 + b"}", b"\0", b"\xff", b'"x"']
)
def test_bytes_that_are_no_manifest_are_refused(content: bytes) -> None:
    """Given JSON nested without end, a number without end, or no JSON at all, decoding says that it is no manifest."""
    with pytest.raises(CorruptionError, match="is not the manifest of a bundle"):
        decode_manifest(content, "here")


def test_what_this_code_does_not_know_is_left_out(whole: BuiltBundle) -> None:
    """Given a field of a later coach in the same format, decoding gives what it knows."""
    assert decoded(whole.manifest | {"later": [1]}) == whole.manifest
    assert whole.manifest["format_version"] == FORMAT_VERSION


def change(built: BuiltBundle, **changes: Any) -> None:
    """Change fields of the manifest on disk, with its digests mended; `pool` and `probes` in part."""
    manifest: Json = json.loads((built.folder / MANIFEST).read_text())
    for field, value in changes.items():
        manifest[field] = manifest[field] | value if isinstance(value, dict) else value
    for path in manifest["files"]:
        manifest["files"][path] = digest_of_file(built.folder / path)
    (built.folder / MANIFEST).write_text(json.dumps(manifest))


CLAIMS: dict[str, Any] = {
    "library": "lightgbm", "library_version": "0", "objective": "reg:gamma", "link": "identity", "approve": "below",
    "cutoff_margin": 0.25, "trees_used": 99, "features": [], "pool.rows": 7, "pool.accepted": 7, "probes.rows": 7,
    "missing": -1.0, "threshold": 0.25,
}  # fmt: skip


@pytest.mark.parametrize("field", CLAIMS)
def test_a_claim_that_the_files_refute_is_named(built: BuiltBundle, field: str) -> None:
    """Given a manifest that says of the bundle what its files do not, opening refuses it and names the field."""
    outer, _, inner = field.partition(".")
    change(built, **{outer: {inner: CLAIMS[field]} if inner else CLAIMS[field]})
    # Another sentinel makes another forest, and another threshold has another cutoff.
    named = {"missing": "reads another forest", "threshold": "cutoff_margin"}.get(field, field)
    with pytest.raises(Exception, match=named) as refused:
        open_bundle(built.folder)
    assert type(refused.value).__name__ == ("MachineMismatch" if field == "missing" else "CorruptionError")


def test_features_as_they_are_in_the_file(built: BuiltBundle) -> None:
    """Given a manifest with another name or type for one feature, opening refuses it."""
    features = built.manifest["features"]
    for other in ({"name": "other", "type": "number"}, {"name": features[0]["name"], "type": "category"}):
        change(built, features=[other, *features[1:]])
        with pytest.raises(CorruptionError, match="features is not what follows"):
            open_bundle(built.folder)


def test_a_threshold_that_decides_nothing_is_refused(built: BuiltBundle) -> None:
    """Given a threshold on the probability scale beyond 1, opening refuses the bundle, not each decision."""
    change(built, threshold=1.5)
    with pytest.raises(CorruptionError, match="a threshold that decides nothing"):
        open_bundle(built.folder)


def test_a_bundle_of_another_engine_opens(built: BuiltBundle) -> None:
    """Given a bundle that another engine version built, opening takes it: it holds inputs, and no answers."""
    change(built, engine_version="0")
    assert len(open_bundle(built.folder).matrix) == built.manifest["pool"]["rows"]


def bytes_that_are_no_text(built: BuiltBundle, name: str) -> None:
    (built.folder / name).write_bytes(b"\xff")
    change(built)


def not_named(built: BuiltBundle, name: str) -> None:
    manifest: Json = json.loads((built.folder / MANIFEST).read_text())
    del manifest["files"][name]
    (built.folder / MANIFEST).write_text(json.dumps(manifest))


@pytest.mark.parametrize("name", ["policy.toml", "features.toml"])
@pytest.mark.parametrize(("spoil", "named"), [(bytes_that_are_no_text, "UTF-8"), (not_named, "names no")])
def test_a_table_that_is_no_text_is_named(
    built: BuiltBundle, name: str, spoil: Callable[[BuiltBundle, str], None], named: str
) -> None:
    """Given policy.toml or features.toml that is not UTF-8, or that the manifest leaves out, opening names it, checked or not."""
    spoil(built, name)
    for verify in (True, False):
        with pytest.raises(CorruptionError, match=named) as refused:
            open_bundle(built.folder, verify=verify)
        assert name in str(refused.value)


def test_two_model_files_are_refused(built: BuiltBundle) -> None:
    """Given a manifest that names a second model file, opening refuses to choose."""
    (built.folder / "model.ubj").write_bytes((built.folder / "model.json").read_bytes())
    change(built, files={"model.ubj": {}})
    with pytest.raises(CorruptionError, match="several model files"):
        open_bundle(built.folder)
