# Everything runs in .venv, which `make setup` makes from the locked dependencies; each target sees to that first.
#   make demo      the whole story on this machine, with nothing else installed
#   make test      all tests; on real Kafka and Redis where they are installed
#   make evaluation the bars and the paper's protocol, with a report: a good hour on two cores, SIZE=smoke minutes
#   make check     what must be green before a commit: format, lint, types, import contracts, unit tests
#   make quick ROOM=recourse        the tests of one room or sub-room (recourse/search), without services and coverage
#   make same-answers BASE=COMMIT   600 answers of three datasets, byte for byte as that commit gives them
# COACH_EXAMPLES scales how many examples property tests try: COACH_EXAMPLES=0.1 make quick ROOM=forest

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready-from-lock

# Of `make evaluation`: full, small or smoke.
SIZE ?= full

# Where a machine forbids it, each of the hundreds of processes that the tests start would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test quick same-answers check lint format nightly evaluation lock wheel clean
.DEFAULT_GOAL := check

setup: $(READY)

$(READY): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "coach-stream needs Python 3.11 or later; say which one with: make PYTHON=/path/to/python3 $(MAKECMDGOALS)" >&2; exit 2; }
	@echo "making $(VENV) from the locked dependencies, once: some hundred MB to download, a few minutes"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) \
	  || { echo "this Python cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 2; }
	@$(BIN)/python -m pip --disable-pip-version-check install --require-hashes --requirement requirements-dev.lock
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup
	@$(BIN)/coach demo

test: setup
	@COACH_EXAMPLES=$${COACH_EXAMPLES:-0.15} $(BIN)/python -m pytest -n 4 --dist loadgroup -m "not nightly"

quick: setup
	@test -n "$(ROOM)" -a -d tests/$(ROOM) \
	  || { echo "make quick wants one of these rooms: make quick ROOM=...:" $$(cd tests && find * -name 'test_*.py' -printf '%h\n' | sort -u) >&2; exit 2; }
	@COACH_EXAMPLES=$${COACH_EXAMPLES:-0.15} $(BIN)/python -m pytest -q -n 2 --dist loadgroup tests/$(ROOM) \
	  -m "not service and not chaos and not judge and not nightly"

same-answers: setup
	@$(BIN)/python -m tests.house.same_answers $(BASE)

check: lint
	@$(BIN)/python -m pytest -q -m "not service and not chaos and not judge and not nightly" --cov --cov-report=term:skip-covered

lint: setup
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: setup
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

nightly: setup
	@COACH_EXAMPLES=$${COACH_EXAMPLES:-5} $(BIN)/python -m pytest -m nightly

# On the datasets of ../shared/data (COACH_DATA); a stopped run goes on where it was, from build/evaluation.
evaluation: setup
	@$(BIN)/python -m tests.evaluation --size $(SIZE)

# The image is built from requirements.lock; the tools of requirements-dev.lock come on top of the very same versions.
LOCK := $(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --quiet \
  --custom-compile-command "make lock"

lock: setup
	@$(LOCK) --output-file requirements.lock
	@$(LOCK) --extra dev --constraints requirements.lock --output-file requirements-dev.lock
	@echo 'hatchling' | $(BIN)/uv pip compile - --constraints requirements-dev.lock --universal --python-version 3.11 \
	  --generate-hashes --quiet --custom-compile-command "make lock" --output-file requirements-build.lock

wheel: setup
	@$(BIN)/python -m hatchling build --target wheel

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
