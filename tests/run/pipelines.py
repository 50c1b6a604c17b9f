"""Pipelines of every kind, as processes: python3 pipelines.py SHARDC [ROWS]

Five models of tests/ranks/pipe.c under rows of plans in which every two choices meet: stages, tensor, data, stages of
ZeRO, schedules, micro-batches; and the conditioned one, whose stages send messages of different sizes back and forth.
20 steps each: losses, parameters and states equal those of one rank, and every rank touches exactly the predicted
bytes. ROWS: number of rows (default: all).
"""
import json, os, random, re, shutil, struct, sys
from common import ROOT, check, floats, read, run, workdir
from many import npy
from pairs import greedy

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
STEPS, LAYERS, SAMPLES, SEQ, VOCAB = 20, 8, 72, 4, 12
CHOICES = {'model': ['gpt2', 'llama', 'bert', 'tied', 'untied'], 'stages': [2, 3, 4], 'tensor': [1, 2], 'data': [1, 2],
           'zero': [0, 1, 2, 3], 'parts': ['1', '2', 'P', '2P + 1'],
           'schedule': ['sequential', 'gpipe', 'one_f_one_b', 'interleaved', 'zero_bubble', 'zero_bubble memory = 2']}
SPLITS = {'gpt2': 'Heads, Mlp, Vocab', 'llama': 'Kv, Mlp, Vocab', 'bert': 'Heads, Mlp, Vocab', 'tied': 'Wide',
          'untied': 'Wide, Out', 'conditioned': 'Wide, Out'}
CONDITIONED = [{'model': 'conditioned', 'stages': 2, 'tensor': 1, 'data': 2, 'zero': 2, 'parts': '2P + 1',
                'schedule': 'one_f_one_b'},
               {'model': 'conditioned', 'stages': 3, 'tensor': 2, 'data': 1, 'zero': 0, 'parts': 'P',
                'schedule': 'zero_bubble'}]
PATH = {'SHARDC_PATH': os.pathsep.join(os.path.join(ROOT, d) for d in ('examples', 'tests/ranks', 'tests/reference'))}


def write_data():
    r = random.Random(3)
    tokens = [min(VOCAB - 1, int(r.expovariate(0.3))) for _ in range(SAMPLES * SEQ + 1)]
    open(f'{folder}/text.bin', 'wb').write(struct.pack(f'<{len(tokens)}H', *tokens))
    n, shape = SAMPLES * SEQ, (SAMPLES, SEQ)
    npy(f'{folder}/tokens.npy', '<i4', shape, tokens[:n])
    npy(f'{folder}/labels.npy', '<i4', shape, [t if r.random() < .5 else -100 for t in tokens[:n]])
    npy(f'{folder}/types.npy', '<i4', shape, [r.randrange(2) for _ in range(n)])
    npy(f'{folder}/valid.npy', '|b1', shape, [i % SEQ == 0 or r.random() < .8 for i in range(n)])
    npy(f'{folder}/x.npy', '<f4', (SAMPLES, 6), [r.gauss(0, 1) for _ in range(SAMPLES * 6)])
    npy(f'{folder}/y.npy', '<i4', (SAMPLES,), [r.randrange(4) for _ in range(SAMPLES)])


def parts_of(row): return {'1': 1, '2': 2, 'P': row['stages'], '2P + 1': 2 * row['stages'] + 1}[row['parts']]


def layers_of(row): return 2 * row['stages']


def plan(row):
    axes = [('tensor', row['tensor'], SPLITS[row['model']]), ('data', row['data'], 'Batch')]
    axes += [('pipe', row['stages'], 'Layers')]
    there = [a for a in axes if a[1] > 1]
    lines = ['mesh ' + ', '.join(f'{axis} = {n}' for axis, n, _ in there), 'micro 1', f'pipeline {row["schedule"]}']
    lines += [f'place {dims} -> {axis}' for axis, _, dims in there]
    if row['zero'] and row['data'] > 1: lines.append(f'zero {row["zero"]} over data')
    return 'plan p {\n' + ''.join(f'  {l}\n' for l in lines) + '}\n'


def tensors(path):
    return {k: v for k, v in floats(path).items() if not k.startswith(('norm', 'out.', 'logits.', 'decode.'))}


def train(row, name, ranks):
    text = open(os.path.join(ROOT, 'tests', 'ranks', f'pipe_{row["model"]}.shard')).read()
    text = re.sub(r'(\w+) = "none.npy"', r'\1 = "\1.npy"', text.replace('"none.bin"', '"text.bin"'))
    batch = row['data'] * parts_of(row)
    open(f'{folder}/{name}.shard', 'w').write(text + (plan(row) if ranks > 1 else f'plan p {{ micro {batch} }}\n'))
    run(SHARDC, 'compile', f'{name}.shard', '--plan', 'p', '-o', f'{name}.exe', '-q', '--quick', '-D',
        f'Layers={layers_of(row)}', '--set', f'train.batch={batch}', cwd=folder, env=PATH)
    start = [SHARDC, 'run', '-n', str(ranks), f'./{name}.exe', '--'] if ranks > 1 else [f'./{name}.exe']
    said = run(*start, 'train', '--steps', str(STEPS), '--out', name, '--threads', '1', '--save-every', '0',
               '--check-memory', '--dump', f'{name}.st', cwd=folder)
    bytes_ = re.findall(r'^(step|eval|init|logits|decode) +\d+ +\d+ +\d+  (\w+)', ''.join(said), re.M)
    check(bytes_ and all(b == 'exact' for _, b in bytes_), f'{row}: {bytes_}')
    losses = [r['loss'] for r in map(json.loads, open(f'{folder}/{name}/metrics.jsonl')) if 'loss' in r]
    return losses, tensors(f'{folder}/{name}.st')


def apart(have, want, what):
    """The largest differences of losses and of tensors against their size."""
    check(len(have[0]) == len(want[0]) == STEPS, f'{what}: {have[0]}')
    losses = max(abs(a - b) / max(abs(b), 1) for a, b in zip(have[0], want[0]))
    worst = 0
    for name, x in want[1].items():
        y = have[1].get(name)
        check(y and len(x) == len(y), f'{what}: {name}')
        size = sum(a * a for a in x) ** .5 + 1e-3 * len(x) ** .5
        worst = max(worst, sum((a - b) ** 2 for a, b in zip(x, y)) ** .5 / size)
    check(losses < 1e-6 and worst < 2e-4, f'{what}: losses {losses:.2g}, tensors {worst:.2g}')
    if os.environ.get('SHOW'): print(f'{losses:.2g} {worst:.2g} {what}', flush=True)
    return losses, worst


def two_messages():
    """`memory = 2`, where stages send two values per pass: among processors each direction has room for one."""
    row = {**CONDITIONED[1], 'tensor': 1, 'schedule': 'zero_bubble memory = 2'}
    text = read(os.path.join(ROOT, 'tests', 'ranks', 'pipe_conditioned.shard')).decode()
    gpus = 'machine m { node gpus = 8 arch = sm_80 memory = 40GiB }\n' + plan(row).replace('p {', 'p {\n  on m')
    for batch, block, good in (3, plan(row), True), (4, plan(row), False), (12, gpus, True):
        open(f'{folder}/two.shard', 'w').write(text + block)
        err = run(SHARDC, 'plan', 'two.shard', '-D', 'Layers=3', '--set', f'train.batch={batch}', cwd=folder, env=PATH,
                  expect=0 if good else 1)[1]
        check(good or 'E0901' in err and 'with `memory = 2`, and an operand of all layers' in err, err)


try:
    write_data()
    two_messages()
    whole, far, all_ = {}, [], greedy(CHOICES, random.Random(4), tries=200)[0]
    for k, row in enumerate(all_[:int((sys.argv[2:] + [len(all_)])[0])] + CONDITIONED):
        key = row['model'], layers_of(row), row['data'] * parts_of(row)
        if key not in whole: whole[key] = train(row, f'one{k}', 1)
        far.append(apart(train(row, f'r{k}', row['stages'] * row['tensor'] * row['data']), whole[key], f'{row}'))
    print(f'{len(far)} of {len(all_)} rows: losses within {max(f[0] for f in far):.2g}, tensors within '
          f'{max(f[1] for f in far):.2g} of their size')
finally:
    shutil.rmtree(folder)
