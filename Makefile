# Two commands: `make run` starts the agent, `make test` checks everything that a change needs.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
ARGS   ?=

.PHONY: run test test-full check unit setup clean bench lock sbom notice release docs

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
	$(BIN)/pytest -n 2 --dist worksteal -m full
	$(BIN)/pytest -n 2 --dist worksteal --backend landlock tests/e2e tests/conformance
	$(BIN)/pytest -n 2 --dist worksteal --hypothesis-profile long tests/core tests/providers tests/permissions tests/tools tests/sessions tests/search tests/memory
	$(BIN)/python -m tests.permissions.observed 1 3000
	$(BIN)/python -m bench permissions --fuzz 100000
	$(BIN)/python -m bench conformance --write
	@scripts/test_pythons.sh "$(abspath $(BIN)/python)"
	$(BIN)/python scripts/test_install.py --ways --from HEAD

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/notice.py --check

unit: $(VENV)/.installed-dev
	$(BIN)/pytest -n 3 --dist worksteal

bench: $(VENV)/.installed-dev
	$(BIN)/python -m bench $(ARGS)

setup: $(VENV)/.installed-dev

# Choose versions anew within the bounds of pyproject.toml, for every Python from 3.11 on and every
# platform. ARGS="--upgrade" takes the newest; without it, versions change only where they must.
lock: $(VENV)/.installed-dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.13,<0.14'
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-annotate \
	  --custom-compile-command 'make lock' --group dev $(addprefix --extra ,browser code embed fleet local mcp otel store web) $(ARGS) pyproject.toml -o requirements-dev.lock
	@$(BIN)/python scripts/notice.py

# What a release contains, as CycloneDX JSON.
sbom: $(VENV)/.installed-dev
	@mkdir -p dist
	@$(BIN)/python scripts/sbom.py > dist/travois.cdx.json
	@echo dist/travois.cdx.json

# Build, check and tag: make release VERSION=0.2.0. Refuses a tree with changes; uploads nothing.
release: $(VENV)/.installed-dev
	@$(BIN)/python scripts/release.py $(VERSION)

# The documentation site, into build/site.
docs: $(VENV)/.installed-dev
	@$(BIN)/python scripts/build_docs.py

# The licences of all that Travois needs at run time, into NOTICE.
notice: $(VENV)/.installed-dev
	@$(BIN)/python scripts/notice.py

$(VENV)/bin/python:
	@echo "Setting up Travois in $(VENV) (first run only)..." >&2
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Travois needs Python 3.11 or newer; run: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml packages/travois-lab/pyproject.toml
	@echo "Downloading and installing the packages of Travois: about 35 MB (first run only)..." >&2
	@$(BIN)/python -m pip install --disable-pip-version-check -e '.[code,embed,mcp,web]' -e packages/travois-lab >&2
	@touch $@

# Tests run with exactly the packages of the lock file, each checked against its hash; the build
# backend is one of them, so nothing is downloaded to build with.
$(VENV)/.installed-dev: $(VENV)/bin/python pyproject.toml packages/travois-lab/pyproject.toml requirements-dev.lock scripts/test_needs.sh
	@scripts/test_needs.sh
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . -e packages/travois-lab
	@$(BIN)/python scripts/offline.py --all
	@! command -v npm >/dev/null || npm install --silent --no-audit --no-fund --prefix $(VENV)/mcp-node \
	  $(addprefix @modelcontextprotocol/server-,filesystem@2026.8.31 memory@2026.8.31) 2>/dev/null || \
	  echo "The servers of npm could not be had; their tests will skip."
	@! command -v npm >/dev/null || npm install --silent --no-audit --no-fund --omit=optional \
	  --prefix $(VENV)/codex-node @openai/codex-sdk@0.163.0 2>/dev/null || \
	  echo "The SDK of Codex could not be had; its tests will skip."
	@touch $(VENV)/.installed $@

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
