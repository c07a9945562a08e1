PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: up test lint bench

$(VENV)/installed: lock/dev.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --require-hashes -r lock/dev.lock
	touch $@

lint: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python manage.py check --fail-level WARNING
	$(BIN)/python manage.py makemigrations --check --dry-run

test: $(VENV)/installed
	$(BIN)/python -m pytest
