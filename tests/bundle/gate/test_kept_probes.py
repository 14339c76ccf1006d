from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream.bundle.build import BuiltBundle
from stream.bundle.gate.kept_probes import ARRAYS, PROBES, PROBES_KEPT_MAX, ProbeSampler, shares
from stream.bundle.gate.owner import OwnerPredictions
from stream.bundle.gate.probe_rows import ProbeBatch, ProbeKind
from stream.bundle.manifest import MANIFEST, digest_of_file, encode_manifest
from stream.bundle.open import open_bundle
from stream.errors import CorruptionError, MachineMismatch
from tests.bundle.inputs import ModelForm, inputs
from tests.forest.models import owner_of

FORMS: list[ModelForm] = ["json", "txt"]


def array(folder: Path, name: str) -> Any:
    return np.load(folder / PROBES / f"{name}.npy")


def put(folder: Path, name: str, changed: Any) -> None:
    """Put an array into a bundle, with its digests mended, as another machine would have built it."""
    path = f"{PROBES}/{name}.npy"
    np.save(folder / path, changed)
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"][path] = digest_of_file(folder / path)
    (folder / MANIFEST).write_bytes(encode_manifest(manifest))


def one_ulp(values: Any, place: int) -> Any:
    moved = values.copy()
    moved[place] = np.nextafter(moved[place], moved.dtype.type(np.inf))
    return moved


@pytest.mark.parametrize("form", FORMS)
def test_a_bundle_keeps_probes_of_every_kind_with_what_the_library_gives(tmp_path: Path, form: ModelForm) -> None:
    """Given a bundle, its probes hold rows of the pool and others, and margins and predictions are the library's bits."""
    given = inputs(tmp_path, form)
    built = given.build()
    rows = array(built.folder, "rows")
    assert len(rows) == built.manifest["probes"]["rows"] == PROBES_KEPT_MAX
    assert {row.tobytes() for row in given.rows} & {row.tobytes() for row in rows}
    owner = owner_of(given.booster, open_bundle(built.folder).forest)
    assert array(built.folder, "margins").tobytes() == owner.ask(rows, "margin").tobytes()
    assert array(built.folder, "predictions").tobytes() == owner.ask(rows, "probability").tobytes()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("name", "told"), [("margins", "another margin for 1 of 2048"), ("predictions", "another prediction for 1 of 2048")]
)
def test_a_machine_that_gives_another_number_refuses_the_bundle(
    tmp_path: Path, form: ModelForm, name: str, told: str
) -> None:
    """Given a bundle whose builder's library gave one probe another last bit, when opened, then the error names both sides and says what to do."""
    folder = inputs(tmp_path, form).build().folder
    put(folder, name, one_ulp(array(folder, name), 1000))
    with pytest.raises(MachineMismatch, match=told) as refusal:
        open_bundle(folder)
    for part in (
        "this machine (",
        "the one that built the bundle (",
        "build the bundle again on a machine like this one",
    ):
        assert part in str(refusal.value)


def test_a_machine_that_reaches_another_leaf_refuses_the_bundle(tmp_path: Path) -> None:
    """Given a bundle whose builder's library reached other leaves, when opened, then it is refused."""
    folder = inputs(tmp_path).build().folder
    put(folder, "leaves", array(folder, "leaves") ^ np.uint8(1))
    with pytest.raises(MachineMismatch, match="reaches another leaf than the one that built the bundle"):
        open_bundle(folder)


def test_a_model_file_that_reads_otherwise_here_refuses_the_bundle(tmp_path: Path) -> None:
    """Given a manifest of another forest over the same model file, when opened, then it is this machine that differs."""
    built = inputs(tmp_path).build()
    manifest: Any = built.manifest | {"forest_sha256": "0" * 64}
    (built.folder / MANIFEST).write_bytes(encode_manifest(manifest))
    with pytest.raises(MachineMismatch, match="reads another forest out of the model file"):
        open_bundle(built.folder)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> BuiltBundle:
    return inputs(tmp_path_factory.mktemp("kept")).build()


@pytest.mark.parametrize("name", ARRAYS)
def test_probes_that_do_not_fit_the_model_are_corrupt(built: BuiltBundle, name: str) -> None:
    """Given an array of the probes that is of another shape or type, when opened, then it is refused as damage."""
    whole = array(built.folder, name)
    for wrong in (whole[:-1], whole.astype(np.complex128), whole[:0]):
        put(built.folder, name, wrong)
        with pytest.raises(CorruptionError, match="the probes are not those of this model"):
            open_bundle(built.folder)
    put(built.folder, name, whole)
    open_bundle(built.folder)


def test_absent_probes_are_corrupt(built: BuiltBundle) -> None:
    """Given a manifest that names no margins of the probes, when opened, then it says which array is not there."""
    whole = (built.folder / MANIFEST).read_bytes()
    manifest = json.loads(whole)
    del manifest["files"][f"{PROBES}/margins.npy"]
    (built.folder / MANIFEST).write_bytes(encode_manifest(manifest))
    with pytest.raises(CorruptionError, match="lacks the probes' array 'margins'"):
        open_bundle(built.folder)
    (built.folder / MANIFEST).write_bytes(whole)


COUNTS: list[dict[ProbeKind, int]] = [
    {"pool": 100_000, "threshold": 9_000, "category": 0, "tripping": 68, "combination": 2_048},
    {"pool": 5, "threshold": 3, "category": 2, "tripping": 17, "combination": 0},
    {"pool": 1, "threshold": 10_000, "category": 10_000, "tripping": 10_000, "combination": 10_000},
]


@pytest.mark.parametrize("counts", COUNTS)
def test_each_kind_has_its_share(counts: dict[ProbeKind, int]) -> None:
    """Given rows of each kind, as many as there is room for are kept, and no kind has less than a larger share leaves it."""
    given = shares(counts, 2_048)
    assert sum(given.values()) == min(2_048, sum(counts.values()))
    assert all(given[kind] <= counts[kind] for kind in counts)
    cut = [given[kind] for kind in counts if given[kind] < counts[kind]]
    assert not cut or max(given.values()) - min(cut) <= len(cut)


def test_what_is_kept_is_spread_over_all_batches() -> None:
    """Given ten batches of a kind and room for twenty rows, then two of each batch are kept, in order."""
    sampler = ProbeSampler({"pool": 1_000}, 20)
    for start in range(0, 1_000, 100):
        numbers = np.arange(start, start + 100, dtype=np.float64)
        asked = ProbeBatch("pool", start, numbers[:, None], np.arange(100), lambda _row: ())
        sampler.add(asked, OwnerPredictions(numbers[:, None].astype(np.int32), numbers, -numbers))
    kept = sampler.finish()
    assert len(kept) == 20
    assert kept.rows[:, 0].tolist() == kept.margins.tolist() == (-kept.predictions).tolist() == [*range(0, 1_000, 50)]
