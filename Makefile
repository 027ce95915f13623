# `make demo` runs the main job, `make test` the tests; each sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: demo test test-full check format bench corpora lock clean

demo: $(READY)
	$(BIN)/python examples/flights/run.py

test: $(READY) corpora check
	$(BIN)/pytest -n auto

test-full: $(READY) corpora check
	SUBSTRATE_FULL=1 $(BIN)/pytest -n auto

check: $(READY)
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/lint-imports --no-cache
	$(BIN)/pyright

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)
	$(BIN)/python -m benchmarks

# A public collection of function documents and simulated systems, which the tests call.
corpora: .corpora/.ready

.corpora/.ready: requirements/corpora.txt $(READY)
	rm -rf .corpora
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
	  --target .corpora -r requirements/corpora.txt
	touch .corpora/.ready

# The lock: exact versions with hashes, for every Python that is supported.
lock: $(READY)
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --group dev --group demo --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --upgrade -o requirements/dev.txt

$(READY): requirements/dev.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(READY)

clean:
	rm -rf $(VENV) .corpora .pytest_cache .ruff_cache .hypothesis
