# evalward: `make help` lists what there is. Every target does its own set-up.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Lambda runs python3.13: look for it on PATH, then under pyenv, then let uv fetch one.
PYTHON313 := $(shell command -v python3.13 >/dev/null 2>&1 && python3.13 -c 'import sys; print(sys.executable)' 2>/dev/null || ls -d $(HOME)/.pyenv/versions/3.13*/bin/python3.13 2>/dev/null | tail -n 1)
UV_VERSION := 0.13.9
UV := .local/uv/bin/uv
export UV_PYTHON := $(or $(PYTHON313),3.13)
export UV_PYTHON_DOWNLOADS := automatic
export SAM_CLI_TELEMETRY := 0
MANIFESTS := uv.lock pyproject.toml $(wildcard functions/*/pyproject.toml layers/*/pyproject.toml client/pyproject.toml local/pyproject.toml)

.PHONY: help
help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

$(UV):
	@python3 -m venv .local/uv
	@.local/uv/bin/pip install --quiet --disable-pip-version-check 'uv==$(UV_VERSION)'

.venv/.ready: $(UV) $(MANIFESTS)
	@echo "setting up .venv (first time: about a minute)"
	@$(UV) sync --frozen --quiet
	@touch $@

.local/sam/.ready: $(UV) $(MANIFESTS)
	@echo "setting up .local/sam (aws-sam-cli)"
	@UV_PROJECT_ENVIRONMENT=.local/sam $(UV) sync --frozen --quiet --only-group sam
	@touch $@

# Trace stores that run beside us: their dependencies fit no other environment, so each has a lock of its own.
.local/mlflow/.ready .local/phoenix/.ready: .local/%/.ready: $(UV) tests/peers/%_server/uv.lock
	@echo "setting up .local/$*"
	@UV_PROJECT_ENVIRONMENT=$(CURDIR)/.local/$* $(UV) sync --frozen --quiet --compile-bytecode --project tests/peers/$*_server
	@touch $@

.PHONY: setup
setup: .venv/.ready ## make .venv with everything (quick when nothing changed)

.PHONY: demo
demo: setup ## run the main job on an ephemeral local stack, told step by step
	@.venv/bin/evalward-local demo

.PHONY: up
up: setup ## run the local stack in the foreground (ephemeral; Ctrl-C stops it)
	@.venv/bin/evalward-local up --ephemeral --state .local/stack

# Lambda's architecture here is this machine's, so that `evalward-local up --built` can run the result.
ARCHITECTURE ?= $(if $(filter aarch64 arm64,$(shell uname -m)),arm64,x86_64)

.PHONY: build
build: setup .local/sam/.ready ## sam build of template.yaml, bytecode, sizes (ARCHITECTURE=arm64|x86_64)
	@$(UV_PYTHON) -m pip --version >/dev/null 2>&1 || { echo "make build needs a python3.13 with pip: put one first on PATH"; exit 1; }
	@.venv/bin/evalward-local write-requirement-files --uv $(UV) >/dev/null
	@PATH="$(dir $(UV_PYTHON)):$$PATH" .local/sam/bin/sam build --cached --parallel --parameter-overrides Architecture=$(ARCHITECTURE) >.local/sam-build.log 2>&1 || { cat .local/sam-build.log; exit 1; }
	@.venv/bin/evalward-local finish-build --python $(UV_PYTHON)

.PHONY: test
test: setup .local/openapi/.ready ## run the tests: unit, integration, contract, artifact, e2e, chaos
	@echo "the tests marked long are LEFT OUT (make test-long)"; left="not long"; \
	for program in pgbouncer chromium; do PATH="$$PATH:/usr/sbin" command -v $$program >/dev/null || { \
		echo "$$program is not installed: the tests marked so are LEFT OUT (apt-get install $$program)"; left="$$left and not $$program"; }; done; \
	.venv/bin/pytest -n 2 --dist loadfile -m "$$left"

.PHONY: test-long
test-long: setup .local/openapi/.ready ## run the tests that take a quarter of a minute and more each
	@.venv/bin/pytest -m long

.PHONY: chaos
chaos: setup ## the tests of crashes in their long form: runs of 100,000 records (RECORDS=..., SEED=...)
	@EVALWARD_CHAOS_RECORDS=$(or $(RECORDS),100000) EVALWARD_CHAOS_SEED=$(or $(SEED),6) .venv/bin/pytest tests/chaos tests/e2e/test_crashes.py

.PHONY: fuzz
fuzz: setup ## fuzz the page walk and the cron grammar (FUZZ_SECONDS=60 each; what is new stays in .local/fuzz)
	@for run in parquet_pages:corpus cron:cron_corpus; do \
		name=$${run%%:*}; mkdir -p .local/fuzz/$$name; \
		.venv/bin/python tests/fuzz/fuzz_$$name.py .local/fuzz/$$name tests/fuzz/$${run##*:} -max_total_time=$(or $(FUZZ_SECONDS),60) \
			-max_len=65536 -rss_limit_mb=1024 -timeout=10 -artifact_prefix=.local/fuzz/$$name- -print_final_stats=1 -verbosity=0; \
	done

.PHONY: peers
peers: setup .local/mlflow/.ready .local/phoenix/.ready ## run the tests against real MLflow and Phoenix servers
	@.venv/bin/pytest tests/peers

.PHONY: check
check: setup ## formatter, linter, types, import rules, SQL lint
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/basedpyright
	@.venv/bin/lint-imports
	@.venv/bin/squawk layers/coordination/src/coordination/sql/migrations/*.sql

.local/template/.ready: $(UV) tests/template/uv.lock
	@echo "setting up .local/template (cfn-lint, checkov)"
	@UV_PROJECT_ENVIRONMENT=$(CURDIR)/.local/template $(UV) sync --frozen --quiet --project tests/template
	@touch $@

.local/openapi/.ready: $(UV) tests/openapi/uv.lock
	@echo "setting up .local/openapi (schemathesis)"
	@UV_PROJECT_ENVIRONMENT=$(CURDIR)/.local/openapi $(UV) sync --frozen --quiet --project tests/openapi
	@touch $@

.local/ministack/.ready: $(UV) tests/deploy/uv.lock
	@echo "setting up .local/ministack"
	@UV_PROJECT_ENVIRONMENT=$(CURDIR)/.local/ministack $(UV) sync --frozen --quiet --project tests/deploy
	@touch $@

.PHONY: deploy-test
deploy-test: build .local/ministack/.ready ## deploy what was built into an emulator (ministack), with a real database
	@.venv/bin/pytest tests/deploy

.PHONY: pictures
pictures: setup ## photograph console and report for docs/pictures (needs chromium)
	@.venv/bin/python -m evalward_local.pictures

.PHONY: lint-template
lint-template: .local/template/.ready ## cfn-lint with its serverless rules and checkov over template.yaml (exceptions: .cfnlintrc.yaml, .checkov.yaml)
	@.local/template/bin/cfn-lint
	@.local/template/bin/checkov --config-file .checkov.yaml

.PHONY: bench
bench: setup ## measure beside the peers (quiet machine, redis-server), write docs/benchmarks.*
	@$(UV) sync --frozen --quiet --group bench
	@POWERTOOLS_LOG_LEVEL=ERROR .venv/bin/python -m bench
