# Two commands matter: `make run` serves the default model, `make test` runs everything that CI does.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The bindings' sdist carries the whole of llama.cpp: only its Python part is wanted here, the
# library itself is built by llama_build with pinned flags.
PIP := CMAKE_ARGS="-DLLAMA_BUILD=OFF -DLLAVA_BUILD=OFF" $(BIN)/python -m pip install -q --disable-pip-version-check
PROFILE ?=
# The tests that are checks of the tree itself: part of `check`, and not run again by `test`.
TREE_TESTS := tests/test_tidy.py tests/test_architecture.py tests/test_dependencies.py

.PHONY: run test test-fast check bench exact fuzz crash soak trace lock clean install install-dev

run: install
	@exec $(BIN)/huginn up $(if $(PROFILE),--profile $(PROFILE))

install: $(VENV)/.installed

$(VENV)/.installed: requirements.lock pyproject.toml
	@echo "huginn: installing into $(VENV) (a few minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) --require-hashes -r requirements.lock
	@$(PIP) --no-deps --no-build-isolation -e .
	@$(BIN)/python -m actors.worker.backends.llama_build
	@touch $@

install-dev: $(VENV)/.installed-dev

$(VENV)/.installed-dev: $(VENV)/.installed requirements-dev.lock
	@$(PIP) --require-hashes -r requirements-dev.lock
	@touch $@

# Every check and every test, the long kinds as samples. The Ray and end-to-end tests are part of it.
test: check
	$(BIN)/python -m pytest --durations=25 $(TREE_TESTS:%=--ignore=%)

# Under two minutes: no model weights, no Ray, no long samples.
test-fast: install-dev
	$(BIN)/python -m pytest -m "not slow and not model and not ray"

check: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest $(TREE_TESTS)

trace: install-dev
	$(BIN)/python -m tests.trace

# Cold = warm = branched = edited = evicted = killed = elsewhere, bit for bit: 1,000 random
# conversations with the tiny model, and 30 with the default one.
exact: install-dev
	HUGINN_EXACT_CONVERSATIONS=$${HUGINN_EXACT_CONVERSATIONS:-1000} \
	  HUGINN_EXACT_REAL=$${HUGINN_EXACT_REAL:-30} \
	  $(BIN)/python -m pytest -s tests/acceptance/test_exact_worker.py

fuzz: install-dev
	HYPOTHESIS_PROFILE=fuzz HUGINN_EXHAUSTIVE=1 $(BIN)/python -m pytest tests/fuzz

# A death at every await and I/O point of each write path; 1,000 seeds of turns; an erasure of 10,000
# objects that dies at each of its steps; `kill -9` of each store's process 20 times, of the whole
# service 60 times, and 10 times while it answers in Matrix; every byte of a page file.
crash: install-dev
	HUGINN_CRASH_STRIDE=1 HUGINN_CRASH_ROUNDS=$${HUGINN_CRASH_ROUNDS:-20} \
	  HUGINN_CRASH_SEEDS=$${HUGINN_CRASH_SEEDS:-1000} \
	  $(BIN)/python -m pytest tests/crash tests/e2e/test_matrix.py \
	  tests/acceptance/test_erasure_crash.py tests/store/pages/test_damage.py

# Half an hour of many clients; HUGINN_SOAK_PROFILE=gemma3-270m-exact takes the default model.
soak: install-dev
	HUGINN_SOAK_SECONDS=$${HUGINN_SOAK_SECONDS:-1800} HUGINN_SOAK_CLIENTS=$${HUGINN_SOAK_CLIENTS:-16} \
	  $(BIN)/python -m pytest -s tests/soak

# Every script with its defaults, but the peers, which want other builds: `python -m bench.peers`.
# The longest logs are left to `python -m bench.sessions --full`.
BENCHES := rope assembly worker schedule gateway store events sessions authority presence
bench: install-dev
	@for script in $(BENCHES); do echo; $(BIN)/python -m bench.$$script || exit 1; done

# After a change of dependencies in pyproject.toml. Needs pip-tools.
lock:
	CMAKE_ARGS="-DLLAMA_BUILD=OFF -DLLAVA_BUILD=OFF" pip-compile -q --generate-hashes --strip-extras \
	  --no-header --no-annotate --no-emit-find-links --no-emit-index-url --allow-unsafe \
	  -o requirements.lock pyproject.toml
	CMAKE_ARGS="-DLLAMA_BUILD=OFF -DLLAVA_BUILD=OFF" pip-compile -q --generate-hashes --strip-extras \
	  --no-header --no-annotate --no-emit-find-links --no-emit-index-url --allow-unsafe \
	  --extra dev -c requirements.lock -o requirements-dev.lock pyproject.toml

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
