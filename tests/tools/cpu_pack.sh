#!/bin/sh
# bench/cpu --pack: cpu_pack.sh ROOT BUILD. A small pack is made, moved, and run without the project: no compiler on
# PATH, PyTorch played by a script that answers as bench/torch_gpt2.py does. Parts that compile, targets and numbers of
# workers that are not there are refused by name.
set -eu
root=$1 build=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
fail() { echo "failed: $*"; exit 1; }
ends() { # status, words that must come | command
  want=$1 words=$2 got=0
  shift 2
  "$@" > said 2>&1 || got=$?
  [ "$got" = "$want" ] && grep -q -- "$words" said \
    || { cat said; fail "ended with $got, not $want and \`$words\`: $*"; }
}
cat > torch <<'END'
#!/bin/sh
# Two threads by itself; eager steps of 8 s, compiled ones of 4 s on one thread, which fail on two.
[ $# -gt 1 ] || { echo 2; exit; }
case "$*" in *'threads=2 compile') exit 1 ;; *compile) s=4.0 ;; *) s=8.0 ;; esac
echo '{"ready": true, "torch": "none", "threads": 1}'
while read -r n; do echo "{\"seconds\": [$s, $s]}"; done
END
printf '#!/bin/sh\n[ $# -gt 1 ] || exec echo 1\nexec sleep 60\n' > slow
chmod +x torch slow
ends 2 'compiles' "$root/bench/cpu" --pack made gemm
ends 2 'no part or target is called vax' "$root/bench/cpu" --pack made --target vax
ends 2 'goes with --pack' "$root/bench/cpu" --workers 2 rows
ends 0 gpt2-1-16-f32-x86_64_v3-2 "$root/bench/cpu" --build "$build" --pack made step kernels --case 1x16:f32 \
  --target x86_64_v3 --workers 2
"$root/bench/cpu" --build "$build" --pack made step --case 1x16:f32 --target x86_64_v3 --workers 2 > said 2>&1 \
  && [ ! -s said ] || fail "made again: $(cat said)"
mkdir 'else where' && mv made 'else where/pack'
pack() { PATH=/usr/bin:/bin SHARDC_PATH=/nowhere "$(command -v python3)" "$dir/else where/pack/cpu" \
  --torch "$dir/torch" "$@"; }
ends 2 'it needs the project' pack gemm
ends 1 'no gpt2-1-16-f32 of x86_64_v3 for 3 workers' pack step --case 1x16:f32 --threads 3
ends 1 'no gpt2-2-16-f32' pack step --case 2x16:f32 --threads 1
ends 0 'compiled, 2 threads stopped or took too long, and is left out' pack step kernels --case 1x16:f32 --threads 1 \
  --threads 2 --rounds 1 --steps 1 --ahead --json all --table table
ends 0 'eager stopped or took too long' pack step --case 1x16:f32 --threads 1 --rounds 1 --steps 1 --wait 0.1 \
  --torch "$dir/slow"
grep -q 'nothing to compare with' said || fail "$(cat said)"
ends 0 '| shardc, 1 threads | shardc, 2 threads | eager, 1 threads | compiled, 1 threads | eager, 2 threads | shardc is | roofline |' cat table
ends 0 '| 8000 ms (8000 .. 8000) | 4000 ms (4000 .. 4000) | 8000 ms (8000 .. 8000) |' cat table
ends 0 '1x16:f32, 1 threads: step' cat table
ends 0 ratio cat all
