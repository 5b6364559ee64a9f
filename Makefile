# make setup | train | test | lint | bench
#
# PYTHON    interpreter for a new .venv (3.11 or newer)
# PIP_ARGS  passed to pip: on Linux without a GPU, `--extra-index-url` with the CPU index that
#           PyTorch's install page names saves several GB; a GPU on Linux needs nothing
# WORKERS   processes that `make test` spreads the files of tests over, one per core by default
# ARGS      passed to the command: make train ARGS="seed=2 env=carracing"

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
PIP_ARGS ?=
ARGS ?=
PYTEST_ARGS ?=
WORKERS ?= auto

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := setup
.PHONY: setup train test lint bench

setup: $(STAMP)

# Runs again only when the lock or the project's metadata changed.
$(STAMP): requirements.lock pyproject.toml
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'error: Python 3.11 or newer is needed; name it: make setup PYTHON=...' >&2; exit 1; }
	test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install $(PIP_ARGS) -r requirements.lock
	$(BIN)/python -m pip install -q --no-deps --no-build-isolation \
	  --config-settings editable_mode=compat -e .
	@touch $@

# Learn to drive, evaluate on the test tracks, write the video: see train_ppo.py --help.
train: setup
	$(BIN)/python train_ppo.py $(ARGS)

test: lint
	$(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 8 --dist loadfile $(PYTEST_ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: setup
	$(BIN)/python scripts/bench_env.py $(ARGS)
