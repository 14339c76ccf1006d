"""The image and the stack: what they copy, run, mount and set is there, and is what the parts take."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest

from stream.audit.sink.settings import read_sink_settings
from stream.cli.main import coach
from stream.notify.contacts.contact_files import CsvContacts
from stream.notify.settings import check_runnable, read_notify_settings
from stream.runtime.settings import read_settings

REPOSITORY = Path(__file__).resolve().parents[2]
DOCKERFILE = (REPOSITORY / "deploy" / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = (REPOSITORY / "docker-compose.yml").read_text(encoding="utf-8")
OURS = {"topics", "worker", "sink", "notifier", "demo", "publish"}
ONCE = {"topics", "demo", "publish"}  # those that end by themselves
OF_COMMANDS = {"COACH_CACHE_DIR"}  # variables of a command's flag, and no part's setting


@pytest.fixture(scope="module")
def stack() -> dict[str, Any]:
    """The stack as Docker's own compose reads it, each name and anchor resolved."""
    if (
        shutil.which("docker") is None
        or subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode
    ):
        absent = "docker compose is not installed here: docs/operate.md says how to get it without an engine"
        if os.environ.get("CI") == "true":
            pytest.fail(absent)
        pytest.skip(absent)
    done = subprocess.run(
        ["docker", "compose", "--profile", "publish", "config", "--format", "json"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "level=warning" not in done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


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
    """Given the Dockerfile, when read, then packages come with hashes only, base images are pinned, root does not run it, and its labels say what it is."""
    for install in re.findall(r"pip install (.*?)(?:\\|$)", DOCKERFILE, re.MULTILINE):
        assert "--require-hashes" in install or "--no-deps" in install, install
    assert all(re.search(r":\d+\.\d+\.\d+-", image) for image in re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE))
    assert re.findall(r"^USER (\S+)", DOCKERFILE, re.MULTILINE)[-1] != "root"
    version = re.search(r'^version = "(.*)"', (REPOSITORY / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert f'image.version="{version[1]}"' in DOCKERFILE
    assert f"image: coach-stream:{version[1]}\n" in COMPOSE


def test_every_package_of_the_project_is_in_the_image() -> None:
    """Given the project's dependencies, when the image's lock file is read, then it has each of them, with hashes."""
    project = (REPOSITORY / "pyproject.toml").read_text()
    needed = re.findall(r'^    "([a-z0-9-]+)', project.split("dependencies = [")[1].split("\n]")[0], re.MULTILINE)
    locked = (REPOSITORY / "requirements.lock").read_text()
    assert len(needed) > 15
    for package in needed:
        assert re.search(rf"^{package}==[^\n]*\\\n +--hash=sha256:", locked, re.MULTILINE), package


def test_the_stacks_commands_are_coachs(stack: dict[str, Any]) -> None:
    """Given the stack's services of ours, when their commands are parsed, then coach takes each of them as it stands."""
    assert {name for name, one in stack["services"].items() if one["image"].startswith("coach-stream:")} == OURS
    for name in OURS:
        words = list(stack["services"][name]["command"])
        context = click.Context(coach)
        command: click.Command = coach
        while isinstance(command, click.Group) and not (
            command.invoke_without_command and (not words or words[0][0] == "-")
        ):
            found = command.get_command(context, words.pop(0))
            assert found is not None, name
            command = found
        command.make_context(name, words)


def test_the_stacks_settings_are_settings_of_their_part(stack: dict[str, Any]) -> None:
    """Given each service's COACH_ variables, when the parts read them, then each is a setting of one of them, none is refused, and no secret is among them."""
    for name in OURS:
        environment = {key: value for key, value in stack["services"][name]["environment"].items() if value is not None}
        given = {key for key in environment if key.startswith("COACH_")} - OF_COMMANDS
        files = {"COACH_NOTIFY_CONTACTS": str(REPOSITORY / "deploy" / "demo" / "contacts.csv")}
        here = {key: files.get(key, value) for key, value in environment.items()}
        service = read_settings(here)
        known = {f"COACH_{one.upper()}" for one in service.__dataclass_fields__}
        if name == "sink":
            known |= {f"COACH_{one.upper()}" for one in read_sink_settings(here, sink_to="x").__dataclass_fields__}
        if name == "notifier":
            own = read_notify_settings(here)
            check_runnable(own, service)
            known |= {f"COACH_{one.upper()}" for one in own.__dataclass_fields__}
        assert given <= known, name
        assert not [key for key in environment if "PASSWORD" in key or "SECRET" in key or "KEY" in key]


def test_nothing_of_the_stack_is_open_beyond_this_host_or_has_rights_that_it_does_not_need(
    stack: dict[str, Any],
) -> None:
    """Given every service, when read, then its ports are this host's alone, its image is pinned, it may gain no rights, its memory and log are bounded, and what is ours has a read-only file system."""
    for name, one in stack["services"].items():
        assert all(port["host_ip"] == "127.0.0.1" for port in one.get("ports", ())), name
        assert re.search(r":v?\d+\.\d+\.\d+(-|$)", one["image"]), name
        assert one["security_opt"] == ["no-new-privileges:true"], name
        assert one["cap_drop"] == ["ALL"], name
        assert one["logging"]["options"]["max-size"], name
        assert not one.get("privileged"), name
        assert name not in OURS or one["read_only"], name
        assert name in ONCE or one["deploy"]["resources"]["limits"]["memory"], name


def test_the_stack_starts_in_an_order_that_works(stack: dict[str, Any]) -> None:
    """Given what depends on what, when read, then whoever stays has a health check and starts again, whoever ends does not start for ever, and each waits for those it needs to be healthy or done."""
    services = stack["services"]
    for name, one in services.items():
        if name in ONCE:
            assert one["restart"] == "no" or one["restart"].startswith("on-failure:"), name
        else:
            assert one["restart"] == "unless-stopped", name
            assert one["healthcheck"]["test"], name
        for other, how in one.get("depends_on", {}).items():
            assert how["condition"] == ("service_completed_successfully" if other in ONCE else "service_healthy"), (
                name,
                other,
            )
    needed = {
        "topics": {"kafka", "registry"},
        "worker": {"topics", "redis", "registry"},
        "sink": {"topics", "registry"},
        "notifier": {"topics", "registry"},
        "registry": {"kafka"},
    }
    for name, others in needed.items():
        assert others <= set(services[name]["depends_on"]), name
    assert services["worker"]["deploy"]["replicas"] == 2


def test_the_stacks_files_and_folders_are_there(stack: dict[str, Any]) -> None:
    """Given every mount, when read, then a file of this repository is there, a folder that a part writes to is made in the image for its user, and what a worker need not write it cannot."""
    made = re.findall(r"/var/lib/coach/\w+", DOCKERFILE.split("useradd", 1)[1])
    for name, one in stack["services"].items():
        for mount in one.get("volumes", ()):
            if mount["type"] == "bind":
                assert mount["read_only"], (name, mount)
                source = Path(mount["source"])
                assert source.exists() or source == REPOSITORY / "bundles", source
            elif name in OURS:
                assert mount["source"] in stack["volumes"]
                assert mount["target"] in made, (name, mount)
    bundles = [f"{name}: {mount['target']}" for name, one in stack["services"].items() for mount in one.get("volumes", ()) if mount["source"].endswith("/bundles")]  # fmt: skip
    assert bundles == ["publish: /bundles", "worker: /bundles"]  # a path that was published is the worker's too
    demo = {mount["target"] for name in ("worker", "demo") for mount in stack["services"][name]["volumes"] if mount["source"] == "demo"}  # fmt: skip
    assert demo == {"/var/lib/coach/demo"}


def test_prometheus_finds_every_part_that_has_metrics(stack: dict[str, Any]) -> None:
    """Given the services with a metrics port, when the scrape configuration is read, then each is looked for by its name on that port, and Grafana asks the Prometheus that there is."""
    scraped = dict(re.findall(r"names: \[(\w+)\]\n +type: A\n +port: (\d+)", (REPOSITORY / "deploy" / "prometheus" / "prometheus.yml").read_text()))  # fmt: skip
    served = {
        name: value
        for name, one in stack["services"].items()
        for key, value in (one.get("environment") or {}).items()
        if key.endswith("METRICS_PORT")
    }
    assert scraped == served
    assert "COACH_METRICS_ADDRESS=0.0.0.0" in DOCKERFILE  # Prometheus comes from another container
    assert len(served) == 3
    for name in served:
        assert "http://127.0.0.1:9464/ready" in stack["services"][name]["healthcheck"]["test"][-1]
    source = (REPOSITORY / "deploy" / "grafana" / "provisioning" / "datasources" / "prometheus.yml").read_text()
    assert "url: http://prometheus:9090\n" in source
    provider = (REPOSITORY / "deploy" / "grafana" / "provisioning" / "dashboards" / "coach-stream.yml").read_text()
    assert "path: /etc/grafana/dashboards\n" in provider
    assert stack["services"]["grafana"]["environment"]["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"


def test_the_demos_contacts_are_ones_that_the_notifier_reads() -> None:
    """Given the demo's contacts, when the notifier reads them, then some agreed to electronic letters, some did not, some want paper, and some applicants are unknown."""
    contacts = CsvContacts(REPOSITORY / "deploy" / "demo" / "contacts.csv")
    found = [contacts.find(f"applicant-{number:05d}") for number in range(1, 401)]
    known = [one for one in found if one is not None]
    assert 0 < len(known) < len(found)
    assert {one.channel for one in known} == {"files", "print"}
    assert {one.consent for one in known if one.channel == "files"} == {True, False}
