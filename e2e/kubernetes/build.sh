#!/usr/bin/env bash
# Build the Kubernetes and the containerd of the end-to-end tests once and print the directory they are in.
#
# usage: build.sh [--where]       --where only prints the directory
# From Go modules, so it needs Go and a module proxy the first time: minutes on idle cores, 3 GB of Go's own cache while
# it builds, 445 MB kept. An interrupted build continues from that cache.
set -euo pipefail
cd "$(dirname "$0")"

version=$(sed -nE 's/^\s*k8s.io\/kubernetes (v[0-9.]+)$/\1/p' go.mod)
runtime_module=github.com/containerd/containerd/v2
runtime=$(sed -nE "s,^\s*$runtime_module (v[0-9.]+)\$,\1,p" go.mod)
if [ -z "$version" ] || [ -z "$runtime" ]; then
  echo "go.mod names no k8s.io/kubernetes or no $runtime_module" >&2
  exit 1
fi
directory=${XDG_CACHE_HOME:-$HOME/.cache}/gputax/kubernetes-$version-containerd-$runtime
[ "${1-}" != --where ] || { echo "$directory"; exit; }

mkdir -p "$directory"
exec 9>"$directory/.lock"
flock 9
missing=()
for name in kube-apiserver kubelet kube-controller-manager kube-scheduler kubectl; do
  [ -x "$directory/$name" ] || missing+=("k8s.io/kubernetes/cmd/$name")
done
for name in containerd containerd-shim-runc-v2 ctr; do
  [ -x "$directory/$name" ] || missing+=("$runtime_module/cmd/$name")
done
if [ ${#missing[@]} -gt 0 ]; then
  command -v go >/dev/null || { echo "Kubernetes $version is not built yet, and Go is not installed. Next: install Go $(sed -n 's/^go //p' go.mod) or newer" >&2; exit 3; }
  minor=${version#v1.} minor=${minor%%.*}
  ldflags="-s -w -X $runtime_module/version.Version=$runtime"
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
  echo "built Kubernetes $version and containerd $runtime in $((SECONDS - started)) s" >&2
fi
echo "$directory"
