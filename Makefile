# Every target makes what it needs: the first one creates .venv, later ones reuse it.
#
#   make demo          98,304 ranks: TCPStore formation, pipelined ring AllGather; result in out/demo,
#                      with a picture to open
#   make test          unit, conformance, agreement and command-line tests
#   make test-scale    thousands of ranks (SCALE=ci: a bounded part)
#   make test-interop  against the real NCCL, PyTorch and Extra-P (SCALE=ci: likewise)
#   make lint          ruff, mypy --strict, import-linter
#   make bench         what emucoll reaches of what the kernel allows, as ratios (about 5 minutes)
#   make clean         removes .venv and everything that was built or measured here
#
# PYTHON names the interpreter, EMUCOLL_CACHE the one folder for wheels and big downloads.

PYTHON ?= python3
SCALE ?= $(EMUCOLL_SCALE)
PYTEST_ARGS ?=
BENCH_ARGS ?=
export EMUCOLL_CACHE ?= $(HOME)/.cache/emucoll

VENV := .venv
BUILD := build/bench
PIP = $(VENV)/bin/python -m pip --disable-pip-version-check --cache-dir "$(EMUCOLL_CACHE)/pip"
INSTALL = $(PIP) install -qq -c constraints.txt
PYTEST = $(VENV)/bin/python -m pytest
IF_ANY = test $$? -eq 5  # pytest's exit code where the arguments leave it no test
CC ?= cc
CFLAGS ?= -O2
WARNINGS := -std=gnu11 -Wall -Wextra

.DELETE_ON_ERROR:
.PHONY: help demo test test-scale test-interop lint bench clean

help:
	@sed -n 's/^#   //p' Makefile

demo: $(VENV)/.installed
	$(VENV)/bin/emucoll run -np 98304 --formation tcpstore --allgather ring-pipelined --record-bytes 28 --out out/demo
	$(VENV)/bin/emucoll report out/demo

test: $(VENV)/.installed-dev
	$(PYTEST) -n 2 --dist loadfile -m "not scale and not interop and not waits and not alone" $(PYTEST_ARGS) || $(IF_ANY)
	$(PYTEST) -n 5 -m waits tests/cli $(PYTEST_ARGS) || $(IF_ANY)
	$(PYTEST) -m alone tests/cli tests/unit/net $(PYTEST_ARGS) || $(IF_ANY)

test-scale: $(VENV)/.installed-dev
	EMUCOLL_SCALE=$(SCALE) $(PYTEST) -o faulthandler_timeout=3600 -m scale $(if $(filter ci,$(SCALE)),tests/scale) $(PYTEST_ARGS)

# The [interop] extra stays out: the tests fetch single wheels into EMUCOLL_CACHE and load libnccl from there.
test-interop: $(VENV)/.installed-dev
	EMUCOLL_SCALE=$(SCALE) $(PYTEST) -n 3 -o faulthandler_timeout=3600 -m interop tests/interop $(PYTEST_ARGS)

lint: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check --output-format=concise .
	$(VENV)/bin/mypy --strict
	$(VENV)/bin/lint-imports --no-logo

bench: $(BUILD)/ring_limit $(BUILD)/bare_connect $(VENV)/.installed
	$(VENV)/bin/python -m benchmarks.run $(BENCH_ARGS)

clean:
	rm -rf $(VENV) build dist out .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find emucoll harness profiles tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "emucoll needs Python 3.11 or newer, and '$(PYTHON)' is not: try make PYTHON=python3.12" >&2; exit 1; }
	@echo "Creating $(VENV)" >&2
	@$(PYTHON) -m venv --clear $(VENV) || { \
	    echo "'$(PYTHON) -m venv' failed: on Debian and Ubuntu, install python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.installed: pyproject.toml constraints.txt $(VENV)/.created
	@echo "Installing emucoll into $(VENV)" >&2
	@$(INSTALL) -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt $(VENV)/.created
	@echo "Installing emucoll and its development tools into $(VENV)" >&2
	@$(INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/.installed

$(BUILD)/%: benchmarks/%.c benchmarks/loopback.h
	@mkdir -p $(@D)
	$(CC) $(WARNINGS) $(CFLAGS) -o $@ $<
