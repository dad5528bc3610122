# Everything a person or a CI machine does with this checkout. `make` alone lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
STAMP := $(VENV)/.tradewind-installed
ARGS ?=
# How many random histories `make fuzz` plays.
SEEDS ?= 100

# Which Python: that of a distribution first, for it is built with profile-guided optimisation. One
# that was compiled by default (pyenv does so) takes 1.7 times as long for the same loop.
PYTHON ?=
PYTHONS := $(or $(PYTHON),/usr/bin/python3.11 /usr/bin/python3.12 /usr/bin/python3.13 \
  python3.11 python3.12 python3.13 python3 python)

# What the tests need from Debian; nothing of it is needed to run Tradewind itself.
SERVICES := ca-certificates etcd-server etcd-client procps python3-venv \
  slurmctld slurmd slurmrestd slurmdbd slurm-client munge mariadb-server \
  gridengine-master gridengine-exec gridengine-client \
  bubblewrap podman runc busybox-static iproute2 systemd

.PHONY: help setup demo up down test test-federation check fuzz services ray bench proto docs lock clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

setup: $(STAMP) ## Make .venv from the lock file and install the checkout into it

$(STAMP): requirements/lock.txt pyproject.toml
	@python=""; \
	for each in $(PYTHONS); do \
	  if "$$each" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	  then python="$$each"; break; fi; \
	done; \
	if [[ -z "$$python" ]]; then \
	  echo "make setup: no Python 3.11 or newer that has venv and ensurepip among: $(PYTHONS)" >&2; \
	  echo "On Debian: apt-get install python3-venv; elsewhere: make setup PYTHON=/path/to/python3" >&2; \
	  exit 1; fi; \
	if [[ ! -x $(PY) ]]; then \
	  echo "Making $(VENV) with $$("$$python" --version 2>&1)" >&2; \
	  "$$python" -m venv $(VENV) || { rm -rf $(VENV); exit 1; }; \
	fi
	@echo "Installing what requirements/lock.txt pins (a minute or two the first time)" >&2
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/lock.txt >&2
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . >&2
	@touch $@

demo: $(STAMP) ## Run a whole federation through its main job; ARGS=--json or ARGS=--keep
	@$(BIN)/tradewind demo $(ARGS)

up: $(STAMP) ## Keep a federation on this machine (Ctrl-C stops it; ARGS=--detach leaves it)
	@$(BIN)/tradewind up $(ARGS)

down: $(STAMP) ## Stop the federation on this machine
	@$(BIN)/tradewind down $(ARGS)

test: $(STAMP) ## Run all tests; those of a service that is not there skip and name it
	@$(PY) -m pytest $(ARGS)

check: $(STAMP) ## Format, types, layers, generated code, unit tests: before every commit
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(PY) proto/generate.py --check
	@$(PY) -m pytest -q -m "not slow" tests/unit tests/architecture $(ARGS)

test-federation: $(STAMP) ## Mixed jobs over real sites of every kind, agents killed in between
	@$(PY) -m pytest tests/federation $(ARGS)

fuzz: $(STAMP) ## Play SEEDS random histories in virtual time; a failing seed prints its replay
	@$(PY) -m tests.simulation.histories --seeds $(SEEDS) $(ARGS)

services: ## Install what the tests need from Debian (needs root); starts no service
	@if [[ "$$(id -u)" != 0 ]]; then echo "make services: run it as root" >&2; exit 1; fi
	@# A daemon of the system would take the ports and the files the tests' own ones want.
	@policy=/usr/sbin/policy-rc.d; made=""; \
	if [[ ! -e $$policy ]]; then made=yes; printf '#!/bin/sh\nexit 101\n' > $$policy; chmod 755 $$policy; fi; \
	trap '[[ -z "$$made" ]] || rm -f '"$$policy" EXIT; \
	export DEBIAN_FRONTEND=noninteractive; \
	apt-get update -qq </dev/null; \
	apt-get install -y -qq --no-install-recommends $(SERVICES) </dev/null

ray: .venv-ray/.installed ## Install Ray for its tests, apart from everything else (380 MB)

.venv-ray/.installed: requirements/ray.txt $(STAMP)
	@$(PY) -m venv .venv-ray
	@.venv-ray/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/ray.txt >&2
	@touch $@

bench: $(STAMP) ## Measure the parts that have a target; ARGS chooses which
	@found=0; for each in benchmarks/bench_*.py; do \
	  [[ -e "$$each" ]] || continue; found=1; echo "== $$each" >&2; $(PY) "$$each" $(ARGS); \
	done; if [[ "$$found" = 0 ]]; then echo "no benchmarks/bench_*.py here" >&2; fi

proto: $(STAMP) ## Generate the modules of the .proto files
	@$(PY) proto/generate.py

docs: $(STAMP) ## Check that every link between the pages leads somewhere
	@$(PY) -m pytest -q tests/architecture/test_pages.py

lock: $(STAMP) ## Write requirements/lock.txt anew from pyproject.toml
	@$(BIN)/pip-compile --quiet --all-extras --generate-hashes --allow-unsafe --strip-extras \
	  --no-header --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
	  --output-file requirements/lock.txt pyproject.toml $(ARGS)
	@$(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras \
	  --no-header --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
	  --output-file requirements/ray.txt requirements/ray.in $(ARGS)

clean: ## Remove the virtual environment and everything the tools cached
	@rm -rf $(VENV) .venv-ray .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .grimp_cache dist build
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
