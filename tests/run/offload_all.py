"""The operands of `offload`, every two choices: python3 offload_all.py SHARDC processor|gpu [ROWS]

A small GPT under rows of choices: which of optimizer, gradients, parameters and saved inputs are on the host, of all
parameters or of those of some layers; the stage of ZeRO, micro-batches, clipping, the guard against numbers that are
not finite, precision, ranks, an axis that cuts tensors, moments in bf16, updates before the norm or a step late. f16
begins with a scale under which gradients overflow, so the guard skips steps. Every two choices meet in some row, which
gives the bits of the same plan without `offload`: losses, norms, weights, states. Small buckets let the host update row
by row. On processors, every fourth of them by `verify`, with optimized kernels. On the GPU of the stand-in with late
copies in two orders; with gradients on its host, the host sums their norm in another order, and results differ by
rounding.

The norm is a sum over groups, and a line of some layers makes other groups, so the order of the sum differs. Without
`clip` only the printed norm may differ. With it the factor does, in its last bits, so f32 weights do; cast to 16 bits
some of these are neighbours then, 2^-8 or 2^-11 apart, which losses show: more than 1e-5.
"""
import itertools, os, random, shutil, sys
from common import apart, check, run, text_file, trained, workdir
from pairs import greedy

SHARDC, WHERE, folder, SHARP = os.path.abspath(sys.argv[1]), sys.argv[2], workdir(), itertools.count()
CHOICES = {'update': ['', 'optimizer', 'optimizer, grads'], 'params': [0, 1], 'saved': [0, 1], 'zero': [0, 1, 2, 3],
           'parts': [1, 2], 'clip': [0, 1], 'guard': ['stop', 'skip', 'off'], 'precision': ['f32', 'bf16', 'f16'],
           'ranks': [1, 2],
           'of': ['', 'h.0, wte', 'h[1..1].mlp', 'h[0..1].attn'], 'tensor': [1, 2], 'states': ['f32', 'bf16'],
           'late': [0, 1], 'rows': [0, 1]}
MODEL = '''use "gpt2"
variant Small of GPT2 { Pos = 16; Vocab = 256; Embed = 32; Heads = 4; Layers = 2 }
train t for Small {
  size  Seq = 16
  batch 8
  steps 4
  data  "text.txt" format = bytes
  optim adamw lr = 2e-3 betas = [0.9, 0.95] states = %s
  on_nan %s; %s; %s
}
machine box { node gpus = 4 arch = sm_80 memory = 40GiB; host memory = 1GiB cores = 2 }
plan hosted for Small { %s; %s; recompute h keep = input%s }
plan near for Small { %s; recompute h keep = input }
'''


def fits(row): return row['update'] or row['params'] or row['saved']


def waits(row): return row['clip'] or row['guard'] != 'off' or row['precision'] == 'f16'


def write(row):
    mesh, rules = f'data = {row["ranks"]}', 'place Batch -> data'
    if row['tensor'] > 1: mesh, rules = mesh + ', tensor = 2', rules + '; place Heads, Mlp, Vocab -> tensor'
    lines = [f'mesh {mesh}; {rules}; zero {row["zero"]} over data'
             + ' bucket = 4KiB' * row['rows'], f'micro {8 // row["ranks"] // row["parts"]}',
             f'precision {row["precision"]}' + (' init_scale = 1e6' if row['precision'] == 'f16' else '')]
    if WHERE == 'gpu': lines.append('on box')
    of = f' of {row["of"]}' if row['of'] else ''
    there = [f'offload {row["update"]}{of} -> host'] * bool(row['update'])
    there += [f'offload params{of} -> host'] * row['params']
    plan = '; '.join(lines)
    open(f'{folder}/m.shard', 'w').write(MODEL % (
        row['states'], row['guard'], 'clip 1.0' if row['clip'] else '',
        'delay after = 2' if row['late'] else '', plan, '; '.join(there),
        ' offload = host' if row['saved'] else '', plan))
    for name in 'hosted', 'near':
        run(SHARDC, 'compile', 'm.shard', '--plan', name, '-o', name, '-q', '--quick', cwd=folder)


def train(name, row, order=None):
    ranks = row['ranks'] * row['tensor']
    env = {} if order is None else {'SHARDC_EMULATE_ORDER': str(order), 'SHARDC_EMULATE_LATE': '1'}
    emulate = ['--emulate'] if WHERE == 'gpu' else []
    run(SHARDC, 'run', '-n', str(ranks), *emulate, f'./{name}', '--', 'train', '--out', 'out', '--save-every', '0',
        '--threads', '1', '--dump', 'out.st', cwd=folder, env=env)
    return trained(folder)


def same_but_norm(row, got, near, what):
    """What groups of their own, or a host's own sums, may change."""
    worst = [apart(got[i], near[i]) for i in (0, 1)]
    if row['clip']: most = 1e-5 if row['precision'] == 'f32' and row['states'] == 'f32' else 1e-3
    else:
        most = 1e-6
        check(got[0] == near[0] and got[2] == near[2], f'{what}: other bits than without a host: {worst}')
    check(max(worst) < most, f'{what}: {worst}: {got[:2]} {near[:2]}')


def two_for_one(got, near, what):
    """Late steps are a program of their own: its kernels may add up otherwise, where nothing waits for a norm."""
    check(max(apart(got[i], near[i]) for i in (0, 1)) < 1e-6, f'{what}: {got[:2]} {near[:2]}')


def on_processors(row, what):
    got, near = train('hosted', row), train('near', row)
    if row['of'] and waits(row): same_but_norm(row, got, near, what)
    elif row['late'] and not waits(row): two_for_one(got, near, what)
    else:
        check(got == near, f'{what}: other bits than without a host')
        if next(SHARP) % 4 == 0: verified(what)


def verified(what):
    said = run(SHARDC, 'verify', 'm.shard', '--plan', 'hosted', '--against', 'near', '--steps', '3', cwd=folder)
    check('the same bits in losses, norms and' in ''.join(said), f'{what}: {said}')


def on_gpus(row, what):
    near, late = train('near', row), train('hosted', row, 3)
    check(late == train('hosted', row, 0), f'{what}: other bits in another order')
    if row['late'] and not waits(row): two_for_one(late, near, what)
    elif 'grads' in row['update'] or row['of'] and waits(row): same_but_norm(row, late, near, what)
    else: check(late == near, f'{what}: other bits than without a host')


text_file(f'{folder}/text.txt')
found, left = greedy(CHOICES, random.Random(4), int((sys.argv + [1000])[3]), fits)
for row in found:
    write(row)
    (on_gpus if WHERE == 'gpu' else on_processors)(row, ' '.join(f'{k}={v}' for k, v in row.items()))
shutil.rmtree(folder)
check(WHERE == 'gpu' or next(SHARP) > 4, 'few rows on processors give the same bits')
print(f'{WHERE}: {len(found)} rows, {len(left)} pairs of choices left out: what is on the host changes no bit')
