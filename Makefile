# Needs Python 3.11 or newer with pip, and make. Everything goes into .venv beside this file.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# More extras for the tests of optional parts: make test EXTRAS=,sb3,trl
EXTRAS ?=
# A CPU build of torch where the index offers one; any torch >= 2.6 will do.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: quickstart test test-slow lint types layers check clean

quickstart: $(VENV)/.installed  ## train and compare four algorithms on the embedded world
	$(BIN)/a2tgpo compare quickstart

test: $(VENV)/.installed-dev  ## the test suite
	$(BIN)/python -m pytest

test-slow: $(VENV)/.installed-dev  ## tests that take minutes
	$(BIN)/python -m pytest -m slow --timeout 3000

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/codespell

types: $(VENV)/.installed-dev
	$(BIN)/mypy

layers: $(VENV)/.installed-dev
	$(BIN)/lint-imports

check: test lint types layers  ## everything that CI runs

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; sys.exit(0 if sys.version_info >= (3, 11) else 'Python 3.11 or newer is needed, this is ' + sys.version.split()[0] + '; call make PYTHON=python3.11')"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) torch
	$(INSTALL) --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "installing the tools that tests, lint and types need"
	$(INSTALL) --editable ".[dev$(EXTRAS)]"
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
