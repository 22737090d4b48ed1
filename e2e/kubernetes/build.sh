#!/usr/bin/env bash
# Build the Kubernetes of the end-to-end tests once and print the directory it is in.
#
# usage: build.sh [--where]       --where only prints the directory
# From Go modules, so it needs Go and a module proxy the first time: six minutes on two idle cores, 3 GB of Go's own
# cache while it builds, 250 MB kept. Each binary is cached when it is done; an interrupted build goes on from there.
set -euo pipefail
cd "$(dirname "$0")"

version=$(sed -nE 's/^(require )?\s*k8s.io\/kubernetes (v[0-9.]+)$/\2/p' go.mod)
[ -n "$version" ] || { echo "go.mod names no k8s.io/kubernetes" >&2; exit 1; }
directory=${XDG_CACHE_HOME:-$HOME/.cache}/gputax/kubernetes-$version
[ "${1-}" != --where ] || { echo "$directory"; exit; }

mkdir -p "$directory"
exec 9>"$directory/.lock"
flock 9
minor=${version#v1.} minor=${minor%%.*}
ldflags="-s -w"
for package in k8s.io/client-go/pkg/version k8s.io/component-base/version; do
  ldflags+=" -X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=$minor -X $package.gitTreeState=clean"
done
for name in kube-apiserver kubelet kube-controller-manager kube-scheduler kubectl; do
  [ ! -x "$directory/$name" ] || continue
  command -v go >/dev/null || { echo "$name $version is not built yet and there is no Go. Next: install Go 1.24 or newer" >&2; exit 3; }
  started=$SECONDS
  CGO_ENABLED=0 nice -n 19 go build -mod=readonly -trimpath -ldflags "$ldflags" -o "$directory/$name.part" "k8s.io/kubernetes/cmd/$name"
  mv "$directory/$name.part" "$directory/$name"
  echo "built $name $version in $((SECONDS - started)) s" >&2
done
echo "$directory"
