# Each target sets itself up on a fresh machine: a .venv from python3, then pip with the versions in
# constraints.txt. A stamp in .venv remembers that, so that later runs need no network.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Python compiles what it imports, and keeps it; pip would compile all, of which most is never
# imported. Where this variable is set, as in many containers, Python would keep nothing: each of the
# thousands of processes that tests start would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile \
  -c constraints.txt

.PHONY: demo test pytest lint style types bench setup docs docs-serve readme release-check lab-pages clean

# Train on the digits with 1 and then 2 workers; say what the second one brought.
demo: $(VENV)/.demo
	$(BIN)/farandole demo

# What the demo needs, and nothing else.
$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	@test -e $(READY) || $(PIP_INSTALL) -e '.[torch,demo]'
	@touch $@

# The figure and the sentence in README.md, from a run of the demo; needs a quiet machine.
readme: $(READY)
	$(BIN)/python tools/readme.py

# What a release would be: built, checked, installed into a new environment, tried.
release-check: $(BIN)/python
	rm -rf dist build/release
	$(PIP_INSTALL) build twine
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv build/release
	build/release/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  "$$(ls dist/*.whl)[torch,demo]"
	cd build && release/bin/farandole demo --seeds 1 --out release/demo

# Types are checked beside the tests, which leave a core alone now and then.
test: style
	@$(MAKE) --no-print-directory --jobs=2 types pytest

# All tests but those that take minutes (pytest -m soak). Two files at a time: many
# tests wait for processes to start. tests/conftest.py keeps those together that share their launches.
pytest: $(READY)
	$(BIN)/python -m pytest -m "not soak" -n 2 --dist loadgroup --durations=25

lint: style types

style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

types: $(READY)
	$(BIN)/mypy

setup: $(READY)

# Farandole beside Gloo, DDP and Open MPI, interleaved.
bench: $(READY)
	$(BIN)/farandole bench allreduce
	$(BIN)/farandole bench train

# The site, into build/site; a broken link is an error.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs-serve: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

$(VENV)/.docs: $(READY)
	$(PIP_INSTALL) -e '.[docs]'
	@touch $@

# docs/labs: the report of each lab, rendered from the records that tests keep; a test compares.
lab-pages: $(READY)
	$(BIN)/python tests/frozen/freeze.py record --only page

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make needs Python 3.11 or newer (the versions in constraints.txt do), but" \
	    "'$(PYTHON)' is $$($(PYTHON) -V 2>&1). Use: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; \
	  exit 2; }
	$(PYTHON) -m venv $(VENV)

$(READY): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP_INSTALL) -e '.[torch,demo,dev]'
	@touch $@
