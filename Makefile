# Everything a developer does, in one word each. The Python environment follows requirements.lock by itself.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help environment demo blast test test-long test-teeth soak bench up down lint format docs

PYTHON ?= python3
BIN := .venv/bin
ENVIRONMENT := .venv/.follows-the-lock
# `--name value` for each variable NAME=value of the command line.
given = $(if $($(shell echo $(1) | tr a-z A-Z)),--$(1) $($(shell echo $(1) | tr a-z A-Z)))

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

environment: $(ENVIRONMENT) ## Make .venv match requirements.lock

$(ENVIRONMENT): requirements.lock pyproject.toml deploy/environment.sh
	@deploy/environment.sh "$(PYTHON)"
	@touch $@

demo: $(ENVIRONMENT) ## See it work: four channels, a campaign of 20,000, a worker killed in the middle
	@$(BIN)/tidings demo

blast: $(ENVIRONMENT) ## Judge a million recipients at a provider's cap (RECIPIENTS= RATE= SECONDS= SEED= KILL=1 JSON=1 PLOT=)
	@$(BIN)/tidings blast $(foreach option,recipients rate seconds seed plot,$(call given,$(option))) \
		$(if $(KILL),--kill) $(if $(JSON),--json)

docs: $(ENVIRONMENT) ## Generate the pages of topics, metrics and settings
	@$(BIN)/tidings reference docs

test: $(ENVIRONMENT) lint ## Everything that has to be right before a change goes in
	$(BIN)/python -m pytest -m "not long" -n 2 tests/tidy tests/unit tests/simulation
	$(BIN)/python -m pytest -m "not long" tests/contract tests/integration tests/acceptance tests/kills

test-long: $(ENVIRONMENT) ## The slow tests, at default settings
	$(BIN)/python -m pytest -m long

simulate-faults: $(ENVIRONMENT) ## Run the whole road on a virtual clock with seeded faults: RUNS=1000 FIRST=1, or SEED=7 again
	@$(BIN)/python -m tests.simulation $(call given,runs) $(if $(FIRST),--first-seed $(FIRST)) $(call given,seed)

test-teeth: $(ENVIRONMENT) ## Break one promise after the other in scratch copies: its test must fail
	@$(BIN)/python -m tests.teeth

soak: $(ENVIRONMENT) ## An hour: two hundred rebalances and half an hour at half load leave nothing behind
	$(BIN)/python -m pytest -m soak tests/soak

bench: $(ENVIRONMENT) ## Measure all figures, or ROWS=sender,accept RUNS=1; needs a quiet machine, an hour for all
	@$(BIN)/python -m benchmarks $(foreach option,rows runs scale peers campaign cap,$(call given,$(option)))

lint: $(ENVIRONMENT) ## Style, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(ENVIRONMENT) ## Put the source into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

up: $(ENVIRONMENT) ## Start Kafka and Redis to develop against
	@$(BIN)/tidings local up

down: $(ENVIRONMENT) ## Stop them
	@$(BIN)/tidings local down
