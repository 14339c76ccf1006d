from __future__ import annotations

from pathlib import Path

import pytest

from tests.evaluation.results import Results


def test_a_stopped_run_goes_on_after_its_last_whole_line(tmp_path: Path) -> None:
    """Given a file whose last line was cut off, when read and added to, then the cut line is gone and the others stay."""
    results = Results(tmp_path)
    results.add("unit", {"method": "a", "valid": 1})
    with (tmp_path / "unit.jsonl").open("a") as file:
        file.write('{"method": "b", "va')
    assert set(results.of("unit")) == {"a"}
    results.add("unit", {"method": "c", "valid": 0})
    assert Results(tmp_path).all() == [{"method": "a", "valid": 1}, {"method": "c", "valid": 0}]


def test_results_of_other_parameters_are_not_mixed(tmp_path: Path) -> None:
    """Given a folder with results of one size, when another is to be run into it, then it is refused; the same goes on."""
    Results(tmp_path).check_size({"queries": 50})
    Results(tmp_path).check_size({"queries": 50})
    with pytest.raises(SystemExit, match="other parameters"):
        Results(tmp_path).check_size({"queries": 8})


def test_runs_add_up(tmp_path: Path) -> None:
    """Given a run that was stopped and one that went on, when asked, then both are told in order."""
    results = Results(tmp_path)
    results.add_run({"minutes": 3})
    results.add_run({"minutes": 4})
    assert [run["minutes"] for run in results.runs()] == [3, 4]
    assert results.all() == []
