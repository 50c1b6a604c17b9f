"""What `offload` takes, every two choices: python3 offload_all.py SHARDC processor|gpu

A small GPT under rows of choices: which of optimizer, gradients, parameters and saved inputs lie on the host, the stage
of ZeRO, micro-batches, clipping, the guard against numbers that are not finite, precision, ranks. f16 begins with a
scale under which gradients overflow, so the guard leaves steps out. Every two choices meet in some row, which gives
the bits of the same plan without a host: losses, norms, weights, states. On processors in the interpreter (`verify`),
and as processes. On the GPU of the stand-in with late copies in two orders; where gradients are on its host, that adds
up their norm in another order, and what differs is rounding.
"""
import json, os, random, shutil, sys
from common import check, read, run, text_file, workdir
from pairs import greedy

SHARDC, WHERE, folder = os.path.abspath(sys.argv[1]), sys.argv[2], workdir()
CHOICES = {'update': ['', 'optimizer', 'optimizer, grads'], 'params': [0, 1], 'saved': [0, 1], 'zero': [0, 1, 2, 3],
           'parts': [1, 2], 'clip': [0, 1], 'guard': ['stop', 'skip', 'off'], 'precision': ['f32', 'bf16', 'f16'],
           'ranks': [1, 2]}
MODEL = '''use "gpt2"
variant Small of GPT2 { Pos = 16; Vocab = 256; Embed = 32; Heads = 4; Layers = 2 }
train t for Small {
  size  Seq = 16
  batch 8
  steps 4
  data  "text.txt" format = bytes
  optim adamw lr = 2e-3
  on_nan %s; %s
}
machine box { node gpus = 2 arch = sm_80 memory = 40GiB; host memory = 1GiB cores = 2 }
plan hosted for Small { %s; %s; recompute h keep = input%s }
plan near for Small { %s; recompute h keep = input }
'''


def fits(row): return row['update'] or row['params'] or row['saved']


def write(row):
    lines = [f'mesh data = {row["ranks"]}; place Batch -> data; zero {row["zero"]} over data',
             f'micro {8 // row["ranks"] // row["parts"]}',
             f'precision {row["precision"]}' + (' init_scale = 1e6' if row['precision'] == 'f16' else '')]
    if WHERE == 'gpu': lines.append('on box')
    there = ', '.join([row['update']] * bool(row['update']) + ['params'] * row['params'])
    plan = '; '.join(lines)
    open(f'{folder}/m.shard', 'w').write(MODEL % (
        row['guard'], 'clip 1.0' if row['clip'] else '', plan, f'offload {there} -> host' if there else '',
        ' offload = host' if row['saved'] else '', plan))
    for name in 'hosted', 'near':
        quick = ['--quick'] if WHERE != 'gpu' else []
        run(SHARDC, 'compile', 'm.shard', '--plan', name, '-o', name, '-q', *quick, cwd=folder)


def train(name, ranks, order=None):
    env = {} if order is None else {'SHARDC_EMULATE_ORDER': str(order), 'SHARDC_EMULATE_LATE': '1'}
    emulate = ['--emulate'] if WHERE == 'gpu' else []
    run(SHARDC, 'run', '-n', str(ranks), *emulate, f'./{name}', '--', 'train', '--out', 'out', '--save-every', '0',
        '--threads', '1', '--dump', 'out.st', cwd=folder, env=env)
    said = [r for r in map(json.loads, open(f'{folder}/out/metrics.jsonl')) if 'loss' in r]
    shutil.rmtree(f'{folder}/out')
    return [(r['loss'], r.get('grad_norm') or 0) for r in said], read(f'{folder}/out.st')


def on_processors(row, what):
    said = run(SHARDC, 'verify', 'm.shard', '--plan', 'hosted', '--against', 'near', '--steps', '3', cwd=folder)
    check('the same bits in losses, norms and' in ''.join(said), f'{what}: {said}')
    check(train('hosted', row['ranks']) == train('near', row['ranks']), f'{what}: other bits than without a host')


def on_gpus(row, what):
    near, late = train('near', row['ranks']), train('hosted', row['ranks'], 3)
    check(late == train('hosted', row['ranks'], 0), f'{what}: other bits in another order')
    if 'grads' not in row['update']:
        check(late == near, f'{what}: other bits than without a host')
        return
    most = 1e-5 if row['precision'] == 'f32' else 1e-3
    worst = max(abs(a - b) / max(abs(b), 1e-9) for x, y in zip(late[0], near[0], strict=True) for a, b in zip(x, y)
                if abs(b) < float('inf'))
    check(worst < most, f'{what}: {worst}: {late[0]} {near[0]}')


text_file(f'{folder}/text.txt')
found = greedy(CHOICES, random.Random(4), fits=fits)[0]
for row in found:
    write(row)
    (on_gpus if WHERE == 'gpu' else on_processors)(row, ' '.join(f'{k}={v}' for k, v in row.items()))
shutil.rmtree(folder)
print(f'{WHERE}: {len(found)} rows of every two choices: what is on the host changes no bit')
