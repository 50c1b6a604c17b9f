#!/bin/sh
# tools/gpu-bundle on the stand-in GPU: gpu_bundle.sh ROOT BUILD. A small bundle is made, moved, and run with an empty
# environment: no compiler, no python3, nothing on PATH. A fault in the bundle (kernels, models, cuts) fails its part by
# name, and so does a machine without a GPU.
set -eu
root=$1 build=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
"$root/tools/gpu-bundle" --quick --no-build --build "$build" made
mkdir 'else where' && mv made 'else where/bundle'
bundle="$dir/else where/bundle"
cp "$build"/lib/shardc/emulate/lib*.so.* 'else where'
# Machine code for another GPU is passed over.
for k in "$bundle"/kernels/tiny_llama/*.ptx "$bundle"/variants/*.ptx; do printf '\177ELF' > "${k%.ptx}.cubin"; done
bare() { # steps for sm_90a may ask for all of an H100's shared memory
  env -i PATH=/nowhere SHARDC_EMULATE_SHARED=232448 SHARDC_LIBCUDA="$dir/else where/libcuda.so.1" \
    SHARDC_LIBNCCL="$dir/else where/libnccl.so.2" "$@"
}
check() { "$@" || { echo "failed: $*"; exit 1; }; }
ends() { # status, words that must come | command
  want=$1 words=$2 got=0
  shift 2
  "$@" > said 2>&1 || got=$?
  [ "$got" = "$want" ] && grep -q -- "$words" said \
    || { cat said; echo "ended with $got, not $want and \`$words\`: $*"; exit 1; }
}
ends 4 'no GPU that can be used' env SHARDC_LIBCUDA=/nowhere/libcuda.so.1 "$bundle/run" --quick
ends 2 'no part is called' "$bundle/run" --only nothing
# A bundle of few parts.
ends 2 'no part is called nothing' "$root/tools/gpu-bundle" --only nothing few
ends 2 'no part is called l.sses' "$root/tools/gpu-bundle" --only l.sses few
ends 2 'needs a value' "$root/tools/gpu-bundle" --for
ends 2 'no target is called sm_77' "$root/tools/gpu-bundle" --for sm_77 few
ends 2 'is no number of bytes' "$root/tools/gpu-bundle" --for sm_90a:1e5 few
ends 2 'two directories' "$root/tools/gpu-bundle" few more
mkdir -p mine/run
ends 1 'and no bundle' "$root/tools/gpu-bundle" --no-build --build "$build" mine
check test -d mine/run
"$root/tools/gpu-bundle" --quick --no-build --build "$build" --only densities few
check test ! -e few/steps.list -a ! -e few/losses.list -a ! -e few/variants
ends 0 'losses: not in this bundle' bare few/run --quick --out small
check grep -q 'densities: good' said
ends 2 'steps: not in this bundle' bare few/run --quick --only steps --out small
# GPUs that are too old are passed over; only the one that is taken is seen.
ends 4 'GPU 0: .*too old' bare SHARDC_EMULATE_SM=75 "$bundle/run" --quick
ends 0 'GPU 0: .*sm_75.*too old' bare SHARDC_EMULATE_DEVICES=3 SHARDC_EMULATE_SM=75,86,90 "$bundle/run" --quick \
  --only ceilings --out second
check grep -q 'stand-in 1: sm_86' second/table.txt
ends 0 'driver' bare SHARDC_EMULATE_DEVICES=2 CUDA_VISIBLE_DEVICES=1,0 "$bundle/run" --quick --only ceilings \
  --device 1 --out second
check grep -q 'stand-in 0: sm_90' second/table.txt
ends 4 'there is no GPU 7' bare "$bundle/run" --quick --device 7
ends 0 'stand-in' bare "$bundle/run" --quick --minutes 40 --out good
cat said
# glibc 2.36 and the driver are all that it needs.
newest=$(find "$bundle" -type f -perm -u+x -exec cat {} + | LC_ALL=C grep -ao 'GLIBC_2\.[0-9]*' | sort -uV \
  | tail -1)
echo "the newest version of the C library that it asks for is $newest"
check test "${newest#GLIBC_2.}" -le 36
for exe in "$bundle/run" "$bundle"/models/* "$bundle"/steps/* "$bundle"/overlap/* "$bundle"/lib/*; do
  [ -f "$exe" ] && [ -x "$exe" ] || continue
  check test -z "$(readelf -d "$exe" | grep -e RPATH -e RUNPATH)"
done
check test "$(du -sm "$bundle" | cut -f1)" -le 60
check grep -q 'PyTorch *not measured: cannot run python3' good/table.txt
python3 - << 'END'
import json, math
r = json.load(open('good/results.json'), parse_constant=lambda x: 1 / 0)
assert r['quick'] is True and len(r['written']) == 20
assert all(set(v) == {'state', 'seconds', 'rows'} and v['rows'] for v in r['parts'].values())
assert all(math.isfinite(y) for v in r['parts'].values() for x in v['rows'] for y in x.values() if isinstance(y, float))
table = open('good/table.txt').read()
assert 'nan' not in table and all(f'\n== {k}: ' in table and f'\n   {k}: good' in table for k in r['parts']), table
assert all(x['name'] in table for k in ('losses', 'variants') for x in r['parts'][k]['rows']), table
states = {k: v['state'] for k, v in r['parts'].items()}
assert set(states.values()) <= {'good', 'skipped'} and all(states[k] == 'good' for k in ('ceilings', 'kernels', 'losses', 'nccl', 'variants', 'densities', 'steps', 'changes', 'overlap', 'offload')), states
rows = {k: {x['name']: x for x in v['rows']} for k, v in r['parts'].items()}
assert rows['kernels']['all']['good'] > 100 and rows['kernels']['all']['bad'] == 0
assert all(x['worst'] < x['allowed'] for x in rows['losses'].values()) and sorted(rows['losses']) == ['hosted', 'sparse_gpt', 'tiny_bert', 'tiny_llama']
assert rows['nccl']['nccl_turns']['worst'] <= rows['nccl']['nccl_turns']['allowed']
assert len(rows['variants']) == 6 and all(x['too_large'] == x['refused'] == x['wrong'] == 0 and x['us'] > 0 for x in rows['variants'].values())
listed = ['listed' in x['key'] for x in rows['densities'].values() if 'attention' in x['family']]
assert sum(listed) >= 2 and len(listed) == sum(listed) + 2, rows['densities']
assert rows['steps']['gpt2_small shardc']['tokens_per_second'] > 0 and 'gpt2_alone     PyTorch' not in table
alone = rows['steps']['gpt2_alone shardc']
assert abs(1e9 * alone['tflops'] * alone['ms'] / (64 * (6 * 70592 + 12 * 64 * 32)) - 1) < 1e-3, alone
for x in 'small_hosted', 'small_late':
    assert rows['offload'][x + ' shardc']['ms'] > 0 and rows['offload'][x + ' ratio']['ratio'] > 0
changes = [k for k, x in rows['changes'].items() if x['ms'] > 0]
words = 'apart', 'sums', 'narrow', 'squares', 'copies', 'tanh'
assert changes == ['base shardc'] + [f'without {x}' for x in words], changes
paced = {k: x for k, x in rows['overlap'].items() if not k.endswith('forecast')}
assert len(paced) == 5 and all(x['messages'] > 5 and x['took_ms'] >= x['link_ms'] for x in paced.values()), paced
assert len({x['bytes'] for x in paced.values()}) == 1 and rows['overlap']['small_zero2, forecast']['advice']
assert rows['ceilings']['copy']['bytes_per_second'] > 0 and rows['ceilings']['bf16 mma.sync']['flops'] > 0
END
# A machine without NCCL is no failure.
ends 0 'nccl: skipped' bare SHARDC_LIBNCCL=/nowhere/libnccl.so.2 "$bundle/run" --quick --only nccl --out small
check grep -q 'nccl_turns *not tried by NCCL: .*R1009' small/table.txt
# Too little memory is reported and is no failure; the results include the output of nvidia-smi; a slice of a GPU has a
# share of its peak.
ends 0 'steps: skipped' bare SHARDC_EMULATE_MEMORY=1000000 "$bundle/run" --quick --only steps --out small
check grep -q 'not measured: error.R1005' small/table.txt
ends 1 'one process less: allocate: CUDA_ERROR_OUT_OF_MEMORY' bare SHARDC_EMULATE_MEMORY=1000000 "$bundle/run" --quick \
  --only kernels --out small
mkdir smi
cat > smi/nvidia-smi << 'END'
#!/bin/sh
[ "$5" = --id=0000:01:00.0 ] || { echo "which GPU?"; exit 1; }
echo '1200, 1593, 50, 90.50, 0, 1234, 0x0000000000000001'
while /bin/sleep 0.1; do echo '1410, 1593, 64, 301.25, 99, 1234, 0x0000000000000024'; done
END
chmod +x smi/nvidia-smi
ends 0 '1410 .. 1410 MHz, at most 64 C and 301 W, held back by power, heat' bare PATH="$dir/smi" \
  SHARDC_EMULATE_NAME='NVIDIA H200 MIG 1g.18gb' \
  "$bundle/run" --quick --only steps --out slice
check grep -q '"mhz_low": 1410, .*"watts": 301.2, "held_back_by": "power, heat", "rows": ' slice/results.json
check grep -q '"mfu": ' slice/results.json
# Out of time, and interrupted: the results so far are written, and no process continues.
ends 1 'kernels: .*time' bare "$bundle/run" --only kernels,variants --minutes 0.02 --out short
check grep -q '"kernels": {"state": "\(out of time\|ended at its time limit\)"' short/results.json
check grep -q '"variants": {"state": "\(out of time\|ended at its time limit\)"' short/results.json
: > said # remove the output of the previous run
env -i PATH=/nowhere SHARDC_LIBCUDA="$dir/else where/libcuda.so.1" "$bundle/run" --quick --only kernels,losses \
  --minutes 40 --out stopped >> said 2>&1 &
pid=$!
while ! grep -q '== kernels' said && kill -0 $pid; do sleep 0.1; done
kill -TERM $pid
status=0
wait $pid || status=$?
check test "$status" = 1
check grep -q 'kernels: interrupted' stopped/table.txt
check test ! -e stopped/losses.txt
for f in small slice short stopped; do check python3 -m json.tool "$f/results.json" /dev/null; done
"$build/shardc" compile "$root/examples/tiny_llama.shard" -D Layers=1 -D Seq=32 --set train.batch=2 \
  --set plan.precision=bf16 --target sm_80 \
  --tune-db good/gpu.tune -o tuned 2> said
check grep -q '([1-9][0-9]* tuned)' said
# A double of NCCL that waits for nothing, or sends other bytes than the plan.
cp -r "$bundle/lib" kept
LC_ALL=C sed -i 's/@%%p7 bra WAIT/@%%p2 bra WAIT/' "$bundle/lib/libpaced.so"
ends 1 'a message was faster than its link' bare "$bundle/run" --quick --minutes 40 --only overlap --out unpaced
cp kept/* "$bundle/lib"
sed -i 's/^\(small_zero2 2 [0-9]*\)/\11/' "$bundle/overlap.list"
ends 1 'and the plan sends' bare "$bundle/run" --quick --minutes 40 --only overlap --out unpaced
# One kernel stores nothing, one never ends, one is no code; the others continue.
rm -r "$bundle"/kernels/codegen*
cd "$bundle/kernels/tiny_llama"
pick() { for f in $1; do echo "$f"; return; done; }
first=$(pick 'k_layers_forward_attention*.ptx') second=$(pick 'k_step_elem*.ptx') third=$(pick 'k_init_elem*.ptx')
sed -i 's/^\(.*\)st.global[^;]*;/\1/' "$first"
sed -i '0,/^{/s//{\n.reg .pred %forever;\nFOREVER: bra FOREVER;/' "$second"
echo nonsense > "$third"
cd "$dir"
ends 1 ' 3 bad' bare "$bundle/run" --quick --minutes 40 --only kernels --out bad
for name in "$first" "$second" "$third"; do
  name=$(echo "$name" | sed 's/^k_\(.*\)\.ptx$/\1/; s/_/./g')
  check grep -q "$name\"" bad/kernels.jsonl
done
# In one model a tenth is a thirty-second, another has an instruction that there is not; one cut is wrong, one is no
# code.
cd "$bundle"
LC_ALL=C sed -i 's/0f3DCCCCCD/0f3D000000/g' models/tiny_llama
LC_ALL=C sed -i 's/fma\.rn\.f32/fmb.rn.f32/g' models/tiny_bert
sed -i 's/^tiny_llama 1e-3/tiny_llama 1e-5/' losses.list # three steps do not go far
cd variants
cuts=$(ls ./*_cut[1-9]*.ptx)
first=$(echo "$cuts" | head -1) second=$(echo "$cuts" | tail -1)
sed -i 's/^\(.*\)st.global[^;]*;/\1/' "$first"
echo nonsense > "$second"
cd "$dir"
ends 1 'losses: failed' bare "$bundle/run" --quick --minutes 40 --only losses,variants --out good
mv good worse
check grep -q '^tiny_llama .*WRONG' worse/table.txt
check grep -q '^tiny_bert .*failed on the GPU: error.R1006' worse/table.txt
check grep -q ', 1 WRONG$' worse/table.txt
check grep -q ', 1 REFUSED$' worse/table.txt
echo ok
