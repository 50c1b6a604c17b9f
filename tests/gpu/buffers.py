"""Loads of residuals in products for sm_90a, in PTX.   buffers.py SHARDC EXAMPLES

Where no result of a product shares bytes with its operands, it loads them by `ld.global.nc`, so that ptxas may issue
the loads before the stores of earlier rows; only sums of splits in the workspace are loaded otherwise. A product in
place of an operand reads the rows of a pass before it stores the first one.
"""
import glob, os, re, shutil, subprocess, sys, tempfile

shardc, examples = map(os.path.abspath, sys.argv[1:3])
folder = tempfile.mkdtemp(prefix='shardc_')


def alternations(path):
    """Plain loads, and how often one follows a store, in one straight stretch of code."""
    loads = turns = 0
    stored = False
    for line in open(path):
        if line.startswith('$L') or ' bra' in line: stored = False
        if 'st.global' in line: stored = True
        if re.search(r'ld\.global\.(?!nc)', line): loads, turns, stored = loads + 1, turns + stored, False
    return loads, turns


try:
    subprocess.run([shardc, 'compile', f'{examples}/gpt2.shard', '--model', 'GPT2', '--set', 'train.batch=16', '--set',
                    'plan.precision=bf16', '-D', 'Layers=2', '--target', 'sm_90a', '--keep', 'kept', '-o', 'exe', '-q'],
                   cwd=folder, check=True)
    found = {os.path.basename(f)[:-4]: alternations(f) for f in glob.glob(f'{folder}/kept/*dot*.ptx')}
    layers = {k: v for k, v in found.items() if k.startswith('k_h_forward_')}
    if len(layers) < 8: sys.exit(f'products of a layer: {sorted(layers)}')
    wrong = [f'{k}: {n} plain loads, {t} after a store' for k, (n, t) in layers.items() if t or n > 2]
    wrong += [f'{k}: {t} of {n} loads after a store' for k, (n, t) in found.items() if n and t * 4 > n]
    placed = {k: v for k, v in found.items() if v[1]}
    if not placed: wrong.append('no product is in place: nothing was compared')
    if wrong: sys.exit('\n'.join(wrong))
    print(f'{len(layers)} products of a layer load operands by ld.global.nc; in place: ' +
          ', '.join(f'{k} ({n} plain loads, {t} after a store)' for k, (n, t) in placed.items()))
finally:
    shutil.rmtree(folder)
