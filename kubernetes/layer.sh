#!/usr/bin/env bash
# Writes a kustomization over one of ours, below build/, with another namespace and perhaps another image.
# kubernetes/layer.sh kubernetes/sharing/overlays/ts NAMESPACE [IMAGE]
set -euo pipefail
source=$1 namespace=$2 image=${3:-}
target=build/$source
mkdir -p "$target"
exec >"$target/kustomization.yaml"
# shellcheck disable=SC2001 # one ".." for each part of the path: not a pattern that bash replaces
cat <<END
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- $(sed 's#[^/][^/]*#..#g' <<<"$target")/$source
END
if [ "$source" = kubernetes/monitoring ]; then
  # The dashboard stays where Grafana looks for it.
  echo "patches:"
  for kind in PodMonitor Role RoleBinding; do
    cat <<END
- target:
    kind: $kind
  patch: |
    - op: replace
      path: /metadata/namespace
      value: "$namespace"
END
  done
else
  echo "namespace: \"$namespace\""
fi
[ -n "$image" ] || exit 0
last=${image##*/}
case "$last" in
  *@*) name=${image%@*} version="digest: \"${image##*@}\"" ;;
  *:*) name=${image%:*} version="newTag: \"${last##*:}\"" ;;
  *) name=$image version="newTag: latest" ;;
esac
# The tenants' metrics name the image; nothing inside a pod can tell it.
cat <<END
images:
- name: gputax
  newName: "$name"
  $version
patches:
- target:
    kind: Deployment
    name: gputax-client
  patch: |
    - op: add
      path: /spec/template/spec/containers/0/env/-
      value:
        name: GPUTAX_IMAGE
        value: "$image"
END
