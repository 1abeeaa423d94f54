# Two commands do everything on a fresh machine with Python >= 3.11, make and a network for packages:
#   make run    private environment, install, simulate scenarios/intersection.sumocfg, train, report
#   make test   the same environment, every test
# Both may be repeated; the environment is made again only when pyproject.toml or constraints.txt change.

PYTHON ?= python3
VENV ?= .venv
# The versions the tests were last run with; `make CONSTRAINTS= run` takes whatever pip resolves.
CONSTRAINTS ?= constraints.txt
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Tests run in so many processes; each wants up to 3 GB.
WORKERS ?= 2

.PHONY: help run test engines setup lint types contracts wheel check benchmark clean

help:
	@echo "make run        set up and run the main job: scenarios/intersection.sumocfg"
	@echo "make test       set up and run every test"
	@echo "make engines    the learners' tests with the engine that is not the default"
	@echo "make check      lint, types, import contracts, wheel"
	@echo "make benchmark  measured ratios of tests/benchmarks (minutes)"
	@echo "make clean      remove the environment and build products; runs/ stays"

run: $(INSTALLED)
	$(BIN)/vnetsim run scenarios/intersection.sumocfg

test: $(INSTALLED)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

engines: $(INSTALLED)
	VNETSIM_TEST_ENGINE=sequential $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile tests/learners --ignore tests/learners/data -m "not slow"

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml $(CONSTRAINTS)
	@echo "Setting up $(VENV): about 7 GB, most of it torch (a few minutes, once)"
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "vnetsim needs Python >= 3.11, this is %d.%d; set PYTHON=python3.x" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS)) --editable . --group dev
	@touch $(INSTALLED)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

contracts: $(INSTALLED)
	$(BIN)/lint-imports

wheel: $(INSTALLED)
	PYTHON=$(BIN)/python CONSTRAINTS=$(CONSTRAINTS) sh tests/wheel_smoke_test.sh

check: lint types contracts wheel

benchmark: $(INSTALLED)
	$(BIN)/python -m pytest tests/benchmarks --benchmark-only --timeout=0 -s

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks
