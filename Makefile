# Every target makes and fills .venv itself when it is missing or older than the
# requirements in setup.py: there is nothing to install first but Python and make.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11 python3.10,\
	$(shell $(name) -c 'import sys; (3, 10) <= sys.version_info < (3, 14) and print("$(name)")' 2>/dev/null)))
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
INSTALL := $(PIP) --editable

WORKERS ?= 2
# Each worker takes a run of neighbours, which share fixtures, and helps out when it is done.
PARALLEL = -n $(WORKERS) --dist worksteal
# One thread a worker: two test processes with a thread pool each are slower on two cores.
ONE_THREAD := TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1 OMP_NUM_THREADS=1
PYTEST := $(BIN)/python -m pytest
# `make test-torch` runs the first, whose peer is PyTorch, and `make check` the others.
BESIDE_TORCH := $(addprefix tests/benchmarks/speed/test_,contenders.py layers.py recurrent_training.py)
STATIC := tests/test_import_rules.py tests/test_docs.py
ELSEWHERE := $(addprefix --ignore=,$(BESIDE_TORCH) tests/pages $(STATIC))
PORTABLE := tests/ops tests/layers tests/interop tests/contracts tests/decoding

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo static test test-slow test-jax test-torch test-versions trial mutate check docs pages pictures course notebooks bench dist clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-13s %s\n", $$1, $$2}'

demo: $(VENV)/.installed ## Train a small translator of dates, show, export and read it back
	$(BIN)/keras-attention demo

test: $(VENV)/.installed-tests ## Run the tests (TensorFlow backend)
	$(ONE_THREAD) $(PYTEST) $(PARALLEL) $(ELSEWHERE)

test-slow: $(VENV)/.installed-tests ## Run the tests that are slow or rare
	$(PYTEST) -m slow
	if $(BIN)/python -c "import jax" 2>/dev/null; then KERAS_BACKEND=jax $(PYTEST) -m slow $(PORTABLE) tests/applications/test_jax.py; fi

test-jax: $(VENV)/.installed-tests $(VENV)/.installed-jax ## Run layers, decoding and training on JAX
	KERAS_BACKEND=jax $(ONE_THREAD) $(PYTEST) $(PARALLEL) $(PORTABLE) tests/applications/test_jax.py

test-torch: $(VENV)/.installed-tests $(VENV)/.installed-torch ## Run layers and decoding on PyTorch
	KERAS_BACKEND=torch $(ONE_THREAD) $(PYTEST) $(PARALLEL) $(PORTABLE)
	$(PYTEST) $(BESIDE_TORCH)

trial: $(VENV)/.installed-tests ## Try damaged and hostile inputs, and kills (hours)
	$(BIN)/python -m tests.trial --jobs $(WORKERS) $(TRIAL)

mutate: $(VENV)/.installed-tests ## Change lines one at a time, and see which no test notices (hours)
	$(BIN)/python -m tests.mutation $(MUTATE)

test-versions: $(VENV)/.installed-tests ## Run the tests on each Python, with the oldest and the newest requirements
	$(ONE_THREAD) $(BIN)/python tests/versions.py $(VERSIONS)

check: $(VENV)/.installed-tests $(VENV)/.installed-docs ## Check format, lint, types, import rules, docs and their examples
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m mypy
	$(MAKE) --no-print-directory --jobs 2 --output-sync static pages

static: $(VENV)/.installed-tests
	$(ONE_THREAD) $(PYTEST) $(PARALLEL) -q $(STATIC)

docs: $(VENV)/.installed-docs ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "Open site/index.html"

pages: docs $(VENV)/.installed-tests ## Open each page of site/ in Chromium and look for visible faults
	$(PYTEST) -q tests/pages

course: $(VENV)/.installed-course ## Run the lectures, or LECTURES=2, into runs/course; KEEP=1 keeps them in docs (10 minutes on 2 cores)
	$(ONE_THREAD) $(BIN)/python -m docs.course.build --jobs $(WORKERS) $(if $(KEEP),--keep) $(LECTURES)

notebooks: $(VENV)/.installed-course ## Render pages and notebooks of the lectures anew, without a run
	$(BIN)/python -m docs.course.build --render $(LECTURES)

pictures: $(VENV)/.installed-docs ## Draw the pictures of the pages anew
	$(BIN)/python -m docs.pictures

bench: $(VENV)/.installed-benchmarks ## Measure the layers beside PyTorch and plain Keras
	$(BIN)/python -m benchmarks layers
	$(BIN)/python -m benchmarks strategies

dist: $(VENV)/.installed-tests ## Build the wheel and the sdist into dist/
	$(BIN)/python -m build

clean: ## Remove .venv and everything built
	rm -rf $(VENV) build dist site *.egg-info .pytest_cache .ruff_cache .mypy_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.installed: setup.py pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.10 to 3.13 was not found; name it: make PYTHON=..."; exit 1; }
	@echo "Installing into $(VENV) (some minutes the first time)"
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) .
	@touch $@

$(VENV)/.installed-torch $(VENV)/.installed-benchmarks: $(VENV)/.cpu-torch

$(VENV)/.installed-%: $(VENV)/.installed
	@echo "Installing the requirements of the extra '$*'"
	$(INSTALL) '.[$*]'
	@touch $@

# On Linux the plain index has the CUDA build of PyTorch, several GB. The CPU build is tried first,
# alone: without a connection to its index this fails at once, and the plain one serves.
$(VENV)/.cpu-torch: $(VENV)/.installed
	@$(PIP) --no-deps --retries 1 --timeout 10 \
		--index-url https://download.pytorch.org/whl/cpu torch==2.13.0 2>/dev/null \
		|| echo "No CPU build of PyTorch was found; taking the plain index's"
	@touch $@
