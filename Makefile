# gputax: `make run` measures this machine, `make test` checks the tool. Both set up what they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TOUR := micro:operation,micro:launch,micro:allocate,micro:copy-in-100MB,micro:copy-out-100MB
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input -q

.PHONY: help run test fuzz lint e2e bench native test-torch pins schema clean
help:  ## show these targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

run: $(VENV)/.installed native  ## measure this machine: inference, its resolution, the GPU proxy, the report (under four minutes once set up)
	$(BIN)/gputax run --suite quick
	$(BIN)/gputax doctor --resolution --max-time 20
	@echo "What does the GPU proxy cost? On a software device that takes 125 us a kernel and copies at 4.5 GB/s: no GPU's numbers."
	@# 6 (over budget) and 7 (inconclusive) are answers too; anything else is a failure.
	GPUTAX_SOFT_KERNEL_US=125 GPUTAX_SOFT_COPY_GBPS=4.5 GPUTAX_PROXY_SPIN=always $(BIN)/gputax duet bare bare+proxy --device software \
	  --workload $(TOUR) --max-time 25 --out "results/proxy-$$(date +%Y%m%d-%H%M%S)" || [ $$? -ge 6 -a $$? -le 7 ]
	$(BIN)/gputax report "$$(ls -td results/bare-* | head -1)" "$$(ls -td results/proxy-* | head -1)" \
	  --out "$$(ls -td results/bare-* | head -1)/report.html"

native:  ## build the software CUDA device, libvgpu and the GPU proxy into native/build (gcc and make)
	$(MAKE) -C native

test: $(VENV)/.installed-dev native  ## all tests that need no GPU, no network and no torch (under ten minutes on two cores)
	$(BIN)/python -m pytest -n 2 --dist loadfile --ignore tests/accuracy
	@# Ground truth in time is checked with the machine to itself.
	$(BIN)/python -m pytest tests/accuracy

fuzz:  ## the long fuzz run of ring, socket and calls: ten minutes each, with the corpus of the repository
	$(MAKE) -C native fuzz
	for target in ring socket calls; do \
	  native/build/fuzz/$$target --executions 100000000 --seconds 600 --corpus native/fuzz/corpus/$$target || exit 1; done

lint: $(VENV)/.installed-dev  ## ruff, mypy (strict), import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

e2e: $(VENV)/.installed-e2e native  ## the product on a real Kubernetes started here (root), or on KUBECONFIG's; builds Kubernetes once
	$(BIN)/python -m e2e prepare
	$(BIN)/python -m pytest -m e2e --durations=0 --durations-min=1 tests/e2e

bench: $(VENV)/.installed-dev  ## measure the tool itself; writes results/bench.json
	$(BIN)/python -m bench

test-torch: .venv-torch/.installed-torch  ## compare the graphs with the transformers library (installs torch, 5 GB)
	.venv-torch/bin/python -m pytest -m torch

schema: $(VENV)/.installed-dev  ## write docs/*.schema.json anew
	$(BIN)/python -m gputax.results.schema docs

pins: $(VENV)/.installed-dev  ## resolve requirements/*.in anew, with hashes and without an index
	$(PIP) install uv
	for set in cpu cuda dev e2e torch; do $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-annotate --no-header -q requirements/$$set.in -o requirements/$$set.txt; done

clean:  ## remove the environments and caches
	rm -rf .venv .venv-torch .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build dist native/build

.venv/bin/python .venv-torch/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || { \
	  echo "gputax needs Python 3.11 to 3.13 (MLPerf LoadGen has wheels for no newer one); found: $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Next: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 3; }
	@$(PYTHON) -m venv $(@D)/.. || { echo "python3 has no venv module. Next: apt-get install python3-venv" >&2; exit 3; }

# Without this, make removes the stamps of an environment that it passed on the way to another.
.PRECIOUS: %/.installed %/.installed-dev

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

%/.installed-e2e: requirements/e2e.txt %/.installed-dev
	$*/bin/python -m pip --disable-pip-version-check --no-input -q install --require-hashes -r $<
	@touch $@
