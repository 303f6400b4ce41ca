# `make` builds the extension; `make demo` and `make test` do all their own set-up. `make help` lists the rest.

PYTHON ?= python3
# The environment of build/, which setup.py makes.
VENV_PYTHON = build/venv/bin/python

.DEFAULT_GOAL := release
.PHONY: release debug setup setup-demo demo test test-rust test-sql test-scenarios bench lint format clean clean-all help

release: ## build/release/fdl.duckdb_extension and build/repository/ (the default)
	cargo build --release --lib
	$(PYTHON) scripts/package.py

debug: ## build/debug/fdl.duckdb_extension
	cargo build --lib
	$(PYTHON) scripts/package.py --profile debug

setup: ## fetch what the tests need into build/ (DuckDB, its extensions, dbt, pytest)
	$(PYTHON) scripts/setup.py --what test

setup-demo: # less than setup
	$(PYTHON) scripts/setup.py --what demo

demo: release setup-demo ## the main job on 336,776 flights, in under a minute
	bash scripts/demo.sh

test: release setup ## every test; the last line adds them up
	$(VENV_PYTHON) scripts/test.py

test-rust: ## the Rust tests alone
	$(PYTHON) scripts/test.py rust

test-sql: release setup ## test/sql alone, in every supported DuckDB
	$(VENV_PYTHON) scripts/test.py sql

test-scenarios: release setup ## test/scenarios alone
	$(VENV_PYTHON) scripts/test.py scenarios

bench: release setup ## how long fdl takes, as a ratio to the bare work
	$(VENV_PYTHON) benches/measure.py

lint: ## formatting, clippy, and the rules of the architecture that clippy does not know
	cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings
	$(PYTHON) scripts/lint.py

format: ## cargo fmt
	cargo fmt

clean: ## what was built, not what was fetched
	cargo clean
	rm -rf build/release build/debug build/repository build/demo

clean-all: clean ## all of build/
	rm -rf build

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | column -t -s '|'
