from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import orjson

from stream.notify.contacts.contact import COLUMNS
from stream.notify.letters.template_rules import MANDATORY_BLOCKS
from stream.notify.letters.view import FIELDS, VARIABLES
from stream.notify.transports.webhook import signature
from tests.notify.answers import contacts_csv, recommendations
from tests.service.room import REPOSITORY

PAGE = (REPOSITORY / "docs" / "notify.md").read_text("utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    """Given the page's commands, when run one after the other in a folder with answers and contacts, then each ends well."""
    lines = [orjson.dumps({"decision_id": one["decision_id"], "recommendation": one}) for one in recommendations(5)]
    (tmp_path / "answers.jsonl").write_bytes(b"\n".join(lines))
    (tmp_path / "contacts.csv").write_text(contacts_csv(["s-1"]))
    script = "set -eu\n" + "\n".join(blocks("bash"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "preview").glob("d-*.html"))) == 5
    assert (tmp_path / "sample.html").exists()


def test_the_receivers_code_of_the_page_verifies() -> None:
    """Given the page's receiver, when it gets what we sign, then it believes it; a changed body, another key or an old one it does not."""
    [code] = blocks("python")
    found: dict[str, Any] = {}
    exec(compile(code, "docs/notify.md", "exec"), found)  # noqa: S102 - the page's own code
    now = str(int(time.time()))
    headers = {"Coach-Timestamp": now, "Coach-Signature": signature("k", now, b"body")}
    verify = found["is_from_coach"]
    assert verify(headers, b"body", "k")
    assert not verify(headers, b"other", "k")
    assert not verify(headers, b"body", "l")
    old = str(int(time.time()) - 3_600)
    assert not verify({"Coach-Timestamp": old, "Coach-Signature": signature("k", old, b"body")}, b"body", "k")


def test_the_page_names_all_that_templates_and_contacts_have() -> None:
    """Given the page, then it names each variable, field and block of templates and each column of contacts."""
    for name in (*VARIABLES, *FIELDS, *MANDATORY_BLOCKS, *COLUMNS):
        assert re.search(rf"\b{name}\b", PAGE), name
