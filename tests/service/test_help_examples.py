"""Every example that a `--help` shows is run as it stands, in a folder as its reader would have it."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import orjson
import pandas as pd  # type: ignore[import-untyped]
import pytest

from stream.cli.main import SUBCOMMANDS, coach
from tests.service.lender import Lender, records, toy_lender
from tests.service.room import PYTHONPATH, REPOSITORY, Room, command, room
from tests.service.stack import Stack

pytestmark = [pytest.mark.service, pytest.mark.timeout(240)]

# Commands that run until they are told to stop, and what each logs once it works.
STAYS: Final = {
    ("worker",): "worker.assigned",
    ("audit", "sink"): "sink.assigned",
    ("notify",): "notify.assigned",
}
ENDS_BY_ITSELF: Final = re.compile(r"--(once|until-end|print-config|check|help|dry-run)\b")
ELSEWHERE: Final[dict[tuple[str, ...], str]] = {
    ("demo",): "tests/demo/test_story.py"
}  # which runs it with data of one's own
STAY_MAX_S: Final = 60.0
FOUND_SOMETHING: Final = ("topics", "apply", "--dry-run")  # says with exit code 1 that something differs


@dataclass(frozen=True)
class Example:
    """One command of an example: whose help shows it, and its words after `coach`."""

    shown_by: tuple[str, ...]
    words: tuple[str, ...]


def every_example() -> Iterator[Example]:
    """The commands of every epilog, in the order of `coach --help`; each once."""
    seen: set[tuple[str, ...]] = set()
    groups: list[tuple[tuple[str, ...], click.Command]] = [((), coach)]
    while groups:
        path, command = groups.pop(0)
        text = re.sub(r"\\\s*\n\s*", " ", command.epilog or "")
        for line in re.findall(r"^\s+coach (.*)$", text, re.MULTILINE):
            words = tuple(shlex.split(line, comments=True))
            if words not in seen:
                seen.add(words)
                yield Example(path, words)
        inner = SUBCOMMANDS if command is coach else command.commands if isinstance(command, click.Group) else ()
        context = click.Context(command)
        for name in inner:
            found = command.get_command(context, name) if isinstance(command, click.Group) else None
            assert found is not None
            groups.append(((*path, name), found))


EXAMPLES: Final = list(every_example())


@pytest.fixture(scope="module")
def lender(tmp_path_factory: pytest.TempPathFactory) -> Lender:
    """A small lender of its own."""
    return toy_lender(tmp_path_factory.mktemp("examples"), seed=11)


@pytest.fixture(scope="module")
def place(stack: Stack, lender: Lender, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """Topics with records of all kinds on them, and a folder with what the examples name."""
    folder = tmp_path_factory.mktemp("reader")
    with room(stack, folder, partitions=1, model_wait_s="0") as here:
        worker = here.worker()
        here.send(records(lender, range(40)))
        here.until_done()  # the dead letters come first, for nobody has published the model
        here.publish(lender)
        here.send(records(lender, range(40, 120)))
        here.until_done()
        assert worker.stop() == 0
        furnish(here, folder / "start", lender)
        yield here


def furnish(here: Room, start: Path, lender: Lender) -> None:
    """Lay down the files."""
    start.mkdir()
    source = lender.bundle.parent
    shutil.copytree(lender.bundle, start / "bundle")
    for name in ("model.json", "features.toml"):
        shutil.copy(source / name, start / name)
    (start / "train.json").write_text('{"params": {"objective": "binary:logistic", "max_depth": 3}, "rounds": 10}')
    (start / "policy.toml").write_text("expiry_days = 60\n")
    table = pd.read_csv(source / "pool.csv").rename(columns={"target": "outcome"})
    table.to_csv(start / "training.csv", index=False)
    with gzip.open(start / "training.csv.gz", "wt") as packed:
        table.to_csv(packed, index=False)
    table.assign(score=lender.probabilities).to_csv(start / "scored.csv", index=False)
    table.drop(columns="outcome").head(60).to_csv(start / "applications.csv", index=False)
    (start / "decisions.jsonl").write_bytes(b"\n".join(orjson.dumps(lender.decision(row)) for row in range(40)))
    assert (
        run(
            here, start, ("recommend", "--bundle", "bundle", "--input", "applications.csv", "--output", "answers.jsonl")
        )
        == 0
    )
    (start / "contacts.csv").write_text(CONTACTS)
    assert run(here, start, ("audit", "sink", "--to", "archive", "--once")) == 0


CONTACTS: Final = """\
subject_ref,channel,address,consent,bounced,name,postal_address
applicant-00001,files,applicant-00001,yes,,Hugo Dorn,1 Example Street|Springfield
"""
# What a help text says that its reader has to have set.
NEEDED: Final = {"COACH_NOTIFY_LENDER_NAME": "Example Bank", "COACH_NOTIFY_LENDER_CONTACT": "+1 555 0100"}


def meant(here: Room, words: tuple[str, ...]) -> list[str]:
    """Put this machine's addresses and this test's topics in the place of the reader's."""
    settings = here.settings
    topics = {
        "recommendations": settings.topic_recommendations,
        "audit": settings.topic_audit,
        "decisions": settings.topic_decisions,
        "decisions.dlq": settings.topic_dlq,
        "notices": settings.topic_notices,
    }
    found: list[str] = []
    for before, word in zip(("", *words), words, strict=False):
        if re.fullmatch(r"(kafka[\w-]*:9092,?)+", word):
            found.append(settings.kafka_brokers)
        elif word.startswith("redis://"):
            found.append(settings.redis_url)
        elif before in ("--topic", "read"):
            found.append(topics.get(word, word))
        elif before == "--replication":
            found.append("1")
        else:
            found.append(word)
    return found


def start(here: Room, folder: Path, words: tuple[str, ...], output: Path) -> subprocess.Popen[bytes]:
    """Start a command in a folder."""
    with output.open("wb") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "stream.cli.main", *meant(here, words)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": PYTHONPATH, "HOME": str(folder), **NEEDED, **here.environment},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )


def run(here: Room, folder: Path, words: tuple[str, ...]) -> int:
    """Run a command to its end, in a folder; print what it said where it failed."""
    with contextlib.chdir(folder):
        done = command(here, *meant(here, words), HOME=str(folder), **NEEDED)
    if done.returncode:
        print((done.stdout + done.stderr)[-3000:])
    return done.returncode


def stays(words: tuple[str, ...]) -> str | None:
    """What a command that stays logs when it works; None for one that ends by itself."""
    if ENDS_BY_ITSELF.search(" ".join(words)):
        return None
    return STAYS.get(tuple(itertools.takewhile(lambda word: not word.startswith("-"), words)))


def test_build_recommend_and_verify_work_as_deployed(place: Room, tmp_path: Path) -> None:
    """Given a process without what only developers have installed, when a bundle with shadows is built, asked and checked, then each command ends with 0."""
    folder = tmp_path / "deployed"
    shutil.copytree(place.folder / "start", folder)
    source = ("--model", "model.json", "--pool", "training.csv", "--features", "features.toml", "--threshold", "0.5")
    shadows = ("--target-column", "outcome", "--shadows", "3", "--train-params", "train.json")
    commands = (
        ("bundle", "build", *source, *shadows, "--out", "built"),
        ("recommend", "--bundle", "built", "--input", "applications.csv", "--output", "new.jsonl"),
        ("audit", "verify", "new.jsonl", "--bundle", "built"),
    )
    program = """
import json, sys
from stream.cli.main import coach
for words in json.loads(sys.argv[1]):
    try:
        coach(words, prog_name="coach")
    except SystemExit as end:
        if end.code:
            raise
sys.exit(str(sorted({"sklearn", "coverage"} & set(sys.modules))) if {"sklearn", "coverage"} & set(sys.modules) else 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(commands)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(
            example,
            id=" ".join(example.words)[:90],
            marks=[pytest.mark.nightly] if example.words[0] == "demo" else [],  # tests/demo/test_story.py runs it whole
        )
        for example in EXAMPLES
    ],
)
def test_an_example_works_as_it_stands(example: Example, place: Room, tmp_path: Path) -> None:
    """Given a folder with the files that it names, when an example of a `--help` is run, then it does its work: exit code 0, or, for what runs until it is stopped, a sign of life and a clean stop."""
    elsewhere = ELSEWHERE.get(example.words[:2])
    if elsewhere is not None:
        assert "--target-column" in (REPOSITORY / elsewhere).read_text("utf-8")
        return
    folder = tmp_path / "reader"
    shutil.copytree(place.folder / "start", folder)
    if example.words[:2] == ("bundle", "build"):
        shutil.rmtree(folder / "bundle")
    sign = stays(example.words)
    if sign is None:
        code = run(place, folder, example.words)
        assert code == 0 or (code == 1 and example.words == FOUND_SOMETHING)
        return
    output = tmp_path / "said.txt"
    process = start(place, folder, example.words, output)
    try:
        deadline_s = time.monotonic() + STAY_MAX_S
        while sign not in output.read_text(errors="replace"):
            assert process.poll() is None, output.read_text(errors="replace")[-3000:]
            assert time.monotonic() < deadline_s, output.read_text(errors="replace")[-3000:]
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(STAY_MAX_S) == 0, output.read_text(errors="replace")[-3000:]
    finally:
        process.kill()
        process.wait()
