# Two commands are enough: `make demo` and `make test`. Both first build .venv by themselves.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# The system's certificate store is trusted too, as pip does.
export UV_SYSTEM_CERTS := 1
export UV_PROJECT_ENVIRONMENT := .venv

# Compiled modules are kept: processes under test start in a third of the time.
export PYTHONDONTWRITEBYTECODE :=

PYTHON ?= python3
WORKERS ?= 2
BOOTSTRAP := build/uv
UV := $(shell command -v uv 2>/dev/null || echo $(BOOTSTRAP)/bin/uv)
PYTEST := .venv/bin/python -m pytest

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

# uv comes from pip where it is missing; it then makes .venv exactly as uv.lock says.
$(UV):
	$(PYTHON) -m venv $(BOOTSTRAP)
	$(BOOTSTRAP)/bin/pip install --quiet 'uv>=0.9'

.venv/.base: pyproject.toml uv.lock | $(UV)
	$(UV) sync --locked --inexact --compile-bytecode --quiet
	@touch $@

.venv/.torch: .venv/.base
	@echo "installing torch (about 5 GB on disk, once)"
	$(UV) sync --locked --inexact --compile-bytecode --quiet --extra rlhf
	@touch $@

setup: .venv/.base ## build .venv without torch

demo: .venv/.torch ## watch jobs being admitted, preempted, saved, resumed (REPORT=FILE writes figures)
	.venv/bin/clusterops demo $(if $(REPORT),--report $(REPORT))

test: lint .venv/.torch ## everything: lint, types, and all tests
	$(PYTEST) tests -n $(WORKERS) --dist worksteal

check: lint ## lint, types, tidy, unit tests without torch
	$(PYTEST) tests/tidy tests/unit -n $$((2 * $(WORKERS))) --dist worksteal -m "not slow and not torch"

controlplane: ## build the real Kubernetes, etcd and Kueue of the tests, once (Go modules)
	$(PYTHON) tests/support/controlplane_build.py

test-cluster: .venv/.base controlplane ## the tests on the real control plane
	CLUSTEROPS_TEST_CLUSTER=1 $(PYTEST) tests/cluster -n $(WORKERS) --dist worksteal

lint: .venv/.base
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

soak: .venv/.torch ## the long runs: more instants, more seeds
	CLUSTEROPS_SOAK=1 $(PYTEST) tests -n $(WORKERS) --dist worksteal --timeout 3600

bench: .venv/.torch ## print figures and ratios
	@for bench in tests/bench/bench_*.py; do echo "== $$bench"; .venv/bin/python $$bench; done

clean: ## remove what the commands above built
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help setup demo test controlplane test-cluster check lint soak bench clean
