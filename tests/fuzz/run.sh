#!/bin/sh
# Builds one fuzz target with clang and runs it: run.sh ROOT TARGET RUNS, or SECONDSs as in 600s (optimized).
# So many runs are as many on a busy machine, from one seed; seconds are what this moment draws.
# Exit 77 (skipped) where no clang has the fuzzer library.
set -eu
root=$1 target=$2
case $3 in
*s) level=-O1 limit="-max_total_time=${3%s}" ;;
*) level=-O0 limit="-runs=$3 -seed=1 -reload=0" ;;
esac
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
echo 'int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n) { return d[0] + n == 7; }' > "$dir/probe.c"
for clang in clang-19 clang clang-18 none; do
  "$clang" -fsanitize=fuzzer,address "$dir/probe.c" -o "$dir/probe" 2> /dev/null && break
done
[ "$clang" = none ] && { echo 'no clang with the fuzzer library (package libclang-rt-19-dev)'; exit 77; }
cd "$root/runtime"
files="base/file.c base/staged_file.c base/json.c"
case $target in # only the sources that a reader needs
fuzz_tokenizer) sources="$files $(echo text/*.c)" ;;
fuzz_megatron) sources="base/json.c data/foreign.c data/formats.c data/megatron.c" ;;
fuzz_formats) sources="base/json.c data/foreign.c data/formats.c data/megatron.c" ;;
fuzz_json) sources="base/json.c" ;;
fuzz_index) sources="$files store/safetensors.c store/weights_open.c" ;;
fuzz_metrics) sources="$files metrics.c metrics_logs.c svg.c" ;;
fuzz_safetensors) sources="$files store/safetensors.c" ;;
*) sources=$(find . -name '*.c' | grep -vE '/(base|setting|elem_value|hash|rt_main|train|comm_mpi)\.c$') ;;
esac
# shellcheck disable=SC2086 # a list of words
"$clang" -std=c17 -D_GNU_SOURCE "$level" -g -I"$root" -fsanitize=fuzzer,address,undefined \
  -fno-sanitize-recover=undefined \
  "$root/tests/fuzz/$target.c" base/base.c base/setting.c base/elem_value.c base/hash.c $sources -lm -lpthread \
    -o "$dir/fuzz"
mkdir "$dir/corpus"
seeds=$(find "$root/tests/fuzz/seeds/$target" -type f 2> /dev/null | sort | paste -sd,) # a folder has no order
# shellcheck disable=SC2086 # a list of words
"$dir/fuzz" $limit ${seeds:+"-seed_inputs=$seeds"} \
  -max_len=4096 -rss_limit_mb=1024 -close_fd_mask=1 -artifact_prefix="$dir/" \
  "$dir/corpus" 2> "$dir/log" || { tail -60 "$dir/log"; for f in "$dir"/crash-* "$dir"/oom-* "$dir"/timeout-*; do
  [ -f "$f" ] && { echo "input:"; od -An -tx1 -c "$f" | head -40; }; done; exit 1; }
tail -1 "$dir/log"
