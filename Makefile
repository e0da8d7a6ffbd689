# Every task of this project. Needs Python >= 3.11 with venv, and make; nothing else has to be installed first.
# `make demo` and `make test` do all the set-up themselves; `make help` lists the rest.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ARGS ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo up serve verify test test-slow pytest cycles-compiled past-compiled lint types contracts tidy golden sim bench schemas wheel clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo "  Options of a command go into ARGS: make demo ARGS=\"--days 1\""

setup: $(READY) ## make .venv with the exact versions of constraints.txt (quick when nothing changed)

# The stamp is newer than both files exactly when the installed set is the one they ask for.
$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null 2>&1 || { echo "make setup: no $(PYTHON) on the path; install Python >= 3.11 or name one: make setup PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make setup: $(PYTHON) is $$($(PYTHON) -V 2>&1), Python >= 3.11 is needed; name one: make setup PYTHON=python3.12" >&2; exit 2; }
	@$(BIN)/python -c 'import pip' >/dev/null 2>&1 || rm -rf $(VENV)
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "make setup: $(PYTHON) has no working venv module; on Debian: apt-get install python3-venv" >&2; exit 2; }
	@mkdir -p .ns/apportion && for room in core adapters projections; do ln -sfn ../../$$room .ns/apportion/$$room; done
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

demo: setup ## a week of jobs of ten programs on 512 GPUs, through a real nats-server, with its audited statement
	$(BIN)/apportion demo $(ARGS)

up: setup ## embedded server, core, projector and one node agent on this machine
	$(BIN)/apportion up $(ARGS)

serve: setup ## the core alone, against a running nats-server
	$(BIN)/apportion serve $(ARGS)

verify: setup ## derive every stored decision again and compare
	$(BIN)/apportion verify $(ARGS)

test: setup ## everything that must hold: lint, types, contracts, and all quick tests (all four, whatever fails)
	@$(MAKE) --no-print-directory --keep-going -j 2 cycles-compiled past-compiled lint types contracts; checked=$$?; \
	$(MAKE) --no-print-directory pytest && exit $$checked

# Tests and the processes they start load what one of them has compiled. What did not change stays compiled: a kernel file is compiled
# anew with every file that it is built on, by a rule of the tree; units are constants in all of them.
test test-slow pytest cycles-compiled past-compiled: export NUMBA_CACHE_DIR := $(or $(NUMBA_CACHE_DIR),$(CURDIR)/.kernels/$(shell cksum <core/units.py | cut -d' ' -f1))

cycles-compiled past-compiled: setup # once and on all cores, not by the first tests of each worker
	@$(BIN)/python -m tests.compiled $(@:-compiled=)

pytest: setup ## the tests alone: make pytest ARGS="tests/core -k funding"
	$(BIN)/python -m pytest -m "not slow" -n 2 $(ARGS)

test-slow: setup ## long random runs and faults, too long for every change
	$(BIN)/python -m pytest -m slow --timeout 3600 $(ARGS)

lint: setup ## ruff, with the stricter bans of core/ruff.toml
	$(BIN)/ruff check .

types: setup ## mypy, strict
	$(BIN)/mypy

contracts: setup ## who may import whom
	PYTHONPATH=.ns $(BIN)/lint-imports

tidy: setup ## the rules of the tree alone: sizes, docstrings, determinism, golden samples
	$(BIN)/python -m pytest -q tests/test_tidy.py $(ARGS)

golden: setup ## decode every event and decision ever shipped, and compare
	$(BIN)/python -m pytest -q tests/golden $(ARGS)

sim: setup ## seeded simulations with faults; ARGS="-m slow" for the long ones
	$(BIN)/python -m pytest tests/simulation $(ARGS)

bench: setup ## measure: make bench ARGS="fold --json" (cycle, fairness, fold, horizon, latency, packing, projector, query, reader, replay, restart, verify, whatif, why)
	$(BIN)/apportion bench $(ARGS)

schemas: setup ## write deploy/schemas and deploy/asyncapi.json from the structs
	$(BIN)/python -m apportion.adapters.ingress.schemas deploy

wheel: setup ## build the wheel into dist/ and list what is in it
	$(BIN)/python -m build --no-isolation --wheel --outdir dist .
	$(BIN)/python -m zipfile -l "$$(ls -t dist/*.whl | head -1)"

clean: ## remove .venv and everything that was built; state in .apportion stays
	rm -rf $(VENV) .kernels dist build .mypy_cache .ruff_cache .import_linter_cache .hypothesis .pytest_cache
	find core adapters projections tests -name __pycache__ -type d -prune -exec rm -rf {} +
