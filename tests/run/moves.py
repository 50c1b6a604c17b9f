"""A run resumes from a checkpoint under any other plan: moves.py SHARDC [PAIRS [SEED]]

Random plans of a tied and an untied model: stages (of four not all alike), tensor and data axes, stages of ZeRO,
schedules, micro-batches. In pairs that differ in all of these (data, tensor, stages, ZeRO) the first plan trains and
saves, the second resumes: the final losses, weights and states equal those of one rank that was not interrupted.
"""
import json, os, random, shutil, sys
from common import check, floats, run, text_file, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
PAIRS, r = int((sys.argv[2:] + ['3'])[0]), random.Random(int((sys.argv[3:] + ['0'])[0]))
SAVED, STEPS, MOST_RANKS = 2, 5, 12
TRAIN = '''train t for Small { size Seq = 8; batch 8; steps 5
 data "text.txt" format = bytes
 optim adamw lr = 2e-3
 clip 1.0 }
plan one for Small { micro 8 }
'''
MODELS = {'tied': ('''use "gpt2"
variant Small of GPT2 { Pos = 8; Vocab = 257 pad 8; Embed = 16; Heads = 2; Layers = 6 }
''', 'Heads, Mlp'), 'untied': ('''use "llama"
variant Small of Llama3 { Vocab = 256; Embed = 16; Mlp = 32; Kv = 2; Group = 1; Head = 8; Layers = 6 }
''', 'Kv, Mlp')}


def schedules(stages):
    """The schedules of six layers on the given number of stages."""
    if stages == 1: return ['']
    made = ['one_f_one_b', 'gpipe', 'zero_bubble', 'zero_bubble memory = 2', 'sequential']
    if stages == 4: return [f'{s} uneven = on' for s in made]
    return made + 2 * [f'interleaved chunks = {6 // stages}'] * (stages < 6)


def drawn():
    row = {'stages': r.choice([1, 2, 3, 4, 6]), 'tensor': r.choice([1, 2]), 'data': r.choice([1, 2, 4])}
    row['zero'] = r.choice([0, 1, 2, 3]) if row['data'] > 1 else 0
    row['schedule'] = r.choice(schedules(row['stages']))
    row['micro'] = r.choice([m for m in (1, 2, 4, 8) if 8 // row['data'] % m == 0])
    return row


def ranks(row): return row['stages'] * row['tensor'] * row['data']


def pair():
    """Two plans that differ in all four; the ranks of both are processes of this machine."""
    while True:
        a, b = drawn(), drawn()
        apart = all(a[k] != b[k] for k in ('stages', 'tensor', 'data', 'zero'))
        if apart and max(ranks(a), ranks(b)) <= MOST_RANKS: return a, b


def plan(row, name, splits):
    axes = [('data', 'data', 'Batch'), ('tensor', 'tensor', splits), ('pipe', 'stages', 'Layers')]
    there = [(axis, row[key], dims) for axis, key, dims in axes if row[key] > 1]
    lines = ['mesh ' + ', '.join(f'{axis} = {n}' for axis, n, _ in there)] if there else []
    lines += [f'place {dims} -> {axis}' for axis, _, dims in there] + [f'micro {row["micro"]}']
    if row['schedule']: lines.append(f'pipeline {row["schedule"]}')
    if row['zero']: lines.append(f'zero {row["zero"]} over data')
    return f'plan {name} for Small {{ ' + '; '.join(lines) + ' }\n'


def train(exe, n, out, *more):
    start = [] if n == 1 else [SHARDC, 'run', '-n', str(n)]
    run(*start, f'./{exe}', *(['--'] if n > 1 else []), 'train', '--out', out, '--threads', '1', '--dump', f'{out}.st',
        *more, cwd=folder)
    rows = map(json.loads, open(f'{folder}/{out}/metrics.jsonl'))
    return [row['loss'] for row in rows if 'loss' in row], floats(f'{folder}/{out}.st')


def close(have, want, what):
    (losses, state), (whole, states) = have, want
    same = len(losses) == STEPS and max(abs(a - b) for a, b in zip(losses, whole)) < 1e-5
    check(same, f'{what}: {losses} and {whole}')
    apart = {k: max((abs(x - y) for x, y in zip(states[k], v)), default=0) for k, v in state.items()
             if k in states and not k.startswith(('norm', 'out.', 'loss'))}
    far = max(apart, key=apart.get)
    check(len(apart) > 20 and apart[far] < 2e-5, f'{what}: {far} {apart[far]:.3g}')
    return apart[far]


text_file(f'{folder}/text.txt')
whole, worst = {}, 0
for name, (model, _) in MODELS.items():
    open(f'{folder}/{name}.shard', 'w').write(model + TRAIN)
    run(SHARDC, 'compile', f'{name}.shard', '--plan', 'one', '-o', name, '-q', '--quick', cwd=folder)
    whole[name] = train(name, 1, f'{name}.one')
for k in range(PAIRS):
    name, both = list(MODELS)[k % 2], pair()
    model, splits = MODELS[name]
    plans = ''.join(plan(row, f'p{i}', splits) for i, row in enumerate(both))
    open(f'{folder}/m.shard', 'w').write(model + TRAIN + plans)
    for i in 0, 1: run(SHARDC, 'compile', 'm.shard', '--plan', f'p{i}', '-o', f'p{i}', '-q', '--quick', cwd=folder)
    train('p0', ranks(both[0]), 'moved', '--steps', str(SAVED))
    have = train('p1', ranks(both[1]), 'moved', '--resume')
    worst = max(worst, close(have, whole[name], f'{name}, {both}'))
    shutil.rmtree(f'{folder}/moved')
shutil.rmtree(folder)
print(f'{PAIRS} pairs of plans go on as one rank does, within {worst:.2g}')
