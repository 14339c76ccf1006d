from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stream.errors import ConfigurationError, DiskUnavailable
from stream.notify.notices.notice import NoticeStatus, answer_sha256, notice, notice_id
from stream.notify.notices.notice_index import NoticeIndex
from tests.notify.answers import NOW_MS, different, recommendations
from tests.service.room import REPOSITORY

ONE = recommendations(1)[0]
ID = notice_id("d-0", "adverse_action")


def record_of(status: NoticeStatus, recommendation: Any = ONE) -> dict[str, Any]:
    return dict(notice(recommendation, status=status, now_ms=NOW_MS))


def test_an_index_knows_what_the_topic_says(tmp_path: Path) -> None:
    """Given notices in the order of the topic, when taken up, then what is done stays done by its first answer, a begun one is known as begun, a failed one is open again."""
    index = NoticeIndex(tmp_path / "deep" / "state.sqlite", topic="c/notices")
    assert index.known(ID) is None
    index.add([record_of("sending")])
    known = index.known(ID)
    assert known is not None
    assert (known.done, known.begun_ms) == (False, NOW_MS)
    index.add([record_of("failed")])
    known = index.known(ID)
    assert known is not None
    assert (known.done, known.begun_ms) == (False, None)
    index.add([{**record_of("failed"), "duplicate_possible": True}])
    known = index.known(ID)
    assert known is not None
    assert (known.done, known.begun_ms) == (False, NOW_MS)
    index.add(
        [
            record_of("sending"),
            record_of("printed"),
            record_of("sending", different(ONE)),
            record_of("failed", different(ONE)),
        ],
        {0: 7},
    )
    known = index.known(ID)
    assert known is not None
    assert (known.done, known.answer) == (True, answer_sha256(ONE))
    other = answer_sha256(different(ONE))
    assert not index.is_withheld(ID, other)
    index.add([record_of("withheld_different_answer", different(ONE))])
    assert index.is_withheld(ID, other)
    assert (index.count, index.read_to()) == (1, {0: 7})
    index.close()


def test_an_index_survives_and_may_be_deleted(tmp_path: Path) -> None:
    """Given an index, when opened again, then it knows what it knew; deleted, of another topic, or broken, it begins anew."""
    path = tmp_path / "state.sqlite"

    def opened(topic: str = "c/notices") -> int:
        index = NoticeIndex(path, topic=topic)
        count = index.count
        index.add([record_of("sent")], {0: 1})
        index.close()
        return count

    assert opened() == 0
    assert opened() == 1
    assert opened("other/notices") == 0
    assert opened("other/notices") == 1
    path.unlink()
    assert opened() == 0
    path.write_bytes(b"no database, and long enough that it shows " * 100)
    assert opened() == 0


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    """Given an SQLite file that is no index, when opened, then it is refused and stays as it is."""
    path = tmp_path / "contacts.sqlite"
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("CREATE TABLE contacts (subject_ref)")
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="another program"):
        NoticeIndex(path, topic="t")
    assert path.read_bytes()[100:] == before[100:]  # the header counts who locked it


def test_two_notifiers_never_share_a_file(tmp_path: Path) -> None:
    """Given an index that another process holds, when opened, then it is refused with what to do; after that process was killed, it opens."""
    path = tmp_path / "state.sqlite"
    program = (
        "import pathlib, sys, time; from stream.notify.notices.notice_index import NoticeIndex;"
        "index = NoticeIndex(pathlib.Path(sys.argv[1]), topic='t'); print('held', flush=True); time.sleep(60)"
    )
    held = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    try:
        assert held.stdout is not None
        assert held.stdout.readline() == "held\n"
        with pytest.raises(ConfigurationError, match="another notifier on this host holds it"):
            NoticeIndex(path, topic="t")
    finally:
        held.kill()
        held.communicate()
    NoticeIndex(path, topic="t").close()


def test_an_index_that_cannot_be_made_is_a_disk_that_is_away(tmp_path: Path) -> None:
    """Given a file where a folder should be, when the index is opened, then the error names the setting."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(DiskUnavailable, match="COACH_NOTIFY_STATE"):
        NoticeIndex(tmp_path / "file" / "state.sqlite", topic="t")
