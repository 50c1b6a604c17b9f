#!/bin/sh
# The PTX machine against arbitrary text: fuzz.sh ROOT SEEDS_PROGRAM SECONDS
# Exit 77 (skipped) where no clang has the fuzzer library.
set -eu
root=$1 seeds=$2 seconds=$3
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
echo 'int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n) { return d[0] + n == 7; }' > "$dir/probe.c"
for clang in clang-19 clang clang-18 none; do
  "$clang" -fsanitize=fuzzer,address "$dir/probe.c" -o "$dir/probe" 2> /dev/null && break
done
[ "$clang" = none ] && { echo 'no clang with the fuzzer library (package libclang-rt-19-dev)'; exit 77; }
mkdir "$dir/corpus"
"$seeds" --seeds "$dir/corpus"
cd "$root/tests/gpu"
"$clang" -std=c17 -D_GNU_SOURCE -Wno-pass-failed -O0 -g -march=x86-64-v3 -ffp-contract=off -I"$root" \
  -fsanitize=fuzzer,address,undefined \
  -fno-sanitize=float-divide-by-zero -fno-sanitize-recover=undefined fuzz_ptx.c ptx_*.c -lm -o "$dir/fuzz"
"$dir/fuzz" -max_total_time="$seconds" -max_len=4096 -rss_limit_mb=2048 -timeout=300 -close_fd_mask=1 \
  -artifact_prefix="$dir/" \
  "$dir/corpus" 2> "$dir/log" || { tail -60 "$dir/log"; for f in "$dir"/crash-* "$dir"/oom-* "$dir"/timeout-* \
    "$dir"/leak-*; do
  [ -f "$f" ] && { echo "input:"; cat "$f"; }; done; exit 1; }
tail -1 "$dir/log"
