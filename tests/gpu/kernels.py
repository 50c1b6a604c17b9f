"""Kernels of the examples as ptxas takes them.   kernels.py SHARDC EXAMPLES [all]

Compiles examples for GPUs with ptxas on PATH: shardc fails where a kernel does not assemble, keeps registers in
memory (spills) or lets tensor instructions wait for each other, so compiling is the check; bf16 plans must hold
mma.sync, ldmatrix and cp.async. With `all`: every example that compiles for a processor, f32 and bf16, sm_80, sm_86,
sm_89 and sm_90 (some 30 minutes; all 64 went through on 2026-11-20). Ends with 77 where there is no ptxas.
"""
import os, shutil, subprocess, sys, tempfile

SHARDC, EXAMPLES = sys.argv[1:3]
if not shutil.which('ptxas'):
    print('SKIPPED: no ptxas on PATH, kernels for GPUs are not assembled')
    sys.exit(77)
ALL = ['tiny', 'tiny_bert', 'tiny_llama', 'mlp', 'mnist', 'vit', 'ops', 'gpt2']
RUNS = [('mlp', 'f32', 'sm_80'), ('tiny', 'bf16', 'sm_80'), ('mlp', 'bf16', 'sm_90'), ('mnist', 'f32', 'sm_89'), ('mnist', 'bf16', 'sm_86')]
if 'all' in sys.argv: RUNS = [(e, p, t) for t in ('sm_80', 'sm_86', 'sm_89', 'sm_90') for p in ('f32', 'bf16') for e in ALL]
wrong = 0


def compile_one(example, precision, target, folder):
    kept = f'{folder}/{example}.{precision}.{target}'
    r = subprocess.run([SHARDC, 'compile', f'{EXAMPLES}/{example}.shard', '--target', target, '--set', f'plan.precision={precision}',
                        '-o', f'{folder}/model', '--keep', kept], capture_output=True, text=True)
    names = os.listdir(kept) if os.path.isdir(kept) else []
    ptx = [n for n in names if n.endswith('.ptx')]
    if r.returncode or not ptx: return f'status {r.returncode}: {r.stderr[:600]}'
    if len(ptx) != sum(n.endswith('.cubin') for n in names): return 'a kernel has no cubin'
    text = ''.join(open(f'{kept}/{n}').read() for n in ptx)
    missing = [w for w in ('mma.sync', 'ldmatrix', 'cp.async') if w not in text]
    return f'no {" ".join(missing)}' if precision == 'bf16' and missing else None


with tempfile.TemporaryDirectory() as folder:
    for run in RUNS:
        fault = compile_one(*run, folder)
        if fault: print(*run, fault)
        wrong += fault is not None
        print('assembled:', *run, flush=True)
print(f'{len(RUNS)} programs, {wrong} wrong')
sys.exit(wrong > 0)
