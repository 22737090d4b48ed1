# gputax: `make run` measures this machine, `make test` checks the tool. Both set up what they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input -q

.PHONY: help run test lint bench test-torch pins schema clean
help:  ## show these targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

run: $(VENV)/.installed  ## measure this machine: inference, its resolution, the report (about two minutes once set up)
	$(BIN)/gputax run --suite quick
	$(BIN)/gputax doctor --resolution --max-time 20
	$(BIN)/gputax report "$$(ls -td results/bare-* | head -1)"

test: $(VENV)/.installed-dev  ## all tests that need no GPU, no network and no torch (about six minutes on two cores)
	$(BIN)/python -m pytest

lint: $(VENV)/.installed-dev  ## ruff, mypy (strict), import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.installed-dev  ## measure the tool itself; writes results/bench.json
	$(BIN)/python -m bench

test-torch: .venv-torch/.installed-torch  ## compare the graphs with the transformers library (installs torch, 5 GB)
	.venv-torch/bin/python -m pytest -m torch

schema: $(VENV)/.installed-dev  ## write docs/benchmark_results.schema.json anew
	$(BIN)/python -m gputax.results.schema docs/benchmark_results.schema.json

pins: $(VENV)/.installed-dev  ## resolve requirements/*.in anew, with hashes and without an index
	$(PIP) install uv
	for set in cpu dev torch; do $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-annotate --no-header -q requirements/$$set.in -o requirements/$$set.txt; done

clean:  ## remove the environments and caches
	rm -rf .venv .venv-torch .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build dist

.venv/bin/python .venv-torch/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || { \
	  echo "gputax needs Python 3.11 to 3.13 (MLPerf LoadGen has wheels for no newer one); found: $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Next: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 3; }
	@$(PYTHON) -m venv $(@D)/.. || { echo "python3 has no venv module. Next: apt-get install python3-venv" >&2; exit 3; }

%/.installed: requirements/cpu.txt pyproject.toml | %/bin/python
	$*/bin/python -m pip --disable-pip-version-check --no-input -q install --require-hashes -r $<
	$*/bin/python -m pip --disable-pip-version-check --no-input -q install --no-deps --no-build-isolation -e .
	@touch $@

%/.installed-dev: requirements/dev.txt %/.installed
	$*/bin/python -m pip --disable-pip-version-check --no-input -q install --require-hashes -r $<
	@touch $@

%/.installed-torch: requirements/torch.txt %/.installed-dev
	$*/bin/python -m pip --disable-pip-version-check --no-input -q install --require-hashes -r $<
	@touch $@
