#!/usr/bin/env bash
# Build gVisor's runsc once and print the program.
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
if [ ! -x "$directory/runsc" ]; then
  command -v go >/dev/null || { echo "gVisor $version is not built yet, and Go is not installed. Next: install Go 1.26.3 or newer" >&2; exit 3; }
  started=$SECONDS
  CGO_ENABLED=0 nice -n 19 go build -mod=readonly -trimpath -ldflags "-s -w -X gvisor.dev/gvisor/runsc/version.version=$version" \
    -o "$directory/runsc.part" gvisor.dev/gvisor/runsc
  mv "$directory/runsc.part" "$directory/runsc"
  echo "built gVisor $version in $((SECONDS - started)) s" >&2
fi
echo "$directory/runsc"
