#!/bin/sh
# Builds fuzz_front with clang and runs it: run_front.sh ROOT BUILD RUNS [libFuzzer options..], or SECONDSs as in 600s.
# RUNS runs are the same on every machine: one seed, and no findings of earlier runs. A time in seconds continues from
# these, optimized and with a random seed. Seeds are the examples, the library, the files of tests/frontend and past
# findings (seeds/fuzz_front); the dictionary is made from the tables of words. An input that takes minutes hangs;
# seconds are what a busy machine takes. RUNS runs trace no compares, most of which are the sanitizers' own before
# accesses. Objects stay in BUILD/fuzz_front-LEVEL and are made anew when a source or header changed. Exit 77
# (skipped) where no clang has the fuzzer library.
set -eu
root=$1 build=$2 much=$3; shift 3
case $much in
*s) level=-O1 traces= limit="-max_total_time=${much%s}" ;;
*) level=-O0 traces=-fno-sanitize-coverage=trace-cmp limit="-runs=$much -seed=1 -reload=0" ;;
esac
work=$build/fuzz_front$level
mkdir -p "$work"
echo 'int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n) { return d[0] + n == 7; }' > "$work/probe.c"
for clang in clang-19 clang clang-18 none; do
  "$clang" -fsanitize=fuzzer,address "$work/probe.c" -o "$work/probe" 2> /dev/null && break
done
[ "$clang" = none ] && { echo 'no clang with the fuzzer library (package libclang-rt-19-dev)'; exit 77; }
compile() {
  "$clang" -std=c17 -D_GNU_SOURCE "$level" -gline-tables-only -I"$root" -I"$build" \
    -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined ${traces:+"$traces"} -c "$1" -o "$2"
}
newest=$(find "$root/frontend" "$root/ir" \( -name '*.h' -o -name '*.def' \) -print0 | xargs -0 ls -t | head -1)

objects=
for source in "$root"/frontend/*.c "$root"/frontend/*/*.c "$root"/ir/*.c "$root"/ir/*/*.c "$build"/frontend/*.c \
  "$root"/tests/fuzz/fuzz_front.c; do
  name=$(basename "$source" .c)
  object=$(basename "$(dirname "$source")").$name.o
  objects="$objects $object" # names alone have no spaces
  object=$work/$object
  if [ ! "$object" -nt "$source" ] || [ ! "$object" -nt "$newest" ]; then
    compile "$source" "$object" || { echo "$source: does not compile"; exit 1; }
  fi
done
# shellcheck disable=SC2086 # a list of words
(cd "$work" && "$clang" -fsanitize=fuzzer,address,undefined $objects -lm -o fuzz)

"$build/shardc" reference dictionary > "$work/dictionary"
rm -rf "$work/seeds"
[ "$level" = -O1 ] || rm -rf "$work/corpus"
mkdir -p "$work/seeds" "$work/corpus"
for seed in "$root"/examples/*.shard "$root"/frontend/std.shard "$root"/tests/frontend/cases/*.shard \
  "$root"/tests/frontend/codes/*.shard "$root"/tests/fuzz/seeds/fuzz_front/*; do
  cp "$seed" "$work/seeds/$(basename "$seed")"
done
find "$work/seeds" -type f | sort | paste -sd, > "$work/list" # a folder has no order of its own
# shellcheck disable=SC2086 # a list of words
cd "$work"
./fuzz $limit -seed_inputs="@$work/list" -max_len=8192 -timeout=300 -rss_limit_mb=2048 -close_fd_mask=1 \
  -dict="$work/dictionary" \
  -artifact_prefix="$work/" "$@" "$work/corpus" 2> "$work/log" || {
  tail -60 "$work/log"
  for f in "$work"/crash-* "$work"/oom-* "$work"/timeout-* "$work"/leak-*; do [ -f "$f" ] \
    && { echo "input $f:"; head -c 2000 "$f"; }; done
  exit 1
}
tail -1 "$work/log"
