"""`offload` of the layers of some stages, every two choices: python3 offload_stages.py SHARDC processor|gpu [ROWS]

A small GPT over stages under rows of choices: which stages have the optimizer, gradients or parameters of which layers
on the host; schedule, stages, chunks and different numbers of layers on them; ZeRO over data, an axis that cuts
tensors, micro-batches, clipping, precision, updates a step late, saved inputs. Every two choices meet in some row.
Losses, norms, weights and states equal bit by bit those of the plan that has the same tensors of all layers on the
host, because it has the same groups. They also equal those of the plan without `offload`, except for the norm, whose
groups are summed in another order (offload_all.py). The bytes that each memory touches equal the prediction. On the
stand-in GPU with late copies, in two orders. ROWS: number of rows (all).
"""
import json, os, random, re, shutil, sys
from common import apart, check, run, text_file, trained, workdir
from pairs import greedy

SHARDC, WHERE, folder = os.path.abspath(sys.argv[1]), sys.argv[2], workdir()
LAYERS = 8
CHOICES = {'words': ['params', 'optimizer', 'optimizer, grads', 'optimizer; params', 'optimizer, grads; params'],
           'saved': [0, 1], 'zero': [0, 1, 2, 3], 'stages': [2, 4],
           'schedule': ['one_f_one_b', 'gpipe', 'interleaved', 'zero_bubble', 'uneven'],
           'there': ['first', 'last', 'middle', 'first two, attn of the last', 'ends'], 'apart': [0, 1],
           'parts': [2, 4], 'clip': [0, 1], 'guard': ['skip', 'off'], 'precision': ['f32', 'bf16', 'f16'],
           'data': [1, 2], 'tensor': [1, 2], 'late': [0, 1]}
MODEL = '''use "gpt2"
variant Small of GPT2 { Pos = 16; Vocab = 256; Embed = 16; Heads = 2; Layers = %d }
train t for Small {
  size  Seq = 8
  batch 8
  steps 4
  data  "text.txt" format = bytes
  optim adamw lr = 2e-3 betas = [0.9, 0.95]
  on_nan %s; %s; %s
}
machine box { node gpus = 16 arch = sm_80 memory = 40GiB; host memory = 1GiB cores = 2 }
plan some for Small { %s; %s; recompute h.* keep = input%s }
plan whole for Small { %s; %s; recompute h.* keep = input%s }
plan near for Small { %s; recompute h.* keep = input }
'''


def layers_of(row):
    """By stage its ranges of layers; of `uneven` as `plan` tells them."""
    n, stages = LAYERS, row['stages']
    if row['schedule'] == 'uneven': return row['ranges']
    blocks = 2 * stages if row['schedule'] == 'interleaved' else stages
    room = n // blocks
    return [[(b * room, b * room + room - 1) for b in range(s, blocks, stages)] for s in range(stages)]


def paths(row, stages, under=''):
    return [f'h[{a}..{b}]{under}' for s in stages for a, b in layers_of(row)[s]]


def there(row):
    """The paths of the row's layers, and the same of all layers."""
    n = row['stages']
    kind = {'first': ([0], []), 'last': ([n - 1], []), 'middle': ([n // 2], []), 'ends': ([0, n - 1], []),
            'first two, attn of the last': (list(range(n - 1))[:2], [n - 1])}[row['there']]
    some = paths(row, kind[0]) + paths(row, kind[1], '.attn')
    return ', '.join(some), 'h.*'


def waits(row): return row['clip'] or row['guard'] != 'off' or row['precision'] == 'f16'


def lines(row, of):
    """`apart`: the parameters of one stage's layers, the update of all layers."""
    first = of if not row['apart'] or of == 'h.*' else ', '.join(paths(row, [0 if row['there'] != 'last' else -1]))
    update = row['words'].replace('params', '').strip('; ')
    said = [f'offload {update} of {of} -> host'] * bool(update)
    return '; '.join(said + [f'offload params of {first} -> host'] * ('params' in row['words']))


def write(row, names):
    mesh, rules = f'pipe = {row["stages"]}', ['place Layers -> pipe']
    if row['tensor'] > 1: mesh, rules = mesh + ', tensor = 2', rules + ['place Heads, Mlp, Vocab -> tensor']
    if row['data'] > 1:
        mesh, rules = mesh + ', data = 2', rules + ['place Batch -> data', f'zero {row["zero"]} over data']
    schedule = 'one_f_one_b uneven = on' if row['schedule'] == 'uneven' else row['schedule']
    plan = [f'mesh {mesh}', *rules, f'micro {8 // row["data"] // row["parts"]}', f'pipeline {schedule}']
    plan.append(f'precision {row["precision"]}' + (' init_scale = 1e6' if row['precision'] == 'f16' else ''))
    if WHERE == 'gpu': plan.append('on box')
    plan, kept = '; '.join(plan), ' offload = host' if row['saved'] else ''
    if row['schedule'] == 'uneven':
        open(f'{folder}/m.shard', 'w').write(MODEL % (7, row['guard'], '', '', plan, '', '', plan, '', '', plan))
        said = json.loads(run(SHARDC, 'plan', 'm.shard', '--plan', 'near', '--json', cwd=folder)[0].split('\n')[0])
        each, row['ranges'] = said['classes'][0]['layers'][0], []
        for s in range(row['stages']):
            first = s * each
            row['ranges'].append([(first, min(first + each, 7) - 1)] if first < 7 else [])
    some, whole = there(row)
    open(f'{folder}/m.shard', 'w').write(MODEL % (
        7 if row['schedule'] == 'uneven' else LAYERS, row['guard'], 'clip 1.0' if row['clip'] else '',
        'delay after = 2' if row['late'] else '',
        plan, lines(row, some), kept, plan, lines(row, whole), kept, plan))
    for name in names:
        run(SHARDC, 'compile', 'm.shard', '--plan', name, '-o', name, '-q', '--quick', cwd=folder)


def train(name, row, what, order=None):
    ranks = row['stages'] * row['tensor'] * row['data']
    env = {} if order is None else {'SHARDC_EMULATE_ORDER': str(order), 'SHARDC_EMULATE_LATE': '1'}
    emulate = ['--emulate'] if WHERE == 'gpu' else []
    said = ''.join(run(SHARDC, 'run', '-n', str(ranks), *emulate, f'./{name}', '--', 'train', '--out', 'out',
                       '--save-every', '0', '--threads', '1', '--check-memory', '--dump', 'out.st', cwd=folder,
                       env=env))
    row_ = r' +\d+ +\d+ +\d+  (\w+)\n'
    bytes_ = re.findall(rf'^(?:step|init){row_}(?:  host{row_})?', said, re.M)
    fine = ['exact', '', *['less'] * (row['schedule'] == 'uneven' and row['saved'])]  # rounds after the last layer
    check(bytes_ and all(b in fine for b in sum(bytes_, ())), f'{what}: {name}: {said}')
    return trained(folder)


def alike(row, got, other, what, sharp):
    """The same bits; not sharp: of a norm that is added up in another order."""
    if sharp: return check(got == other, f'{what}: other bits')
    worst = [apart(got[i], other[i]) for i in (0, 1)]
    most = 1e-6 if not row['clip'] else 1e-5 if row['precision'] == 'f32' else 1e-3
    check(row['clip'] or got[0] == other[0] and got[2] == other[2], f'{what}: other bits: {worst}')
    check(max(worst) < most, f'{what}: {worst}: {got[:2]} {other[:2]}')


def compare(row, what):
    write(row, ['some', 'whole', 'near'])
    gpu = WHERE == 'gpu'
    some = train('some', row, what, 3 if gpu else None)
    if gpu: check(some == train('some', row, what, 0), f'{what}: other bits in another order')
    host_adds = gpu and 'grads' in row['words'] and waits(row)
    alike(row, some, train('whole', row, what), f'{what}: all layers there', not host_adds)
    alike(row, some, train('near', row, what), f'{what}: none there', not waits(row))


text_file(f'{folder}/text.txt')
found = greedy(CHOICES, random.Random(6))[0]
rows = found[:int((sys.argv[3:] + [len(found)])[0])]
for row in rows:
    what = ' '.join(f'{k}={v}' for k, v in row.items())
    if os.environ.get('SHOW'): print(what, flush=True)
    compare(row, what)
shutil.rmtree(folder)
print(f'{WHERE}: {len(rows)} of {len(found)} rows of every two choices: what stages have on the host changes no bit')
