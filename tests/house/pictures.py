"""Makes the pictures of the README from the real thing: `python -m tests.house.pictures`.

The letter is the shipped template on an answer of `coach demo`, shot in headless Chromium. The dashboard is drawn from a
real Prometheus beside a real Kafka, Redis and worker under minutes of traffic, by a test of `tests/deploy`.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "pictures"
COACH: Final = Path(sys.executable).with_name("coach")
WINDOW: Final = "900,1180"
LENDER: Final = {
    "COACH_NOTIFY_LENDER_NAME": "Example Bank",
    "COACH_NOTIFY_LENDER_ADDRESS": "1 Example Square, Springfield, IL 62701",
    "COACH_NOTIFY_LENDER_CONTACT": "+1 555 0100",
    "COACH_NOTIFY_LENDER_NOTICE": "The federal agency that administers compliance with this law is named here.",
}


def run_coach(*words: str | Path) -> None:
    """Run a command of coach, as a lender with a name and an address."""
    environment = {**os.environ, **LENDER}
    subprocess.run([COACH, *words], check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def make_letter(answers: Path, folder: Path, picture: Path) -> None:
    """Write the letters of a file of answers, and shoot the first."""
    run_coach("notify", "preview", "--input", answers, "--out", folder, "--limit", "1")
    letter = next(page for page in sorted(folder.glob("*.html")) if page.name != "index.html")
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("no chromium here to shoot the letter with: apt-get install chromium")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={WINDOW}"]
    shot = [chromium, *flags, f"--screenshot={picture}", letter.as_uri()]
    subprocess.run(shot, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def make_dashboard(picture: Path) -> None:
    """Draw the dashboard of a stack under traffic."""
    test = "tests/deploy/test_stack.py::test_the_dashboard_can_be_looked_at"
    environment = {**os.environ, "COACH_DASHBOARD_PICTURE": str(picture), "COACH_REQUIRE_REAL": "1"}
    subprocess.run([sys.executable, "-m", "pytest", "-q", "--timeout=600", test], check=True, env=environment)


def png_size(picture: Path) -> tuple[int, int]:
    """Width and height of a PNG, from its header."""
    content = picture.read_bytes()
    assert content.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", content[16:24])
    return width, height


def main() -> None:
    """Run the demo, and make all pictures from what it leaves."""
    with tempfile.TemporaryDirectory() as place:
        demo, letters = Path(place) / "demo", Path(place) / "letters"
        run_coach("demo", "--out", demo)
        FOLDER.mkdir(exist_ok=True)
        make_letter(demo / "answers.jsonl", letters, FOLDER / "letter.png")
    make_dashboard(FOLDER / "dashboard.png")


if __name__ == "__main__":
    main()
