#!/bin/sh
# The builds of tools/test --sanitize, --threads and --stress configure: configures.sh CMAKE ROOT. They run by hand, so
# a test that one of them leaves out and another file names would be noticed late.
set -eu
dir=$(mktemp -d "${TMPDIR:-/tmp}/shardc configures XXXXXX")
trap 'rm -rf "$dir"' EXIT
for option in SHARDC_SANITIZE=ON SHARDC_SANITIZE=thread SHARDC_STRESS=ON; do
  "$1" -S "$2" -B "$dir/build" -G Ninja "-D$option" > "$dir/log" 2>&1 ||
    { cat "$dir/log"; echo "failed: $option"; exit 1; }
  rm -rf "$dir/build"
done
