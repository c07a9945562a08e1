PYTHON ?= python3
BIN := .venv/bin

.PHONY: up test lint bench

up:
	@$(PYTHON) platform/config/bootstrap.py run
	@exec $(BIN)/python manage.py up --demo

test:
	@$(PYTHON) platform/config/bootstrap.py test
	@$(BIN)/python -m tests

lint:
	@$(PYTHON) platform/config/bootstrap.py test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=.:platform $(BIN)/lint-imports
	find templates -name '*.html' -exec $(BIN)/djade --target-version 5.2 --check {} +
	$(BIN)/python manage.py check --fail-level WARNING
	$(BIN)/python manage.py makemigrations --check --dry-run

bench:
	@$(PYTHON) platform/config/bootstrap.py test
	@$(BIN)/python -m tests.bench
