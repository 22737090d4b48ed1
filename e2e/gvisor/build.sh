#!/usr/bin/env bash
# Build gVisor's runsc and its shim for containerd once, and print the path of runsc; the shim is beside it.
#
# usage: build.sh [--where]       --where only prints where it is
# From Go modules, so it needs Go 1.26.3 or newer and a module proxy the first time: about three minutes on two cores,
# 100 MB kept. The module is gVisor's generated branch for Go; its release tags are for Bazel and do not build.
set -euo pipefail
cd "$(dirname "$0")"

version=$(sed -nE 's/^require gvisor.dev\/gvisor (v[^ ]+)$/\1/p' go.mod)
[ -n "$version" ] || { echo "go.mod names no gvisor.dev/gvisor" >&2; exit 1; }
directory=${XDG_CACHE_HOME:-$HOME/.cache}/gputax/gvisor-$version
[ "${1-}" != --where ] || { echo "$directory/runsc"; exit; }

mkdir -p "$directory"
exec 9>"$directory/.lock"
flock 9
build() {  # PROGRAM PACKAGE [OPTION...]
  [ ! -x "$directory/$1" ] || return 0
  command -v go >/dev/null || { echo "gVisor $version is not built yet, and Go is not installed. Next: install Go 1.26.3 or newer" >&2; exit 3; }
  local started=$SECONDS
  CGO_ENABLED=0 nice -n 19 go build -mod=readonly -trimpath -ldflags "-s -w -X gvisor.dev/gvisor/runsc/version.version=$version" \
    "${@:3}" -o "$directory/$1.part" "$2"
  mv "$directory/$1.part" "$directory/$1"
  echo "built $1 of gVisor $version in $((SECONDS - started)) s" >&2
}
build runsc gvisor.dev/gvisor/runsc
if [ ! -x "$directory/containerd-shim-runsc-v1" ]; then
  # The shim insists on a lower OOM score than its parent's, which a root without CAP_SYS_RESOURCE may not set.
  source=$(mktemp -d)
  trap 'rm -rf "$source"' EXIT
  cp -r "$(go list -m -f '{{.Dir}}' gvisor.dev/gvisor)/." "$source"
  chmod -R u+w "$source"
  manager=$source/pkg/shim/v1/manager.go
  sed -i.before 's/sys.SetOOMScore(cmd.Process.Pid, oomScoreMax)/sys.SetOOMScore(cmd.Process.Pid, 0)/' "$manager"
  ! cmp -s "$manager" "$manager.before" || { echo "pkg/shim/v1/manager.go is not the one that build.sh knows" >&2; exit 1; }
  cp go.mod "$source/shim.mod"
  cp go.sum "$source/shim.sum"
  go mod edit -replace "gvisor.dev/gvisor=$source" "$source/shim.mod"
  build containerd-shim-runsc-v1 gvisor.dev/gvisor/shim -modfile "$source/shim.mod"
fi
echo "$directory/runsc"
