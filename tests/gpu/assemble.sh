#!/bin/sh
# The PTX that a test runs must be PTX: assemble.sh PROGRAM lets it write its text and gives that to ptxas.
# Exit 77 (skipped) where there is no ptxas: set PTXAS or have it on PATH.
set -eu
ptxas=${PTXAS:-}
for p in ptxas /usr/local/cuda/bin/ptxas; do
  [ -n "$ptxas" ] || ptxas=$(command -v "$p" || true)
done
[ -n "$ptxas" ] || { echo 'SKIPPED: no ptxas on this machine, the snippets are not checked against it'; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$1" "$dir/text.ptx"
"$ptxas" -arch="$(sed -n 's/^\.target //p' "$dir/text.ptx")" "$dir/text.ptx" -o "$dir/text.cubin"
echo "$(grep -c '\.entry' "$dir/text.ptx") kernels assembled"
