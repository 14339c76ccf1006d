from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from collections import Counter
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
MODULE_LINES_MAX = 360  # most fit in 300
MODULES_MAX = 15  # of a folder
FUNCTION_LINES_MAX = 70
PACKAGE_LINES_MAX = 37_500
FOLDERS_TO_MEND: set[str] = set()
UNWELCOME = {"core", "utils", "helpers", "common", "manager"}


def modules(top: str) -> list[Path]:
    return sorted((REPOSITORY / top).rglob("*.py"))


def test_every_test_says_a_behaviour() -> None:
    """Given all tests, when their docstrings are read, then each has one."""
    silent = [
        f"{path.relative_to(REPOSITORY)}:{node.lineno} {node.name}"
        for path in modules("tests")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]
    assert not silent


def test_a_room_is_named_for_what_is_in_it() -> None:
    """Given the package, when its names are read, then no module is a drawer for everything, and none has grown too long."""
    assert not [path for path in modules("stream") if path.stem in UNWELCOME or path.parent.name in UNWELCOME]
    long = {
        str(path): count
        for path in modules("stream")
        if (count := len(path.read_text().splitlines())) > MODULE_LINES_MAX
    }
    assert not long


def test_no_folder_is_a_crowd() -> None:
    """Given each folder of the package and its tests, when its modules are counted, then there are at most fifteen."""
    counts = Counter(
        str(path.parent.relative_to(REPOSITORY))
        for top in ("stream", "tests")
        for path in modules(top)
        if path.name != "__init__.py"
    )
    assert not {folder: n for folder, n in counts.items() if n > MODULES_MAX and folder not in FOLDERS_TO_MEND}
    assert all(counts[folder] > MODULES_MAX for folder in FOLDERS_TO_MEND), "a mended folder is still in the list"


def test_every_room_says_what_is_in_it_and_what_is_not() -> None:
    """Given each sub-room, when its docstring is read, then it says in one line what is in it, and what is not."""
    for path in modules("stream"):
        if path.name == "__init__.py" and len(path.relative_to(REPOSITORY).parts) > 3:
            said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            assert "Not here: " in said, path
            assert len(said.splitlines()) == 1, path


def imports_of(path: Path, known: dict[str, Path]) -> set[Path]:
    """The modules of the package that a module imports, for type checkers too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {
                known[name]
                for name in (node.module, *(f"{node.module}.{one.name}" for one in node.names))
                if name in known
            }
        elif isinstance(node, ast.Import):
            found |= {known[one.name] for one in node.names if one.name in known}
    return found


def test_no_circle_of_files() -> None:
    """Given all imports, those for type checkers included, when modules without one are taken away again and again, then none is left."""
    known = {
        ".".join(path.relative_to(REPOSITORY).with_suffix("").parts): path
        for path in modules("stream")
        if path.name != "__init__.py"
    }
    left = {path: imports_of(path, known) - {path} for path in known.values()}
    while free := [path for path, imported in left.items() if not imported & left.keys()]:
        for path in free:
            del left[path]
    assert not sorted(str(path) for path in left)


def test_no_function_is_too_long_to_read() -> None:
    """Given each function of the package, when measured, then it has at most seventy lines."""
    long = [
        f"{path.relative_to(REPOSITORY)}:{node.lineno} {node.name}"
        for path in modules("stream")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert not long


def test_no_docstring_is_a_word_or_two() -> None:
    """Given each docstring of the package, when read, then it is a pointer, as in See `Contacts`, or says more than two words."""
    idle = [
        f"{path.relative_to(REPOSITORY)}:{node.lineno}"
        for path in modules("stream")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and (said := ast.get_docstring(node))
        and len(said.split()) <= 2
        and not said.startswith(("See `", "Raises: "))
    ]
    assert not idle


def test_the_package_stays_small() -> None:
    """Given the package, when its lines are counted, then they are at most what a team can know."""
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in modules("stream"))
    print(f"{lines} lines of stream")
    assert lines <= PACKAGE_LINES_MAX


def test_an_init_holds_a_docstring_and_nothing_else() -> None:
    """Given each `__init__.py` of the package, when parsed, then a name can have one address only."""
    for path in modules("stream"):
        if path.name == "__init__.py":
            tree = ast.parse(path.read_text(encoding="utf-8"))
            assert len(tree.body) == 1, path
            assert ast.get_docstring(tree), path


def test_nothing_unfinished_is_left() -> None:
    """Given the tree, when searched for the marks of unfinished work and of tolerance, then there is none."""
    marks = re.compile(r"TO" + r"DO|FIX" + r"ME|NotImplemented" + r"Error|pytest\.appr" + r"ox|except Exception: *pass")
    found = [
        f"{path}:{number}"
        for top in ("stream", "tests")
        for path in modules(top)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if marks.search(line)
    ]
    assert not found


def test_every_exception_to_a_rule_has_its_reason() -> None:
    """Given pyproject.toml's lists of ignored rules, when read, then a reason stands beside each."""
    lint = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8").partition("[tool.ruff.lint]")[2]
    rules = re.findall(r'^ +"[A-Z]+[0-9]+",.*$', lint.partition("[tool.ruff.lint.flake8-tidy")[0], re.MULTILINE)
    assert len(rules) > 10
    assert not [line for line in rules if not re.search(r"# \S", line)]


def test_every_dependency_has_a_lower_bound_and_the_lock_pins_it_with_hashes() -> None:
    """Given the dependencies, when compared with the lock files, then each is bounded below, pinned and hashed."""
    for lock, wanted in (
        ("requirements.lock", PROJECT["project"]["dependencies"]),
        ("requirements-dev.lock", PROJECT["project"]["optional-dependencies"]["dev"]),
        ("requirements-build.lock", PROJECT["build-system"]["requires"]),
    ):
        locked = (REPOSITORY / lock).read_text(encoding="utf-8")
        for requirement in wanted:
            name = re.split(r"[><=\[;]", requirement)[0]
            if name == PROJECT["project"]["name"]:
                continue
            assert ">=" in requirement, requirement
            assert re.search(rf"^{re.escape(name)}==\S+.*\\\n +--hash=sha256:", locked, re.MULTILINE), (
                f"{name} in {lock}"
            )


def test_the_locks_agree() -> None:
    """Given the lock of the image and that of the tests, when compared, then what is in both has one version."""
    pins = {
        lock: set(re.findall(r"^(\S+==\S+)", (REPOSITORY / lock).read_text(encoding="utf-8"), re.MULTILINE))
        for lock in ("requirements.lock", "requirements-dev.lock")
    }
    assert pins["requirements.lock"] <= pins["requirements-dev.lock"]


def test_the_wheel_carries_the_schemas_and_the_demos_features(tmp_path: Path) -> None:
    """Given the tree, when a wheel is built, then it holds what the installed package reads besides its modules."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for schema in (REPOSITORY / "schemas").glob("*.avsc"):
        assert f"stream/schemas/{schema.name}" in names
    assert "stream/demo/german_credit.toml" in names
    assert not [name for name in names if name.startswith(("tests/", "deploy/"))]


def test_no_dataset_is_in_the_repository() -> None:
    """Given what git tracks, when listed, then no table of data is among it, but for the addresses invented for the stack's demo."""
    tracked = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if tracked.returncode != 0:
        pytest.skip("not a git checkout")
    tables = [name for name in tracked.stdout.splitlines() if re.search(r"\.(csv|parquet|gz|arff|xlsx?)$", name)]
    assert tables == ["deploy/demo/contacts.csv"]


def test_the_changelog_speaks_of_this_version() -> None:
    """Given the version in pyproject.toml, when the changelog is read, then it is there or under Unreleased."""
    changelog = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"[{PROJECT['project']['version']}]" in changelog
    assert "## [Unreleased]" in changelog
