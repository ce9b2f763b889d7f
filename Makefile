# make demo       set up, train three small models, show how far they reach
# make test       set up, run every check and test
# make test-slow  the tests that take minutes; numerical tests under two other orders of floating-point sums
# make test-browser  pages in Chromium, where it is installed
# make figures    draw the figures of the docs that show files of results/ again
# make facts      rewrite the facts that help texts quote (src/longreach/cli/facts.json)
# make test-gpu   the engine against the reference core, on a machine with a GPU; RECORD=1 writes results/gpu_tests.json
# make setup      only the environment; what is there already is kept
#
# PYTHON=python3.12        another interpreter
# TORCH="torch==2.12.0"    another torch; empty takes what constraints.txt says
# PIP_ARGS="--index-url …" another package index, for example one with CUDA builds of torch

PYTHON ?= python3
TORCH ?=
PIP_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
OUT ?= runs/demo

# Asking for a certain torch sets up again.
ifneq ($(TORCH),)
.PHONY: $(READY)
endif

.PHONY: setup demo test test-slow test-gpu crash-test check format figures facts bench clean test-browser

setup: $(READY)

# A torch that is already installed, for $(PYTHON) or in .venv, is kept: the constraint then names its version.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "longreach needs Python 3.11 or newer: make setup PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $$($(PYTHON) -c 'import torch' 2>/dev/null && echo --system-site-packages) $(VENV)
	@if [ -n "$(TORCH)" ]; then $(BIN)/pip install $(PIP_ARGS) "$(TORCH)"; fi
	@$(BIN)/python -c 'from importlib.metadata import version; print("torch==" + version("torch"))' > $(VENV)/constraints.txt 2>/dev/null \
		|| cp constraints.txt $(VENV)/constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_ARGS) --constraint $(VENV)/constraints.txt --editable '.[dev]'
	@touch $(READY)

demo: setup
	@test ! -e $(OUT) || echo "continuing in $(OUT); remove it to start afresh"
	$(BIN)/longreach run demo --out $(OUT) --resume

test: setup check
	$(BIN)/python -m pytest -n 2

test-slow: setup test-browser
	$(BIN)/python -m pytest -n 2 -m slow
	ATEN_CPU_CAPABILITY=default $(BIN)/python -m pytest -n 2 -q tests/numerics tests/golden
	MKL_CBWR=COMPATIBLE $(BIN)/python -m pytest -n 2 -q tests/numerics tests/golden

test-browser: setup
	$(BIN)/python -m pytest -m browser tests/browser

test-gpu: setup
	$(BIN)/python -m pytest tests/gpu $(if $(RECORD),--record)

crash-test: setup
	$(BIN)/python -m pytest -n 2 -m crash

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

figures: setup
	@grep -oh 'longreach report results[^`]*docs/figures/[a-z_]*[.]svg' -r docs | sort -u | PATH="$(CURDIR)/$(BIN):$$PATH" sh -ex

facts: setup
	$(BIN)/python -m longreach.cli.facts

bench: setup
	$(BIN)/longreach bench tasks

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
