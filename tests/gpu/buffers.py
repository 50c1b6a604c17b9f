"""Loads of residuals in products for sm_90a, in PTX.   buffers.py SHARDC EXAMPLES

Where no result of a product shares bytes with its operands, it loads them by `ld.global.nc`, so that ptxas may issue
the loads before the stores of earlier rows; only sums of splits, of shares and of lines in the workspace are loaded
otherwise. A
product in place of an operand reads the rows of a pass before it stores the first one.

GELU on the way out of a product has at most 12 instructions of arithmetic per element, its gradient, with the sum of
its columns, 19, with the hardware's tanh and without a reciprocal.
"""
import glob, os, re, shutil, sys, tempfile
from cubin import compiled

shardc, examples = map(os.path.abspath, sys.argv[1:3])
folder = tempfile.mkdtemp(prefix='shardc_')


def alternations(path):
    """The number of plain loads, and of those that follow a store without a branch between them. Loads of sums of other
    CTAs (of f32, where operands have 16 bits) are left out: they follow an acquire of a flag."""
    loads = turns = 0
    stored, text = False, open(path).read()
    shares = 'ld.acquire' in text
    for line in text.split('\n'):
        if shares and 'ld.global.v4.f32' in line: continue
        if line.startswith('$L') or ' bra' in line: stored = False
        if 'st.global' in line: stored = True
        if re.search(r'ld\.global\.(?!nc)', line): loads, turns, stored = loads + 1, turns + stored, False
    return loads, turns


def arithmetic(path):
    """The number of f32 instructions per tanh (0 without tanh), and of reciprocals and divisions."""
    text = open(path).read()
    tanh, sums = text.count('tanh.approx.f32'), len(re.findall(r'\b(?:add|sub|mul|fma|neg)\.(?:rn\.)?f32', text))
    return tanh and (sums + tanh) / tanh, len(re.findall(r'rcp\.|div\.', text))


try:
    compiled([shardc, 'compile', f'{examples}/gpt2.shard', '--model', 'GPT2', '--set', 'train.batch=16', '--set',
              'plan.precision=bf16', '-D', 'Layers=2', '--target', 'sm_90a', '--keep', 'kept', '-o', 'exe'], folder)
    found = {os.path.basename(f)[:-4]: alternations(f) for f in glob.glob(f'{folder}/kept/*dot*.ptx')}
    layers = {k: v for k, v in found.items() if k.startswith('k_h_forward_')}
    if len(layers) < 8: sys.exit(f'products of a layer: {sorted(layers)}')
    wrong = [f'{k}: {n} plain loads, {t} after a store' for k, (n, t) in layers.items() if t or n > 5]
    wrong += [f'{k}: {t} of {n} loads after a store' for k, (n, t) in found.items() if n and t * 4 > n]
    placed = {k: v for k, v in found.items() if v[1]}
    if not placed: wrong.append('no product is in place: nothing was compared')
    gelu = {os.path.basename(f)[:-4]: arithmetic(f) for f in glob.glob(f'{folder}/kept/k_h_forward_*dot*.ptx')}
    gelu = {k: v for k, v in gelu.items() if v[0]}
    if len(gelu) < 2 or not any('_bwd_' in k for k in gelu): wrong.append(f'products with GELU: {gelu}')
    wrong += [f'{k}: {n:.1f} instructions per element, {r} reciprocals' for k, (n, r) in gelu.items()
              if r or n > (19 if '_bwd_' in k else 12)]
    if wrong: sys.exit('\n'.join(wrong))
    print('; '.join(f'{k}: {n:.1f} instructions per element' for k, (n, _) in gelu.items()))
    print(f'{len(layers)} products of a layer load operands by ld.global.nc; in place: ' +
          ', '.join(f'{k} ({n} plain loads, {t} after a store)' for k, (n, t) in placed.items()))
finally:
    shutil.rmtree(folder)
