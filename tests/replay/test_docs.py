from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from stream.audit.sink.settings import SinkSettings
from stream.audit.sink.sink import Sink
from stream.cli.main import coach
from tests.replay.past import Lived

DOCS = Path(__file__).resolve().parents[2] / "docs" / "replay.md"


@pytest.mark.service
@pytest.mark.timeout(300)
def test_the_commands_of_the_page_do_what_it_says(
    lived: Lived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a past on Kafka and a folder as the page has it, when every command of docs/replay.md is run, then each ends well, with a report of its mode."""
    old = lived.lenders[0]
    shutil.copytree(old.bundle, tmp_path / "bundle")
    rules = (old.bundle.parent / "features.toml").read_text()
    (tmp_path / "features.toml").write_text(rules.replace('"mutable"', '"increase_only"', 1))
    rows = [orjson.dumps(old.decision(number)) + b"\n" for number in old.declined(5)]
    (tmp_path / "decisions.jsonl").write_bytes(b"".join(rows))
    sink = SinkSettings(sink_to=str(tmp_path / "whole"), sink_group="docs")
    Sink(lived.here.settings, sink, once=True).run()
    (tmp_path / "whole").rename(tmp_path / "archive")
    monkeypatch.chdir(tmp_path)
    recommend = "recommend --bundle bundle --input decisions.jsonl --output answers.jsonl"
    assert CliRunner().invoke(coach, shlex.split(recommend)).exit_code == 0
    environment = {**lived.here.environment, "COACH_REPLAY_STATE_DIR": str(tmp_path / "state")}
    commands = [
        line
        for block in re.findall(r"```bash\n(.*?)```", DOCS.read_text(), re.DOTALL)
        for line in block.splitlines()
        if line.strip()
    ]
    assert len(commands) == 7
    for command in commands:
        words = shlex.split(command)
        assert words[:2] == ["coach", "replay"]
        if "--archive" in words:  # the bundles of both versions answered what lies there
            words += ["--bundle", str(lived.lenders[1].bundle)]
        done = CliRunner().invoke(coach, words[1:], env=environment)
        assert done.exit_code == 0, f"{command}\n{done.output}"
        report = orjson.loads((tmp_path / words[words.index("--out") + 1] / "report.json").read_bytes())
        assert report["mode"] == words[words.index("--mode") + 1]
        assert report["records"] > 0
