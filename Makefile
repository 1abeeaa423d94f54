# Two commands do everything on a fresh machine with Python >= 3.11, make and a network for packages:
#   make run    private environment, install, simulate scenarios/intersection.sumocfg, train, report
#   make test   the same environment, one test or more for every promise; make test-all has all tests
# Both may be repeated; the environment is made again only when pyproject.toml or constraints.txt change.

PYTHON ?= python3
VENV ?= .venv
FUZZ ?= 10000
FUZZ_SECONDS ?= 3600
FUZZ_SEED ?= 0
# The versions the tests were last run with; `make CONSTRAINTS= run` takes whatever pip resolves.
CONSTRAINTS ?= constraints.txt
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Tests run in so many processes; each wants up to 3 GB.
WORKERS ?= 2
GPU ?= cuda
STUDY ?= flsimco-fig5
DATA ?= data
# The wheel is tried with these as well, where they are installed.
OTHER_PYTHONS ?= python3.12 python3.13 python3.14

.PHONY: help run quick test test-all setup lint types contracts wheel docs gallery check benchmark gpu-check gpu-paper fuzz clean

help:
	@echo "make run        set up and run the main job: scenarios/intersection.sumocfg"
	@echo "make test       set up and run the tests (minutes)"
	@echo "make quick      the mathematics, simulation, coverage, radio and storage alone (a minute)"
	@echo "make test-all   every test (a quarter of an hour)"
	@echo "make check      lint, types, import contracts, wheel, documentation"
	@echo "make docs       the documentation, into site/"
	@echo "make gallery    run the commands of docs/gallery and draw their pictures (a quarter of an hour)"
	@echo "make benchmark  measured ratios of tests/benchmarks (minutes)"
	@echo "make gpu-check  the learners on a GPU against the CPU, and their speeds there (GPU=cuda:1 another one)"
	@echo "make gpu-paper  nine minutes of STUDY=flsimco-fig5 at the paper's size on a GPU, with DATA=folder; again goes on"
	@echo "make fuzz       damaged inputs of every kind: FUZZ=10000 FUZZ_SECONDS=3600 FUZZ_SEED=0"
	@echo "make clean      remove the environment and build products; runs/ stays"

# For time, vehicles train on a third of the images that they do by default, and every eighth round is evaluated; who
# takes part, and when, is the same.
run: $(INSTALLED)
	$(BIN)/vnetsim run scenarios/intersection.sumocfg --set evaluate_every=8 --set learning.steps=5 --set learning.batch=32

# Tests start some hundred processes, which would all compile the same code anew.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test: $(INSTALLED)
	$(PYTEST) -m "not all_only"

quick: $(INSTALLED)
	$(PYTEST) -q -m "not all_only" $(addprefix tests/,core coverage learners/mathematics learning radio simulation storage)

test-all: test
	$(PYTEST) -m all_only

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml $(CONSTRAINTS)
	@echo "Setting up $(VENV): about 7 GB, most of it torch (a few minutes, once)"
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "vnetsim needs Python >= 3.11, this is %d.%d; set PYTHON=python3.x" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS)) --editable . --group dev --group docs
	@touch $(INSTALLED)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tests/prose.py

types: $(INSTALLED)
	$(BIN)/mypy

contracts: $(INSTALLED)
	$(BIN)/lint-imports

wheel: $(INSTALLED)
	PYTHON=$(BIN)/python OTHER_PYTHONS="$(OTHER_PYTHONS)" CONSTRAINTS=$(CONSTRAINTS) sh tests/wheel_smoke_test.sh

# A warning is an error. Nothing is fetched, and the pages fetch nothing either.
docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "site/index.html; with search: $(BIN)/python -m http.server --directory site"

# Runs are below runs/gallery; those that are there are not repeated.
gallery: $(INSTALLED)
	$(BIN)/python docs/gallery.py

check: lint types contracts wheel docs

# FUZZ inputs or FUZZ_SECONDS, whichever ends first; another FUZZ_SEED gives other inputs.
fuzz: $(INSTALLED)
	$(BIN)/python tests/fuzz/fuzz.py --count $(FUZZ) --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED)

benchmark: $(INSTALLED)
	$(BIN)/python -m pytest tests/benchmarks --benchmark-only --timeout=0 -s

gpu-check: $(INSTALLED)
	$(BIN)/python tests/gpu_check.py --device $(GPU) --out runs/gpu-check

# Ends after nine minutes with exit status 75, unless the study is done: runs/STUDY-paper keeps every cell and round.
gpu-paper: $(INSTALLED)
	$(BIN)/vnetsim compare scenarios/studies/$(STUDY).toml --size paper --device $(GPU) --set data.root=$(DATA) --workers 1 --time-limit 540

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks
