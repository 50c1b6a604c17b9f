"""Kernels of the examples as ptxas takes them.   kernels.py SHARDC EXAMPLES [GPU_SPILLS [WORD ..]]

Compiles examples for GPUs with ptxas on PATH: shardc fails where a kernel does not assemble, and warns where one
keeps registers in memory (spills) or lets tensor instructions wait for each other, so compiling is the check; bf16
and f16 plans must hold mma.sync, ldmatrix and cp.async. With gpu_spills, by hand: every example that compiles for a
processor and models of many sizes (SIZES) in f32, tf32, bf16 and f16 for all targets, of kernels alike each once;
words choose among them (`sm_80`, `bf16`, `gpt2`). Ends with 77 where there is no ptxas.
"""
import os, shutil, subprocess, sys, tempfile, time

SHARDC, EXAMPLES = sys.argv[1:3]
if not shutil.which('ptxas'):
    print('SKIPPED: no ptxas on PATH, kernels for GPUs are not assembled')
    sys.exit(77)
RUNS = [('mlp', 'f32', 'sm_80'), ('tiny', 'bf16', 'sm_80'), ('mlp', 'bf16', 'sm_90'), ('mnist', 'f32', 'sm_89'),
        ('mnist', 'bf16', 'sm_86'),
        ('mlp', 'bf16', 'sm_100a'), ('mlp', 'bf16', 'sm_103a'), ('mlp', 'bf16', 'sm_120a'),
        ('mlp', 'f16', 'sm_80'), ('mlp', 'bf16', 'sm_90a --quick'),
        ('tiny_llama', 'bf16', 'sm_90a', ('Head=256', 'Seq=128', 'Layers=1'))]  # one block of queries, two of keys
# Heads of 16 to 256, odd ones too; widths of 32 to 8192; 1 to 32768 places; odd vocabularies.
SIZES = {
    'tiny': [()], 'mlp': [()], 'mnist': [()], 'ops': [()], 'vit': [()], 'llama': [()],
    'tiny_llama': [()] + [(f'Head={h}', f'Seq={s}', 'Layers=1')
                          for h in (64, 96, 128, 192, 256) for s in (64, 128, 256)],
    'bert': [(), ('Layers=2', 'Batch=8')],
    'tiny_bert': [()] + [(f'Embed={h * n}', f'Heads={n}', f'Seq={s}', f'Pos={max(s, 256)}', f'Vocab={v}')
                         for h, n, s, v in [(16, 2, 1024, 1001), (24, 4, 17, 97), (32, 3, 1, 256), (40, 5, 100, 1001),
                                            (48, 2, 256, 97), (72, 4, 64, 256),
                                            (80, 12, 128, 50257), (96, 8, 1000, 256), (104, 3, 2, 97),
                                            (112, 6, 256, 1001), (120, 2, 333, 97),
                                            (128, 32, 64, 256), (136, 4, 128, 97), (144, 2, 64, 1001),
                                            (160, 8, 500, 256), (192, 10, 256, 97),
                                            (256, 2, 2048, 97)]],
    'gpt2': [()] + [(f'Embed={e}', f'Heads={h}', f'Seq={s}', f'Pos={s}', f'Vocab={v}', 'Batch=2', 'plan.micro=1')
                    for e, h, s, v in [(64, 1, 32768, 32000), (100, 1, 4096, 97), (200, 5, 31, 256),
                                       (384, 6, 777, 50257), (1000, 10, 64, 97),
                                       (1600, 25, 1024, 50257), (2048, 16, 1024, 50257), (2560, 32, 512, 32000),
                                       (3072, 24, 1, 256),
                                       (4096, 32, 8192, 50257), (5120, 40, 128, 32000), (8192, 64, 2048, 50257)]],
}
wrong = 0


def words(example, precision, target, sizes=()):
    """The command line up to its output."""
    own = [x for s in sizes for x in (('--set', s) if '.' in s else ('-D', s))]
    return [SHARDC, 'compile', f'{EXAMPLES}/{example}.shard', '--target', *target.split(), '--set',
            f'plan.precision={precision}', *own]


def compile_one(folder, example, precision, target, sizes=()):
    kept = f'{folder}/{example}.{precision}.{target.split()[-1]}'
    r = subprocess.run([*words(example, precision, target, sizes), '-o', f'{folder}/model', '--keep', kept],
                       capture_output=True, text=True)
    names = os.listdir(kept) if os.path.isdir(kept) else []
    ptx = [n for n in names if n.endswith('.ptx')]
    if r.returncode or 'W1316' in r.stderr or not ptx: return f'status {r.returncode}: {r.stderr[:600]}'
    if len(ptx) != sum(n.endswith('.cubin') for n in names): return 'a kernel has no cubin'
    text = ''.join(open(f'{kept}/{n}').read() for n in ptx)
    missing = [w for w in ('mma.sync', 'ldmatrix', 'cp.async') if w not in text]
    return f'no {" ".join(missing)}' if precision != 'f32' and missing else None


def sweep(spills, chosen, folder):
    """Programs and how many had a kernel that fails."""
    programs = failed = 0
    for target in 'sm_80', 'sm_86', 'sm_89', 'sm_90', 'sm_90a', 'sm_100a', 'sm_103a', 'sm_120a':
        for precision in 'bf16', 'f16', 'tf32', 'f32':
            for example, list_ in SIZES.items():
                if any(w not in (target, precision, example) for w in chosen): continue
                for sizes in list_:
                    start, dump = time.time(), f'{folder}/{example}.ir'
                    r = subprocess.run([*words(example, precision, target, sizes), '--emit=ir', '-o', dump],
                                       capture_output=True, text=True)
                    if not r.returncode:
                        r = subprocess.run([spills, f'{folder}/seen', dump], capture_output=True, text=True,
                                           env={**os.environ, 'SHARDC_CACHE_DIR': ''})
                    programs, failed = programs + 1, failed + (r.returncode != 0)
                    found = r.stdout.split(': ')[-1].strip()
                    print(example, precision, target, *sizes, found, f'{time.time() - start:.0f} s', r.stderr[-1500:]
                          if r.returncode else '', flush=True)
    return programs, failed


with tempfile.TemporaryDirectory() as folder:
    if len(sys.argv) > 3:
        programs, wrong = sweep(sys.argv[3], sys.argv[4:], folder)
    else:
        programs = len(RUNS)
        for run in RUNS:
            fault = compile_one(folder, *run)
            if fault: print(*run, fault)
            wrong += fault is not None
            print('assembled:', *run, flush=True)
print(f'{programs} programs, {wrong} wrong')
sys.exit(wrong > 0)
