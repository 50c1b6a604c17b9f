"""A budget of `recompute .. keep = auto` bounds the bytes that one rank saves, on any mesh:   budget.py SHARDC [SEED]

Models, meshes, micro-batches, machines, precision, `over` and `offload` meet pairwise: random rows until every two
choices have met. For each row the compiler says the least budget (E0710); that budget, and larger ones, are
written into the plan. `saved` of a rank (on the device or on its host; of a pipeline, on its first stage, which keeps
nothing outside of layers) is within the budget. A larger budget never costs operations, and one that holds all that
layers keep gives what `keep = all` gives.
"""
import itertools, json, os, random, re, subprocess, sys
from common import check, workdir

SHARDC, WORK = os.path.abspath(sys.argv[1]), workdir()
MACHINE = '''machine h { node gpus = 8 arch = sm_90a memory = 80GB bf16 = 989TFLOPS f32 = 60TFLOPS hbm = 3350GB/s
  host memory = 2TB pcie = 50GB/s dram = 200GB/s cores = 64
  link intra = 450GB/s inter = 100GB/s }
machine c { node cpus = 2 arch = x86_64_v3 memory = 4TB f32 = 1TFLOPS
  link intra = 10GB/s inter = 1GB/s }
'''
MODELS = {
    'GPT': ('h', 'use "gpt2"\nvariant GPT of GPT2 { Pos = 256; Vocab = 512; Embed = 256; Heads = 8; Layers = 8 }\n'
            'train t for GPT { size Seq = 256; batch 64; steps 2; data "x.bin" format = u16; optim adamw }\n',
            'Heads, Mlp, Vocab'),
    'Lla': ('layers', 'use "llama"\nvariant Lla of Llama3 { Vocab = 512; Embed = 256; Kv = 8; Group = 1; Head = 32;'
            ' Mlp = 512; Layers = 8 }\n'
            'train t for Lla { size Seq = 256; batch 64; steps 2; data "x.bin" format = u16; optim adamw }\n',
            'Kv, Mlp, Vocab'),
}
MESHES = {
    'one': ('data = 1', []),
    'data': ('data = 8', ['place Batch -> data', 'zero 2 over data']),
    'zero3': ('data = 8', ['place Batch -> data', 'zero 3 over data']),
    'nodes': ('data = 4, node = 4', ['place Batch -> node, data', 'zero 3 over data']),
    'tensor': ('tensor = 4', ['place {split} -> tensor']),
    'both': ('tensor = 4, data = 2', ['place Batch -> data', 'place {split} -> tensor else Seq', 'zero 1 over data']),
    'context': ('context = 4', ['place Seq -> context']),
    'turns': ('data = 2, pipe = 4', ['place Batch -> data', 'place Layers -> pipe', 'zero 1 over data']),
    'gpipe': ('tensor = 2, pipe = 4', ['place {split} -> tensor', 'place Layers -> pipe', 'pipeline gpipe']),
    'chunks': ('pipe = 2', ['place Layers -> pipe', 'pipeline interleaved chunks = 2']),
    'serial': ('pipe = 4', ['place Layers -> pipe', 'pipeline sequential']),
}
CHOICES = {'model': list(MODELS), 'mesh': list(MESHES), 'micro': [1, 2, 4], 'machine': ['h', 'c'],
           'precision': ['f32', 'bf16'], 'over': [False, True], 'offload': [False, True]}


def rows(rng):
    """Random rows until every two choices of two columns have met."""
    open_ = {(a, x, b, y) for a, b in itertools.combinations(CHOICES, 2) for x in CHOICES[a] for y in CHOICES[b]}
    while open_:
        drawn = [{k: rng.choice(v) for k, v in CHOICES.items()} for _ in range(30)]
        best = max(drawn, key=lambda r: len(met(r) & open_))
        open_ -= met(best)
        yield best


def met(row): return {(a, row[a], b, row[b]) for a, b in itertools.combinations(CHOICES, 2)}


def plan_of(row, name, line):
    mesh, lines = MESHES[row['mesh']]
    body = [l.format(split=MODELS[row['model']][2]) for l in lines]
    head = f'plan {name} for {row["model"]} {{\n  on {row["machine"]} nodes = 2\n  mesh {mesh}\n'
    head += f'  micro {row["micro"]}\n  precision {row["precision"]}\n'
    return head + ''.join(f'  {l}\n' for l in body + [line] if l) + '}\n'


def planned(row, line):
    open(f'{WORK}/a.shard', 'w').write(MACHINE + MODELS[row['model']][1] + plan_of(row, 'p', line))
    root = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'examples'))
    p = subprocess.run([SHARDC, 'plan', 'a.shard', '--json'], cwd=WORK, capture_output=True, text=True,
                       env={**os.environ, 'SHARDC_PATH': root, 'NO_COLOR': '1'})
    out = p.stdout.splitlines()
    return (json.loads(out[0]) if out and out[0].startswith('{') else None), p.stderr


def saved(row, told):
    first = told['classes'][0]
    return first['host']['saved'] if row['offload'] else first['bytes']['saved']


def size(text):
    number, unit = re.fullmatch(r'([\d.]+)(\w*)', text).groups()
    return float(number) * {'': 1, 'KiB': 1 << 10, 'MiB': 1 << 20, 'GiB': 1 << 30}[unit]


def words(row, stack, keep):
    over = f' over {MESHES[row["mesh"]][0].split()[0]}' if row['over'] else ''
    return f'recompute {stack}.* keep = {keep}{" offload = host" if row["offload"] else ""}{over}'


def judge(row):
    stack = MODELS[row['model']][0]
    _, said = planned(row, words(row, stack, 'auto budget = 1'))
    m = re.search(r'the least possible is budget = (\S+?);', said)
    if not m: return re.search(r'E\d+', said).group(0)
    least = size(m.group(1))
    budgets, flop = [m.group(1)] + [f'{least * k:.0f}' for k in (2, 100)], float('inf')
    check(planned(row, words(row, stack, f'auto budget = {least * .9:.0f}'))[0] is None, f'{row}: less than the least')
    for budget in budgets:
        told, said = planned(row, words(row, stack, f'auto budget = {budget}'))
        check(told, f'{row}: budget {budget}: {said}')
        check(saved(row, told) <= size(budget), f'{row}: {saved(row, told)} saved, budget {size(budget):.0f}')
        check(told['flop_per_step'] <= flop * 1.0001, f'{row}: {told["flop_per_step"]} FLOP at {budget}, {flop} below')
        flop = told['flop_per_step']
    most, kept = planned(row, words(row, stack, 'all'))[0], saved(row, told)
    check(kept == saved(row, most), f'{row}: {kept} at most, {saved(row, most)} with keep = all')
    return 'kept'


rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
counts = {}
for row in rows(rng):
    what = judge(row)
    counts[what] = counts.get(what, 0) + 1
check(counts.get('kept', 0) >= 10, f'{counts}')
print(counts)
