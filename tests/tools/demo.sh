#!/bin/sh
# The demo in a few seconds, in a directory with a space: demo.sh ROOT BUILD. Wrong use first, then the whole of it.
set -eu
root=$1
SHARDC_BUILD=$2
export SHARDC_BUILD
dir=$(mktemp -d "${TMPDIR:-/tmp}/shardc demo XXXXXX")
trap 'rm -rf "$dir"' EXIT
cd "$dir"
fail() { echo "failed: $1"; cat out err; exit 1; }

expect() { # status, text, arguments of the demo
  want=$1 text=$2 status=0
  shift 2
  "$root/tools/demo" "$@" > out 2> err || status=$?
  [ "$status" = "$want" ] || fail "demo $*: exit $status, expected $want"
  grep -q -- "$text" out err || fail "demo $*: no \`$text\`"
}

expect 2 'whole number' --seconds abc
expect 2 'unknown option' --second 3
expect 4 'cannot read' "no such file"
printf 'too short' > short.txt
expect 4 'the demo needs' short.txt
rm -rf runs
expect 0 'run directory: runs/demo-001' --seconds 8
tail -1 out | grep -Eq '^validation loss [0-9.]+ nats/byte after [0-9]+ steps over [0-9]+ samples, [0-9.]+ over the 160 that are read while training$' ||
  fail "last line"
few=$(tail -1 out | sed 's/.*samples, \([0-9.]*\) over.*/\1/')
grep -q " after .*, validation loss $few (160 of " out || fail "$few is not what training said"
for f in metrics.jsonl loss.svg latest/state.json tiny; do [ -s "runs/demo-001/$f" ] || fail "no $f"; done
