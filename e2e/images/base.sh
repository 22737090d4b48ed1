#!/usr/bin/env bash
# Make the base of the product image without a registry, once, and print the archive: Debian with Python 3.11.
#
# usage: base.sh             needs root and debootstrap; one to two minutes, 60 MB kept
# It stands in for the python:3.11-slim that docker/Dockerfile names: `python3`, `python`, venv and pip are there.
set -euo pipefail

suite=bookworm
archive=${XDG_CACHE_HOME:-$HOME/.cache}/gputax/base-$suite-python3.11-1.tar
[ ! -s "$archive" ] || { echo "$archive"; exit; }
command -v debootstrap >/dev/null || { echo "no debootstrap. Next: apt-get install debootstrap" >&2; exit 3; }

mkdir -p "$(dirname "$archive")"
root=$(mktemp -d)
trap 'rm -rf --one-file-system "$root"' EXIT
started=$SECONDS
nice -n 19 debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates "$suite" "$root" >"$archive.log" 2>&1 ||
  { tail -20 "$archive.log" >&2; exit 1; }
ln -s python3 "$root/usr/bin/python"
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,info,locale}/* "$root"/var/log/*
tar -C "$root" --numeric-owner --exclude='./dev/*' --exclude='./proc/*' --exclude='./sys/*' -cf "$archive.part" .
mv "$archive.part" "$archive"
echo "made the base image in $((SECONDS - started)) s" >&2
echo "$archive"
