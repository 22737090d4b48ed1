#!/usr/bin/env bash
# Build the Kubernetes of the end-to-end tests once and print the directory it is in.
#
# usage: build.sh [--where]       --where only prints the directory
# From Go modules, so it needs Go and a module proxy the first time: 530 CPU seconds (measured), 2.6 GB of Go's own
# cache while it builds, 370 MB kept. An interrupted build continues from that cache.
set -euo pipefail
cd "$(dirname "$0")"

version=$(sed -nE 's/^(require )?\s*k8s.io\/kubernetes (v[0-9.]+)$/\2/p' go.mod)
[ -n "$version" ] || { echo "go.mod names no k8s.io/kubernetes" >&2; exit 1; }
directory=${XDG_CACHE_HOME:-$HOME/.cache}/gputax/kubernetes-$version
[ "${1-}" != --where ] || { echo "$directory"; exit; }

mkdir -p "$directory"
exec 9>"$directory/.lock"
flock 9
missing=()
for name in kube-apiserver kubelet kube-controller-manager kube-scheduler kubectl; do
  [ -x "$directory/$name" ] || missing+=("k8s.io/kubernetes/cmd/$name")
done
if [ ${#missing[@]} -gt 0 ]; then
  command -v go >/dev/null || { echo "Kubernetes $version is not built yet, and Go is not installed. Next: install Go 1.24 or newer" >&2; exit 3; }
  minor=${version#v1.} minor=${minor%%.*}
  ldflags="-s -w"
  for package in k8s.io/client-go/pkg/version k8s.io/component-base/version; do
    ldflags+=" -X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=$minor -X $package.gitTreeState=clean"
  done
  started=$SECONDS
  rm -rf "$directory/.part"
  mkdir "$directory/.part"
  # All at once: a link takes one core, and the next program compiles on the other. Without inlining and debug data the
  # compiler takes a third less CPU time (k8s.io/api/core/v1 with all it needs: 76 s, 53 s without); tests do not need them.
  CGO_ENABLED=0 nice -n 19 go build -mod=readonly -trimpath -gcflags 'all=-dwarf=false -l' -ldflags "$ldflags" \
    -o "$directory/.part/" "${missing[@]}"
  mv "$directory/.part"/* "$directory/"
  rmdir "$directory/.part"
  echo "built Kubernetes $version in $((SECONDS - started)) s" >&2
fi
echo "$directory"
