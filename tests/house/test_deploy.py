from __future__ import annotations

import fnmatch
import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from stream.cli.main import coach

REPOSITORY = Path(__file__).resolve().parents[2]
DOCKERFILE = (REPOSITORY / "deploy" / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = (REPOSITORY / "docker-compose.yml").read_text(encoding="utf-8")


def let_in() -> list[str]:
    """What .dockerignore lets into the build, all else being kept out."""
    lines = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").split()
    assert lines[0] == "*"
    return [line.removeprefix("!") for line in lines if line.startswith("!")]


def test_the_image_copies_what_there_is_and_what_is_let_in() -> None:
    """Given the Dockerfile's COPY lines, when compared with the tree and .dockerignore, then each source is there and let in."""
    copied = [
        word for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE) for word in line.split()
    ]
    assert copied
    for source in copied:
        assert (REPOSITORY / source).exists(), source
        assert any(fnmatch.fnmatch(source, pattern) for pattern in let_in()), source


def test_the_image_is_locked_and_runs_without_rights() -> None:
    """Given the Dockerfile, when read, then packages come with hashes only, base images are pinned, and root does not run it."""
    for install in re.findall(r"pip install (.*?)(?:\\|$)", DOCKERFILE, re.MULTILINE):
        assert "--require-hashes" in install or "--no-deps" in install, install
    assert all(re.search(r":\d+\.\d+\.\d+-", image) for image in re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE))
    assert re.findall(r"^USER (\S+)", DOCKERFILE, re.MULTILINE)[-1] != "root"


def test_the_stacks_commands_are_coachs() -> None:
    """Given the stack's services of ours, when their commands are parsed, then coach knows each of them."""
    commands = [line.split(", ") for line in re.findall(r"command: \[((?:topics|worker|model).*)\]", COMPOSE)]
    assert len(commands) == 3
    for words in commands:
        context = click.Context(coach)
        group: click.Command = coach
        rest = list(words)
        while isinstance(group, click.Group):
            found = group.get_command(context, rest.pop(0))
            assert found is not None, words
            group = found
        group.make_context("coach", rest)


def test_the_stacks_images_are_pinned() -> None:
    """Given the stack, when its images are read, then each names a version."""
    images = re.findall(r"^ +image: (\S+)", COMPOSE, re.MULTILINE)
    assert len(images) == 3
    assert all(re.search(r":\d+\.\d+", image) for image in images)


def test_the_worker_reads_a_bundle_where_it_was_published() -> None:
    """Given the stack, when a bundle of ./bundles is published, then its path is the worker's too, and neither writes there."""
    assert re.findall(r"- (\./bundles:\S+)", COMPOSE) == ["./bundles:/bundles:ro"] * 2
    assert 'command: [model, publish, "/bundles/${BUNDLE:-bundle}"]' in COMPOSE


def test_compose_itself_accepts_the_stack() -> None:
    """Given Docker's own compose, when it reads the stack, then it finds no fault."""
    if (
        shutil.which("docker") is None
        or subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode
    ):
        pytest.skip("docker compose is not installed here")
    done = subprocess.run(
        ["docker", "compose", "--profile", "publish", "config", "--quiet"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
