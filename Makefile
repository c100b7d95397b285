# Spindle. `make` alone prints this help.
PYTHON ?= python3.11
BIN := .venv/bin
WAREHOUSE ?= var/demo

.DEFAULT_GOAL := help
.PHONY: help setup crawl test test-fast test-heavy check format bench zip lock clean

help:  ## print this help
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup:  ## install everything into .venv (idempotent; no network once done)
	@$(PYTHON) tools/install.py

crawl: setup  ## set up, crawl the loopback demo web for three turns, sum up
	@rm -rf $(WAREHOUSE) $(WAREHOUSE)-web
	@SPINDLE_QUICK=1 $(BIN)/spindle crawl --demo --warehouse $(WAREHOUSE) --turns 3

test: setup check zip  ## set up, lint, type-check and run all tests but the heavy ones
	@SPINDLE_QUICK=1 $(BIN)/pytest -m "not heavy" -rs

test-fast: setup  ## the tests that need no JVM, in seconds
	@SPINDLE_QUICK=1 $(BIN)/pytest -m "not heavy and not spark"

test-heavy: setup zip  ## what needs root, a big installation or a long time (nginx, documentation packages, Airflow, ...)
	@$(BIN)/python tools/heavy.py
	@SPINDLE_QUICK=1 $(BIN)/pytest -m heavy -rs --timeout=1800 || [ $$? -eq 5 ]

check: setup  ## ruff format and lint, strict mypy on lib and jobs
	@$(BIN)/ruff format --check -q . || { $(BIN)/ruff format --diff . ; exit 1; }
	@$(BIN)/ruff check -q .
	@$(BIN)/mypy

format: setup  ## let ruff format and mend what it can
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: setup  ## what is measured, side by side in one run (bench/README.md)
	@for script in bench/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

zip: setup  ## dist/spindle.zip for spark-submit --py-files
	@$(BIN)/python tools/make_zip.py

lock: setup  ## make requirements.lock anew from pyproject.toml (needs the network)
	@$(BIN)/python tools/lock.py

clean:  ## remove what set-up, tests and crawls made
	@rm -rf .venv .venv-* dist build var .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse
