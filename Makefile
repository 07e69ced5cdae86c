# Two commands: `make run` starts the agent, `make test` checks everything that a change needs.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
ARGS   ?=

.PHONY: run test test-full check unit setup clean bench

# A model that is named, or a command such as `demo`, needs nothing more. Standard output is the
# program's alone, for whoever reads its JSON.
run: $(VENV)/.installed
	$(if $(findstring --model,$(ARGS))$(filter-out -%,$(firstword $(ARGS))),,@$(BIN)/python scripts/offline.py >&2)
	@$(BIN)/travois $(ARGS)

test: $(VENV)/.installed-dev
	@$(MAKE) --no-print-directory check
	@$(MAKE) --no-print-directory unit

# What takes longer: every end-to-end test on a machine without namespaces, long fuzzing, and each
# Python from 3.11 on that this machine has.
test-full: test
	$(BIN)/pytest -n 2 --dist worksteal --backend landlock tests/e2e tests/conformance
	$(BIN)/pytest -n 2 --dist worksteal --hypothesis-profile long tests/kernel tests/wire tests/policy tests/tools tests/store
	@scripts/test_pythons.sh "$(abspath $(BIN)/python)"

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports --no-cache

unit: $(VENV)/.installed-dev
	$(BIN)/pytest -n 2 --dist worksteal

bench: $(VENV)/.installed-dev
	$(BIN)/python -m bench $(ARGS)

setup: $(VENV)/.installed-dev

$(VENV)/bin/python:
	@echo "Setting up Travois in $(VENV) (first run only)..." >&2
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Travois needs Python 3.11 or newer; run: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[code,embed,mcp,web]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed scripts/test_needs.sh
	@scripts/test_needs.sh
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group dev
	@$(BIN)/python scripts/offline.py --all
	@! command -v npm >/dev/null || npm install --silent --no-audit --no-fund --prefix $(VENV)/mcp-node \
	  $(addprefix @modelcontextprotocol/server-,filesystem@2026.8.31 memory@2026.8.31) 2>/dev/null || \
	  echo "The servers of npm could not be had; their tests will skip."
	@! command -v npm >/dev/null || npm install --silent --no-audit --no-fund --omit=optional \
	  --prefix $(VENV)/codex-node @openai/codex-sdk@0.163.0 2>/dev/null || \
	  echo "The SDK of Codex could not be had; its tests will skip."
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
