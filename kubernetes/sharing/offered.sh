#!/usr/bin/env bash
# Says whether a node offers what the pods of an overlay ask for, and what switches one on; changes nothing.
# CONTEXT=NAME kubernetes/sharing/offered.sh kubernetes/sharing/overlays/ts
set -euo pipefail
overlay=$1
kubectl=(kubectl ${CONTEXT:+--context "$CONTEXT"})
built=$("${kubectl[@]}" kustomize "$overlay")
resource=$(sed -nE 's#^ +(nvidia\.com/[a-zA-Z0-9.-]+): "1"$#\1#p' <<<"$built" | head -n 1)
[ -n "$resource" ] || exit 0
selector=$(awk '/^      nodeSelector:/ {on=1; next} /^      [^ ]/ {on=0} on {gsub(/[ "]/, ""); sub(/:/, "="); print}' <<<"$built" | paste -sd, -)
template="{{range .items}}{{.metadata.name}} {{or (index .status.allocatable \"$resource\") 0}}{{\"\\n\"}}{{end}}"
if ! nodes=$("${kubectl[@]}" get nodes ${selector:+-l "$selector"} -o go-template="$template" 2>&1); then
  echo "Whether a node offers $resource is not known: $(tail -n 1 <<<"$nodes")"
  exit 0
fi
found=$(awk '$2 + 0 > 0 {printf "%s%s offers %s", sep, $1, $2; sep = ", "}' <<<"$nodes")
if [ -n "$found" ]; then
  echo "$resource: $found"
  exit 0
fi
echo "No node offers $resource${selector:+ (with $selector)} yet: the pods will wait."
case "$(basename "$overlay")" in
  ts) next="kubectl label nodes NODE nvidia.com/device-plugin.config=gputax-time-slicing-7 --overwrite" ;;
  mps) next="kubectl label nodes NODE nvidia.com/device-plugin.config=gputax-mps-7 --overwrite" ;;
  mig) next="kubectl label nodes NODE nvidia.com/mig.config=all-1g.10gb --overwrite" ;;
  nos-mps) next="kubectl label nodes NODE nos.nebuly.com/gpu-partitioning=mps" ;;
  *) next="make a node pool for it: docs/sharing.md, section GKE" ;;
esac
echo "Next: $next"
