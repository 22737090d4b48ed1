#!/usr/bin/env bash
# Ends with exit code 3 and the next command unless the named tools are here and a cluster answers; changes nothing.
# CONTEXT=NAME kubernetes/preflight.sh kubectl helm
set -euo pipefail
for tool in "$@"; do
  if ! command -v "$tool" >/dev/null; then
    echo "$tool is not installed here; nothing was touched." >&2
    case "$tool" in
      kubectl) echo "Next: https://kubernetes.io/docs/tasks/tools/" >&2 ;;
      helm) echo "Next: https://helm.sh/docs/intro/install/" >&2 ;;
      *) echo "Next: install $tool with your system's package manager" >&2 ;;
    esac
    exit 3
  fi
done
kubectl=(kubectl ${CONTEXT:+--context "$CONTEXT"})
# Every account may read /version, so an answer here needs no rights.
if ! said=$("${kubectl[@]}" --request-timeout=10s get --raw /version 2>&1); then
  echo "No Kubernetes cluster answers${CONTEXT:+ in the context $CONTEXT}; nothing was touched." >&2
  echo "kubectl says: $(tail -n 1 <<<"$said")" >&2
  echo "Next: kubectl config get-contexts, then the same command with CONTEXT=NAME (or set KUBECONFIG)" >&2
  exit 3
fi
version=$(sed -nE 's/.*"gitVersion": *"([^"]+)".*/\1/p' <<<"$said" | head -n 1)
echo "Cluster: ${CONTEXT:-$("${kubectl[@]}" config current-context 2>/dev/null || echo "the one of kubectl")}, Kubernetes ${version:-of unknown version}"
