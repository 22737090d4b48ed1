# gputax: `make run` measures this machine, `make test` checks the tool. Both set up what they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
FAST := $(addprefix tests/,smoke unit golden contract simulation)
SLOW := $(addprefix tests/,process docs native browser)
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input -q

.PHONY: help run test test-all test-slow test-simulations test-quiet setup-tests e2e-prepare
.PHONY: wheel sbom test-servers setup-servers test-xen fuzz lint format-c e2e e2e-frameworks bench native test-torch test-frameworks setup-frameworks pins generated schema manifests clean
.PHONY: install check-install install-cert-manager install-kube-prometheus install-nvidia-device-plugin install-gpu-operator
.PHONY: install-nvidia-dra-driver
.PHONY: deploy-ts deploy-mps deploy-mig deploy-cpu deploy-monitoring undeploy-sharing port-forward-prometheus port-forward-grafana
help:  ## show these targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 32

run: $(VENV)/.installed native  ## set up, and measure this machine with `gputax demo` (about five minutes once set up)
	$(BIN)/gputax demo

native:  ## build the software CUDA device, libvgpu and the GPU proxy into native/build (gcc and make)
	$(MAKE) -C native

wheel: $(VENV)/.installed native  ## a wheel with the native parts, in dist/ (Linux; needs objdump and strip)
	$(BIN)/python -m release.wheel

sbom:  ## print the bill of materials (CycloneDX) that is in the image IMAGE=gputax:0.1.0 (docker or podman)
	@engine=$$(command -v docker || command -v podman) || { echo "neither docker nor podman is installed" >&2; exit 3; }; \
	  $$engine run --rm --network none $(or $(IMAGE),gputax:0.1.0) cat /opt/gputax/sbom.cdx.json

test: $(VENV)/.installed-dev native  ## the fast tests: no process but one per verb, no network, no GPU (under three minutes on two cores)
	$(BIN)/python -m pytest -n 2 --dist worksteal $(FAST)

test-all:  ## the other tests: processes, documented commands, sanitizers, fuzz, browser, full simulations, timing
	$(MAKE) test-slow
	$(MAKE) test-simulations
	$(MAKE) test-quiet

test-slow: $(VENV)/.installed-dev native  ## its first part: processes, documented commands, sanitizers, fuzz, browser
	$(BIN)/python -m pytest -n 2 --dist worksteal $(SLOW)

test-simulations: $(VENV)/.installed-dev  ## its second part: every number of docs/method.md computed again
	$(BIN)/python -m pytest -n 2 --dist worksteal --full tests/simulation

test-quiet: $(VENV)/.installed-dev native  ## its third part: ground truth in time, with the machine to itself
	$(BIN)/python -m pytest tests/quiet

setup-tests: $(VENV)/.installed-dev native

fuzz:  ## the long fuzz run of ring, socket, calls, ptx, fatbin, cubin and tables: ten minutes each, with the corpus of the repository
	$(MAKE) -C native fuzz
	for target in ring socket calls ptx fatbin cubin tables; do \
	  native/build/fuzz/$$target --executions 100000000 --seconds 600 --corpus native/fuzz/corpus/$$target || exit 1; done

lint: $(VENV)/.installed-dev  ## ruff, mypy (strict; src, bench, e2e, native), import-linter; clang-format, cppcheck and shellcheck (installed with apt as root)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	.ci/lint-native

format-c:  ## format the C with clang-format
	.ci/lint-native --format

e2e: e2e-prepare native  ## the product on a real Kubernetes started here (root), or on KUBECONFIG's; builds Kubernetes once
	$(BIN)/python -m pytest -m e2e --durations=0 --durations-min=1 tests/e2e

e2e-prepare: $(VENV)/.installed-dev  ## its first part: packages, Kubernetes, images; what is not there yet
	$(BIN)/python -m e2e prepare

e2e-frameworks: $(VENV)/.installed-dev native  ## PyTorch and ONNX Runtime CUDA in pods behind the GPU proxy, with null kernels (root; makes an image of 6 GB from the package index)
	$(BIN)/python -m e2e prepare --frameworks
	$(BIN)/python -m pytest -m e2e_frameworks --durations=0 --durations-min=1 tests/e2e

test-xen: $(VENV)/.installed-dev native  ## libvgpu in a Xen guest and the GPU proxy in dom0, booted in an emulator (root; at the lowest priority; makes a Debian once)
	$(BIN)/python -m pytest -m xen -o faulthandler_timeout=7200 --durations=0 tests/xen

bench: $(VENV)/.installed-dev  ## measure the tool itself; writes results/bench.json
	$(BIN)/python -m bench

test-torch: .venv-torch/.installed-torch  ## compare the graphs with the transformers library (installs torch, 5 GB)
	.venv-torch/bin/python -m pytest -m torch

test-frameworks: setup-frameworks native  ## PyTorch, ONNX Runtime CUDA and CuPy on our own drivers, without a GPU (installs 6.4 GB into .venv-frameworks)
	.venv-frameworks/bin/python -m pytest -m frameworks --durations=0 --durations-min=10 tests/frameworks

test-servers: $(VENV)/.installed-dev setup-servers  ## the client of the v2 protocol against a real MLServer on loopback (installs 250 MB into .venv-servers)
	GPUTAX_TEST_SERVERS=$(CURDIR)/.venv-servers/bin $(BIN)/python -m pytest -m servers --durations=0 --durations-min=1 tests/servers

setup-servers:
	@[ -e .venv-servers/.installed-servers ] || echo "Installs MLServer from the package index into .venv-servers: 250 MB"
	@$(MAKE) --no-print-directory .venv-servers/.installed-servers

setup-frameworks:
	@[ -e .venv-frameworks/.installed-frameworks ] || echo "Installs PyTorch, ONNX Runtime, CuPy and NVIDIA's CUDA libraries from the package index into .venv-frameworks: 6.4 GB"
	@$(MAKE) --no-print-directory .venv-frameworks/.installed-frameworks

generated: $(VENV)/.installed-dev manifests  ## write the files that come from code: schemas, warnings, variables, kubernetes/
	$(BIN)/python -m gputax.results.schema docs
	$(BIN)/python -m gputax.plan.notices > docs/warnings.md
	$(BIN)/python -m gputax.plan.options > docs/variables.md

schema: generated  ## the same as `make generated`, under its older name

manifests: $(VENV)/.installed  ## regenerate the YAML files of kubernetes/ from the functions that make a run's pods
	$(BIN)/python -m gputax.kubernetes.manifests kubernetes
	$(BIN)/python -m gputax.sharing.kubernetes.manifests kubernetes
	$(BIN)/python -m gputax.sharing.dra.manifests kubernetes

pins: $(VENV)/.installed-dev  ## resolve requirements/*.in again, with hashes and without an index
	$(PIP) install uv
	for set in cpu cuda cuda-torch dev torch frameworks servers; do $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-annotate --no-header -q requirements/$$set.in -o requirements/$$set.txt; done

clean:  ## remove the environments and caches
	rm -rf .venv .venv-torch .venv-frameworks .venv-servers .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build dist native/build

# Sharing a GPU on a cluster (docs/sharing.md). Each target says what it does and touches nothing without a cluster that answers.
# CONTEXT=NAME of the kubeconfig; NAMESPACE and IMAGE of the tenants; FLAVOUR=gke or nos for their names, dra for make install; HELM_ARGS for the charts.
CONTEXT ?=
NAMESPACE ?= gputax
IMAGE ?=
FLAVOUR ?=
HELM_ARGS ?=
CERT_MANAGER := v1.21.2
KUBE_PROMETHEUS := v0.18.0
DEVICE_PLUGIN := 0.20.0
GPU_OPERATOR := v26.7.0
DRA_DRIVER := 0.5.0
KUBECTL := kubectl$(if $(CONTEXT), --context $(CONTEXT))
HELM := helm$(if $(CONTEXT), --kube-context $(CONTEXT))
IN_CONTEXT := $(if $(CONTEXT),CONTEXT=$(CONTEXT) )
PREFLIGHT := $(IN_CONTEXT)kubernetes/preflight.sh
FLAVOURS := device-plugin operator gke nos
BY_CLAIM := $(filter dra,$(FLAVOUR))
comma := ,
KNOWN_FLAVOUR = $(if $(filter-out $(FLAVOURS),$(FLAVOUR)),$(error FLAVOUR=$(FLAVOUR) is unknown. Next: one of $(FLAVOURS)))
# The overlay of a technique: the flavour's own where its names differ, and a layer over it for another namespace or image.
OVERLAY = $(KNOWN_FLAVOUR)$(firstword $(if $(FLAVOUR),$(wildcard kubernetes/sharing/overlays/$(FLAVOUR)-$(1))) kubernetes/sharing/overlays/$(1))
AS_IS = $(and $(filter gputax,$(NAMESPACE)),$(if $(IMAGE),,yes))
LAYER = $(if $(AS_IS),,@kubernetes/layer.sh $(1) '$(NAMESPACE)' '$(2)')
LAYERED = $(if $(AS_IS),,build/)$(1)

install: check-install install-cert-manager install-kube-prometheus $(if $(BY_CLAIM),install-nvidia-dra-driver,install-gpu-operator)  ## on a cluster: cert-manager, kube-prometheus, the GPU operator with the device plugin (FLAVOUR=dra: the DRA driver instead); pinned
	@echo "Next: gputax share --env k8s$(if $(BY_CLAIM), --sharing-flavour dra$(comma) after kubectl apply -k kubernetes/access-dra,$(comma) or by hand: make deploy-ts)"

check-install:
	@$(PREFLIGHT) kubectl helm curl tar
	@$(IN_CONTEXT)kubernetes/one-plugin.sh $(if $(BY_CLAIM),dra,operator)

install-cert-manager:  ## cert-manager alone
	@$(PREFLIGHT) kubectl
	@echo "Installs cert-manager $(CERT_MANAGER) into the namespace cert-manager"
	$(KUBECTL) apply -f https://github.com/cert-manager/cert-manager/releases/download/$(CERT_MANAGER)/cert-manager.yaml
	$(KUBECTL) -n cert-manager wait --for condition=Available deployment --all --timeout 300s

install-kube-prometheus:  ## kube-prometheus alone (Prometheus operator, Prometheus, Grafana), with our PodMonitor and dashboard
	@$(PREFLIGHT) kubectl curl tar
	@echo "Installs kube-prometheus $(KUBE_PROMETHEUS) into the namespace monitoring, without its metrics adapter"
	mkdir -p build/kube-prometheus
	curl -fsSL -o build/kube-prometheus.tar.gz https://github.com/prometheus-operator/kube-prometheus/archive/refs/tags/$(KUBE_PROMETHEUS).tar.gz
	tar -xzf build/kube-prometheus.tar.gz -C build/kube-prometheus --strip-components 1
	@# The adapter would take the API metrics.k8s.io away from the metrics-server that most clusters have.
	rm -f build/kube-prometheus/manifests/prometheusAdapter-*.yaml
	$(KUBECTL) apply --server-side -f build/kube-prometheus/manifests/setup
	$(KUBECTL) wait --for condition=Established --all CustomResourceDefinition --timeout 120s
	$(KUBECTL) apply --server-side -f build/kube-prometheus/manifests
	$(MONITOR)

install-gpu-operator:  ## NVIDIA's GPU operator alone: driver, runtime, device plugin with our sharing configuration, MIG manager, DCGM
	@$(PREFLIGHT) kubectl helm
	@$(IN_CONTEXT)kubernetes/one-plugin.sh operator
	@echo "Installs the GPU operator $(GPU_OPERATOR) with the device plugin $(DEVICE_PLUGIN) into the namespace gpu-operator"
	$(call PRIVILEGED,gpu-operator)
	$(KUBECTL) -n gpu-operator apply -k kubernetes/sharing/device-plugin
	$(HELM) upgrade --install gpu-operator gpu-operator --repo https://helm.ngc.nvidia.com/nvidia --version $(GPU_OPERATOR) \
	  --namespace gpu-operator --values kubernetes/sharing/values/gpu-operator.yaml --set devicePlugin.version=v$(DEVICE_PLUGIN) \
	  --set gfd.version=v$(DEVICE_PLUGIN) --wait --timeout 20m $(HELM_ARGS)
	if $(KUBECTL) get crd servicemonitors.monitoring.coreos.com >/dev/null 2>&1; then $(KUBECTL) apply -k kubernetes/monitoring/dcgm; fi

install-nvidia-device-plugin:  ## instead of the operator, where driver and runtime are there: the device plugin alone
	@$(PREFLIGHT) kubectl helm
	@$(IN_CONTEXT)kubernetes/one-plugin.sh device-plugin
	@echo "Installs NVIDIA's device plugin $(DEVICE_PLUGIN) into the namespace nvidia-device-plugin"
	$(call PRIVILEGED,nvidia-device-plugin)
	$(KUBECTL) -n nvidia-device-plugin apply -k kubernetes/sharing/device-plugin
	$(HELM) upgrade --install nvidia-device-plugin nvidia-device-plugin --repo https://nvidia.github.io/k8s-device-plugin \
	  --version $(DEVICE_PLUGIN) --namespace nvidia-device-plugin --values kubernetes/sharing/values/nvidia-device-plugin.yaml \
	  --wait --timeout 10m $(HELM_ARGS)

install-nvidia-dra-driver:  ## instead of the device plugin, on Kubernetes 1.34 or newer: NVIDIA's DRA driver, with its gates for time slices and MPS
	@$(PREFLIGHT) kubectl helm
	@$(IN_CONTEXT)kubernetes/one-plugin.sh dra
	@echo "Installs NVIDIA's DRA driver $(DRA_DRIVER) into the namespace dra-driver-nvidia-gpu"
	$(call PRIVILEGED,dra-driver-nvidia-gpu)
	$(HELM) upgrade --install dra-driver-nvidia-gpu dra-driver-nvidia-gpu --repo https://helm.ngc.nvidia.com/nvidia \
	  --version $(DRA_DRIVER) --namespace dra-driver-nvidia-gpu --values kubernetes/sharing/values/nvidia-dra-driver.yaml \
	  --wait --timeout 10m $(HELM_ARGS)

deploy-ts:  ## one tenant under time-slicing; scale it with kubectl
	$(call DEPLOY,ts)

deploy-mps:  ## one tenant under MPS
	$(call DEPLOY,mps)

deploy-mig:  ## one tenant on a MIG slice
	$(call DEPLOY,mig)

deploy-cpu:  ## one tenant on the CPU: a stand-in to try the procedure without a GPU
	$(call DEPLOY,cpu)

deploy-monitoring:  ## PodMonitor and dashboard for a Prometheus operator in the namespace monitoring
	@$(PREFLIGHT) kubectl
	@echo "Lets Prometheus scrape the tenants in the namespace $(NAMESPACE), and shows Grafana the dashboard"
	$(MONITOR)

undeploy-sharing:  ## take the tenants away; namespace, monitoring and what make install brought stay
	@$(PREFLIGHT) kubectl
	$(KUBECTL) -n $(NAMESPACE) delete deployment gputax-client --ignore-not-found --wait
	@echo "A node goes back to whole GPUs with: $(KUBECTL) label nodes NODE nvidia.com/device-plugin.config- nvidia.com/mig.config=all-disabled --overwrite"

port-forward-prometheus:  ## Prometheus at http://localhost:9090, until Ctrl-C
	@$(PREFLIGHT) kubectl
	$(KUBECTL) -n monitoring port-forward service/prometheus-k8s 9090:9090

port-forward-grafana:  ## Grafana at http://localhost:3000, until Ctrl-C (user and password at first: admin)
	@$(PREFLIGHT) kubectl
	$(KUBECTL) -n monitoring port-forward service/grafana 3000:3000

define DEPLOY
@$(PREFLIGHT) kubectl
@echo "Applies $(call OVERLAY,$(1)): one tenant of YOLOS-small in the namespace $(NAMESPACE)$(if $(IMAGE), from the image $(IMAGE))"
$(call LAYER,$(call OVERLAY,$(1)),$(IMAGE))
$(KUBECTL) apply -k $(call LAYERED,$(call OVERLAY,$(1)))
@$(IN_CONTEXT)kubernetes/sharing/offered.sh $(call OVERLAY,$(1))
@echo "More tenants: $(KUBECTL) -n $(NAMESPACE) scale deployment gputax-client --replicas 3"
endef

define MONITOR
$(call LAYER,kubernetes/access)
$(call LAYER,kubernetes/monitoring)
@# A namespace that is there keeps its pod security: some techniques need more than the restricted one.
$(KUBECTL) get namespace $(NAMESPACE) >/dev/null 2>&1 || $(KUBECTL) apply -k $(call LAYERED,kubernetes/access)
$(KUBECTL) apply -k $(call LAYERED,kubernetes/monitoring)
@# kube-prometheus' Grafana has no sidecar that would find the dashboard.
if $(KUBECTL) -n monitoring get deployment grafana >/dev/null 2>&1; then \
  $(KUBECTL) -n monitoring patch deployment grafana --patch-file kubernetes/monitoring/grafana-kube-prometheus.yaml; fi
endef

# The parts of the driver's installation need more than restricted pod security lets them.
define PRIVILEGED
$(KUBECTL) create namespace $(1) --dry-run=client -o yaml | $(KUBECTL) apply -f -
$(KUBECTL) label namespace $(1) pod-security.kubernetes.io/enforce=privileged --overwrite
endef

.venv/bin/python .venv-torch/bin/python .venv-frameworks/bin/python .venv-servers/bin/python:
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

# Not on top of the others: onnxruntime and onnxruntime-gpu install the same module.
.venv-frameworks/.installed-frameworks: requirements/frameworks.txt pyproject.toml | .venv-frameworks/bin/python
	.venv-frameworks/bin/python -m pip --disable-pip-version-check --no-input -q install --require-hashes -r $<
	.venv-frameworks/bin/python -m pip --disable-pip-version-check --no-input -q install --no-deps --no-build-isolation -e .
	@touch $@

# Alone: the server's packages are not ours, and gputax asks it from outside.
.venv-servers/.installed-servers: requirements/servers.txt | .venv-servers/bin/python
	.venv-servers/bin/python -m pip --disable-pip-version-check --no-input -q install --require-hashes -r $<
	@touch $@
