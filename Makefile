# Everything happens in .venv. Stamps make repeated runs quick: remove .venv to begin anew.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The exact pin makes pip take the build for CPUs; torch comes before anything that depends on it.
TORCH := torch==2.13.0

.PHONY: demo test lint docs clean

demo: $(VENV)/.demo
	$(BIN)/ranvier demo

test: lint
	$(BIN)/python -m pytest

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

# Reference pages come from the records they describe; the walkthrough is executed.
docs: $(VENV)/.dev
	$(BIN)/python docs/gen.py
	$(BIN)/python docs/walkthrough.py

clean:
	rm -rf $(VENV)

$(VENV)/.torch:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check $(TORCH)
	touch $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[demo]'
	touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[demo,dev]'
	touch $@
