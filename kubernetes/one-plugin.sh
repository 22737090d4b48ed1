#!/usr/bin/env bash
# Two device plugins on a node offer its GPUs twice. Refuses (exit code 3) to add a second one; changes nothing.
# The DRA driver is the third: it hands out the same GPUs in another way.
# CONTEXT=NAME kubernetes/one-plugin.sh operator|device-plugin|dra
set -euo pipefail
wanted=$1
kubectl=(kubectl ${CONTEXT:+--context "$CONTEXT"})
refuse() {
  echo "$1; a second device plugin would offer the same GPUs again. Nothing was touched." >&2
  echo "Next: $2" >&2
  exit 3
}
gke=cloud.google.com/gke-accelerator,gke-no-default-nvidia-gpu-device-plugin!=true
if [ -n "$("${kubectl[@]}" get nodes -l "$gke" -o name 2>/dev/null)" ]; then
  refuse "GKE's own device plugin serves the GPU nodes here" \
    "make install-kube-prometheus, then make deploy-ts FLAVOUR=gke (one node pool per technique: docs/sharing.md)"
fi
# By name, as NVIDIA's chart, its plain manifest and gputax deploy call it; the operator's own belongs to its ClusterPolicy.
serving=$("${kubectl[@]}" get daemonsets --all-namespaces --no-headers \
  -o custom-columns=N:.metadata.namespace,D:.metadata.name,O:.metadata.ownerReferences[0].kind 2>/dev/null |
  awk '$2 ~ /nvidia-device-plugin/ && $3 == "<none>" {print $1 "/" $2; exit}' || true)
operator=$("${kubectl[@]}" get clusterpolicies.nvidia.com -o name 2>/dev/null || true)
# The classes come with the driver; who may not see them finds none.
claims=$("${kubectl[@]}" get deviceclasses.resource.k8s.io gpu.nvidia.com -o name 2>/dev/null || true)
if [ -n "$claims" ] && [ "$wanted" != dra ]; then
  refuse "NVIDIA's DRA driver serves the GPUs here" "gputax share --env k8s --sharing-flavour dra, or remove the driver first"
fi
case "$wanted" in
  operator)
    if [ -n "$serving" ]; then
      refuse "NVIDIA's device plugin runs here by itself ($serving)" \
        "stay with it, or remove it first (helm list --all-namespaces shows whether a chart made it)"
    fi ;;
  device-plugin)
    if [ -n "$operator" ]; then
      refuse "the GPU operator runs here and brings its own device plugin" "make install-gpu-operator (it updates it)"
    fi ;;
  dra)
    if [ -n "$serving" ] || [ -n "$operator" ]; then
      refuse "NVIDIA's device plugin runs here (${serving:-the GPU operator brings it})" \
        "remove it first, or keep it: gputax share --env k8s works with it"
    fi ;;
  *) echo "operator, device-plugin or dra, not $wanted" >&2; exit 2 ;;
esac
