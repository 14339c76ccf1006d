"""A toy of each kind, added to a copy of the package by the steps of docs/extending.md, and what is asked of it then."""

from __future__ import annotations

from typing import Final

from tests.house.extended_copy import ExtendedCopy

LOFT: Final = '''
"""Letters by pigeon: a file in the loft that the recipient's address names."""

from __future__ import annotations

from pathlib import Path

from stream.notify.deadlines import Deadlines
from stream.notify.settings import NotifySettings
from stream.notify.transports.transport import AddressRefused, Package, Transport


class Loft(Transport):
    """Knows the lofts below one folder."""

    def __init__(self, settings: NotifySettings, _deadlines: Deadlines) -> None:
        self._lofts = Path(settings.notify_lofts)

    def send(self, package: Package) -> str:
        """See `Transport`."""
        loft = self._lofts / package.contact.address
        if not loft.is_dir():
            raise AddressRefused("no such loft")
        (loft / package.notice_id).write_text(package.letter.text, "utf-8")
        return "landed"
'''
LETTERS_SENT: Final = """
import json
from pathlib import Path

from stream.notify.contacts.contact import read_contact
from stream.notify.deadlines import Deadlines
from stream.notify.settings import read_notify_settings
from stream.notify.transports.table import open_transports
from tests.notify import world as worlds
from tests.notify.answers import recommendations

Path("lofts/north").mkdir(parents=True)
named = {"COACH_NOTIFY_CHANNELS": "pigeon,files", "COACH_NOTIFY_LOFTS": "lofts"}
settings = read_notify_settings(named)
opened = open_transports(settings, Deadlines())
fake = worlds.FakeTransport
worlds.FakeTransport = lambda channel, world: opened[channel] if channel == "pigeon" else fake(channel, world)
addresses = {"s-0": "north", "s-1": "gone", "s-2": ""}
here = worlds.World(
    folder=Path(),
    people={who: read_contact({"channel": "pigeon", "consent": "yes", "address": at}) for who, at in addresses.items()},
    settings={"notify_channels": settings.notify_channels, "notify_lofts": settings.notify_lofts},
)
here.put(*recommendations(3))
here.run()
[flown] = Path("lofts/north").iterdir()
sent = here.notices_with("sent", "printed")
print(json.dumps({
    "channels": settings.channels,
    "without its switch": read_notify_settings({"COACH_NOTIFY_CHANNELS": "pigeon"}).channels,
    "sent": [[one["channel"], one["channel_why"]] for one in sent],
    "landed": flown.name == sent[0]["notice_id"] and flown.read_text("utf-8") == sent[0]["text"],
}))
"""


def add_transport(copy: ExtendedCopy) -> None:
    """A channel of pigeons, which needs an address, and a folder of lofts to be on."""
    copy.replace(
        "stream/notify/settings.py",
        'Literal["email", "webhook", "files", "print"]',
        'Literal["email", "webhook", "files", "print", "pigeon"]',
    )
    copy.replace(
        "stream/notify/settings.py",
        '    "print": ChannelRules(',
        '    "pigeon": ChannelRules(switch="notify_lofts", needs_address=True, refused_why="no_loft"),\n'
        '    "print": ChannelRules(',
    )
    copy.replace(
        "stream/notify/settings.py",
        "    notify_webhook_url: Annotated[",
        '    notify_lofts: Annotated[str, About("folder of lofts; none: no pigeons", check=_folder)] = ""\n'
        "    notify_webhook_url: Annotated[",
    )
    copy.replace(
        "stream/notify/transports/table.py",
        "from stream.notify.transports.mail import Mail\n",
        "from stream.notify.transports.loft import Loft\nfrom stream.notify.transports.mail import Mail\n",
    )
    copy.replace(
        "stream/notify/transports/table.py",
        '    "print": TransportKind(',
        '    "pigeon": TransportKind(open=Loft),\n    "print": TransportKind(',
    )
    copy.add("stream/notify/transports/loft.py", LOFT)
    copy.replace(
        "schemas/notice.avsc",
        '"symbols": ["email", "webhook", "files", "print"]',
        '"symbols": ["email", "webhook", "files", "print", "pigeon"]',
    )


# The library itself: models of stumps, trained, saved, read and scored by code that the package does not know.
STUMPS: Final = """
import json
import math

import numpy as np

__version__ = "1.0"


def train(rows, labels, rounds, names):
    stumps, margins = [], np.zeros(len(rows))
    for k in range(rounds):
        feature = k % rows.shape[1]
        at = float(np.nanquantile(rows[:, feature], (1 + k // rows.shape[1]) / (2 + rounds // rows.shape[1])))
        left = rows[:, feature] <= at
        rest = labels - share(margins)
        low, high = (float(rest[side].mean()) if side.any() else 0.0 for side in (left, ~left))
        stumps.append({"feature": feature, "at": at, "low": low, "high": high})
        margins += np.where(left, low, high)
    return json.dumps({"names": names, "stumps": stumps})


def share(margins):
    return np.array([(1 + math.tanh(margin / 2)) / 2 for margin in margins.tolist()])


class Model:
    def __init__(self, text):
        saved = json.loads(text)
        self.names, self.stumps = saved["names"], saved["stumps"]

    def leaves(self, rows):
        return np.array([[0 if row[stump["feature"]] <= stump["at"] else 1 for stump in self.stumps] for row in rows])

    def margins(self, rows, first=0, last=None):
        margins = np.zeros(len(rows))
        for stump in self.stumps[first:last]:
            margins += np.where(rows[:, stump["feature"]] <= stump["at"], stump["low"], stump["high"])
        return margins
"""
READER: Final = '''
"""Models of the toy library: their files, and their link."""

from functools import cache

import numpy as np
import stumps

from stream.forest.cutoffs import Cutoffs
from stream.forest.trees import Kind, SavedNode, build_forest


def read_stumps(content, name, *, trees, missing):
    model = stumps.Model(content.decode())
    nodes = [
        (
            SavedNode(number=0, feature=stump["feature"], value=stump["at"], left=1, right=2),
            SavedNode(number=0, value=stump["low"]),
            SavedNode(number=1, value=stump["high"]),
        )
        for stump in model.stumps
    ]
    kind = Kind(
        library="stumps",
        library_version=stumps.__version__,
        objective="binary",
        link_line="binary",
        features=tuple(model.names),
        is_category=(False,) * len(model.names),
        words=(None,) * len(model.names),
        base_margin=0.0,
    )
    return build_forest(nodes, kind)


class StumpsLink:
    name = "logistic"

    def __init__(self):
        self.cutoff = Cutoffs(self.probabilities, np.float64).find

    def probabilities(self, margins):
        return stumps.share(margins)


stumps_link = cache(StumpsLink)
'''
OWNER: Final = '''
class StumpsOwner:
    """The toy library itself."""

    @staticmethod
    def version():
        return stumps.__version__

    def __init__(self, forest, model):
        self._model = stumps.Model(model.decode())

    def predict(self, rows):
        margins = self._model.margins(rows)
        return OwnerPredictions(self._model.leaves(rows), margins, stumps.share(margins))

    def predict_table(self, rows, integers=()):
        return self.predict(rows)

    def tree_margins(self, tree, rows):
        return self._model.margins(rows, tree, tree + 1)

    def in_place(self, rows):
        return None


OWNERS'''
BUILD_AND_ANSWER: Final = """
import json
from pathlib import Path

import numpy as np
import stumps

from stream.audit.verify.body import verify
from stream.bundle.build import build_bundle
from stream.bundle.open import open_bundle
from stream.recourse.answer import answer_if_declined
from tests.recourse.lenders import FEATURES, applicants, lender

pool, good = applicants(0, 240)
pool = np.nan_to_num(pool)
text = stumps.train(pool, good, 27, list(FEATURES))
Path("model.stumps").write_text(text)
Path("train.json").write_text(json.dumps({"params": {}, "rounds": 27}))
Path("features.toml").write_text("\\n".join(f'[{name}]\\ntype = "number"\\nmutability = "mutable"\\n' for name in FEATURES))
lines = [",".join((*FEATURES, "good"))]
lines += [",".join(map(repr, (*row, outcome))) for row, outcome in zip(pool.tolist(), good.tolist())]
Path("pool.csv").write_text("\\n".join(lines) + "\\n")
built = build_bundle(
    model_path=Path("model.stumps"), pool_path=Path("pool.csv"), features_path=Path("features.toml"), threshold=0.5,
    out_dir=Path("bundle"), target_column="good", shadows=3, train_params_path=Path("train.json"), model_id="consumer-loan",
    model_version="2026-10",
)
model = open_bundle(Path("bundle"))
margins = stumps.Model(text).margins(pool)
maker = lender("lightgbm")
answers = []
for row, margin in zip(pool[:60], margins):
    decision = maker.decide(row, features=dict(zip(FEATURES, row.tolist())), margin=float(margin))
    if (one := answer_if_declined(decision, model)) is not None:
        answers.append(one)
print(json.dumps({
    "compared": built.probe.rows,
    "declined": [len(answers), int((margins[:60] < 0).sum())],
    "answered": sum(bool(one.recommendation["tiers"]) for one in answers),
    "library": sorted({one.body["library"] for one in answers}),
    "faults": sorted({fault for one in answers for fault in verify(one.body, one.body_sha256, one.recommendation)}),
}))
"""


def add_library(copy: ExtendedCopy) -> None:
    """A library whose models are lists of stumps, in float64."""
    (copy.root / "stumps.py").write_text(STUMPS, encoding="utf-8")
    copy.replace("stream/forest/trees.py", 'Literal["xgboost", "lightgbm"]', 'Literal["xgboost", "lightgbm", "stumps"]')
    copy.replace(
        "stream/forest/trees.py",
        '    "lightgbm": (np.dtype(np.float64), "<="),\n',
        '    "lightgbm": (np.dtype(np.float64), "<="),\n    "stumps": (np.dtype(np.float64), "<="),\n',
    )
    copy.add(
        "stream/forest/stumps/__init__.py",
        '"""The toy library: its model file and its link. Not here: the forest."""\n',
    )
    copy.add("stream/forest/stumps/reader.py", READER)
    copy.replace(
        "stream/forest/libraries.py",
        "from stream.forest.trees import",
        "from stream.forest.stumps.reader import read_stumps, stumps_link\nfrom stream.forest.trees import",
    )
    copy.replace(
        "stream/forest/libraries.py",
        '    "lightgbm": ModelLibrary(',
        '    "stumps": ModelLibrary(\n'
        '        title="Stumps", suffixes=(".stumps",), trained_suffix=".stumps", takes_missing=False,\n'
        "        chooses_trees=False, read=read_stumps, link=lambda _forest: stumps_link(),\n"
        "    ),\n"
        '    "lightgbm": ModelLibrary(',
    )
    copy.replace("stream/bundle/gate/owner.py", "import xgboost as xgb\n", "import stumps\nimport xgboost as xgb\n")
    copy.replace("stream/bundle/gate/owner.py", "OWNERS: Final", f"{OWNER.removeprefix(chr(10))}: Final")
    copy.replace(
        "stream/bundle/gate/owner.py", '"lightgbm": LightgbmOwner}', '"lightgbm": LightgbmOwner, "stumps": StumpsOwner}'
    )
    copy.replace(
        "stream/bundle/shadows/training.py",
        '    "lightgbm": _train_lightgbm,\n',
        '    "lightgbm": _train_lightgbm,\n'
        '    "stumps": lambda forest, rows, labels, given, _seed: __import__("stumps").train(\n'
        "        rows, labels, given.rounds, list(forest.features)\n"
        "    ).encode(),\n",
    )
    copy.replace(
        "stream/audit/verify/splits.py", '"lightgbm": ("<=", "in")', '"lightgbm": ("<=", "in"), "stumps": ("<=", "in")'
    )


TIERS_ANSWERED: Final = """
import json

from stream.audit.verify.body import verify
from stream.notify.letters.contract import check_contract
from stream.wire.avro_records import decode, encode
from tests.recourse.lenders import lender

answers = lender("xgboost").answers(20)
recommended = [one.recommendation for one in answers if one.recommendation["tiers"]]
for one in recommended:
    check_contract(one)
print(json.dumps({
    "tiers": sorted({" ".join(tier["tier"] for tier in one["tiers"]) for one in recommended}),
    "faults": sorted({fault for one in answers for fault in verify(one.body, one.body_sha256, one.recommendation)}),
    "read again": all(decode(encode("Recommendation", one)) == ("Recommendation", one) for one in recommended),
}))
"""


def add_tier(copy: ExtendedCopy) -> None:
    """A tier beyond far, with far's target."""
    before, after = '["near", "mid", "far"]', '["near", "mid", "far", "beyond"]'
    copy.replace("stream/events.py", f"Literal{before}", f"Literal{after}")
    copy.replace(
        "stream/recourse/search/tier_targets.py",
        "        targets = (near, *search.mid_and_far(near, self._slack))\n",
        "        mid, far = search.mid_and_far(near, self._slack)\n        targets = (near, mid, far, far)\n",
    )
    for schema in ("audit_record", "recommendation"):
        copy.replace(f"schemas/{schema}.avsc", f'"symbols": {before}', f'"symbols": {after}')


APPEALS: Final = '''
"""Appeals of applicants, on a topic of their own."""

from __future__ import annotations

from typing import TypedDict

from stream.runtime.settings import Settings
from stream.wire.framing import Framing


class Appeal(TypedDict):
    """What an applicant wrote about a decision."""

    decision_id: str
    text: str


def appeal_record(appeal: Appeal, framing: Framing, settings: Settings) -> bytes:
    """The record of an appeal."""
    return framing.encode("Appeal", appeal, topic=settings.topic_appeals)
'''
APPEAL_SCHEMA: Final = """{
  "type": "record", "name": "Appeal", "namespace": "org.coach.stream", "doc": "An appeal.",
  "fields": [
    {"name": "decision_id", "type": "string", "doc": "The decision."},
    {"name": "text", "type": "string", "doc": "The words of the applicant."}
  ]
}
"""
APPEAL_READ: Final = """
import json

from stream.appeals import appeal_record
from stream.runtime.connections import framing_of
from stream.runtime.settings import read_settings
from stream.runtime.topic_specs import topic_specs

settings = read_settings({"COACH_TOPIC_APPEALS": "lender.appeals"})
framing = framing_of(settings)
record = appeal_record({"decision_id": "d-1", "text": "Look again."}, framing, settings)
name, read = framing.decode(record, topic=settings.topic_appeals)
print(json.dumps({"topics": [spec.name for spec in topic_specs(settings)], "record": name, "read": read}))
"""


def add_topic(copy: ExtendedCopy) -> None:
    """A topic of appeals."""
    copy.replace(
        "stream/runtime/settings.py",
        "    topic_notices: Annotated[",
        '    topic_appeals: Annotated[str, About("topic of appeals, out", check=topic_name)] = "appeals"\n'
        "    topic_notices: Annotated[",
    )
    copy.replace(
        "stream/runtime/topic_specs.py",
        "        plain(s.topic_notices,",
        '        plain(s.topic_appeals, "Appeal", s.decision_bytes_max, DEFAULT_RETENTION_MS),\n'
        "        plain(s.topic_notices,",
    )
    copy.replace("stream/wire/schema_files.py", '"DeadLetter", "Notice"]', '"DeadLetter", "Notice", "Appeal"]')
    copy.add("stream/appeals.py", APPEALS)
    copy.add("schemas/appeal.avsc", APPEAL_SCHEMA)
