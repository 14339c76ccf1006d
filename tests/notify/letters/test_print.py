from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.notify.answers import recommendations, replaced
from tests.notify.letter_builder import letter_of

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-pdf-header-footer",
)  # fmt: skip

OF_THE_BROWSER: Final = re.compile(rb"google|gvt1|gstatic")  # what Chromium asks by itself, whatever page it shows


@pytest.fixture(scope="module", autouse=True)
def _chromium() -> None:
    """Without Chromium nothing here runs, and in CI that is a failure."""
    if CHROMIUM is None:
        if os.environ.get("CI") == "true":
            pytest.fail("Chromium is required here (CI), to print a letter with")
        pytest.skip("no Chromium here to print a letter with")


@contextmanager
def listening() -> Iterator[tuple[int, list[bytes]]]:
    """A proxy that answers nobody, and what it was asked."""
    asked: list[bytes] = []
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(1)
                try:
                    asked.append(connection.recv(200))
                except OSError:
                    asked.append(b"?")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server.getsockname()[1], asked
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(5)


def printed(letter: str, folder: Path) -> tuple[int, list[bytes]]:
    """Print a letter to PDF in a real browser: (its pages, what the letter asked the network for)."""
    page, pdf = folder / "letter.html", folder / "letter.pdf"
    page.write_text(letter, "utf-8")
    with listening() as (port, asked):
        proxy = [f"--proxy-server=127.0.0.1:{port}", "--proxy-bypass-list=<-loopback>"]
        subprocess.run(
            [
                str(CHROMIUM),
                *FLAGS,
                *proxy,
                f"--user-data-dir={folder / 'profile'}",
                f"--print-to-pdf={pdf}",
                page.as_uri(),
            ],
            check=True,
            capture_output=True,
            timeout=60,
        )
    return len(re.findall(rb"/Type\s*/Page\b", pdf.read_bytes())), asked


def test_a_letter_prints_on_two_pages_at_most_and_asks_nobody(tmp_path: Path) -> None:
    """Given the longest of a hundred letters, with long disclosures, when printed by a real browser, then it takes at most two pages and no request leaves the browser; a picture from elsewhere would have been seen."""
    longest = max(recommendations(100), key=lambda one: sum(len(tier["actions"]) for tier in one["tiers"]))
    assert len(longest["tiers"]) == 3
    full = replaced(
        longest,
        disclosures={"credit_bureau": "We used a report of Example Bureau, 1 Bureau Road. " * 4, "scores": "x " * 150},
    )
    pages, asked = printed(letter_of(full).html, tmp_path)
    assert 1 <= pages <= 2
    assert [one for one in asked if not OF_THE_BROWSER.search(one)] == []
    spying = letter_of(full).html.replace("</body>", '<img src="http://lender.example/seen.gif"></body>')
    _, seen = printed(spying, tmp_path)
    assert any(b"lender.example" in one for one in seen)
