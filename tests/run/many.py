"""Shared by the tests that run one model under many plans: four small models whose dims four ranks divide, their data,
plans from a row of choices, and the comparison with one rank. A row is a dict: model, zero, data, tensor, seq, parts,
recompute, precision, clip, and perhaps bucket, hybrid (four ranks of data are two nodes of two, which keep shards
each), reduce (with bf16 computation: the type in which gradients are sent), grad (with bf16 computation: the type in
which gradients are summed), flight (messages overlap kernels; stage 3 gathers this number of layers ahead, or the
number that this many bytes hold; not for messages through the host), split (saved inputs are split over tensor), pipe
(layers over stages, at most four ranks per stage; all layers keep the same inputs, none for `part`, and `auto` has one
stage; micro-batches stream through the stages), offload (the optimizer is on the host if that is built; 2: also
gradients, parameters and saved inputs; `stack`: only of the layers, with their gradients), signs (1-bit Adam of four
workers, frozen after this number of steps), schedule (of the pipeline), int8 (gradients and gathered weights are sent
in 8 bits), late (updates come one step late after this number of steps), states (moments are kept in bf16), aside
(training goes on while checkpoints are written).
"""
import json, os, random, re, shutil, struct, subprocess
from common import EXAMPLES, MPI, ROOT, floats, npy

# How ranks communicate: options of `compile` and `plan`, the command before the executable, arguments after its name.
OVER = {'local': ([], lambda shardc, n: [] if n == 1 else [shardc, 'run', '-n', str(n)], lambda n: [] if n == 1
                  else ['--']),
        'mpi': (['--comm', 'mpi'], lambda shardc, n: ['mpirun', '--oversubscribe', '-n', str(n)], lambda n: []),
        'host': (['--target', 'sm_80', '--comm', 'local'], lambda shardc, n: [shardc, 'run', '-n', str(n), '--emulate'],
                 lambda n: ['--']),
        'nccl': (['--target', 'sm_80'], lambda shardc, n: [shardc, 'run', '-n', str(n), '--emulate'], lambda n: ['--'])}
SHORT = 16384  # bytes
BUCKETS = {'0.25KiB': 256, '1KiB': 1 << 10, '8KiB': 8 << 10, '25MiB': 25 << 20}
CHOICES = {'model': ['sparse', 'llama', 'bert', 'mixer'], 'zero': [0, 1, 2, 3], 'data': [1, 2, 4], 'tensor': [1, 2, 4],
           'seq': [0, 1],
           'parts': [1, 4], 'recompute': [0, 1, 'part', 'auto'], 'precision': ['f32', 'bf16'], 'clip': [0, 1],
           'bucket': list(BUCKETS), 'hybrid': [0, 1], 'reduce': [0, 'bf16', 'f32'], 'grad': [0, 'bf16'],
           'flight': [0, 1, '1MiB'], 'split': [0, 1], 'pipe': [1, 2],
           'offload': [0, 1, 2], 'aside': [0, 1]}
STACKS = {'bert': 'encoder', 'llama': 'layers', 'deep': 'layers'}
SPLITS = {'llama': 'Kv, Mlp, Vocab', 'deep': 'Kv, Mlp, Vocab', 'mixer': 'Wide, Places'}
PATH = os.pathsep.join([os.path.join(ROOT, 'tests', 'ranks'), EXAMPLES, os.path.join(ROOT, 'tests', 'reference')])
BATCH, SAMPLES, SEQ, VOCAB = 16, 64, 8, 32


def write_data(folder):
    r = random.Random(3)
    tokens = [min(VOCAB - 1, int(r.expovariate(0.15))) for _ in range(SAMPLES * SEQ + 1)]
    open(f'{folder}/text.bin', 'wb').write(struct.pack(f'<{len(tokens)}H', *tokens))
    n, shape = SAMPLES * SEQ, (SAMPLES, SEQ)
    npy(f'{folder}/tokens.npy', '<i4', shape, tokens[:n])
    npy(f'{folder}/labels.npy', '<i4', shape, [t if r.random() < .4 else -100 for t in tokens[:n]])
    npy(f'{folder}/types.npy', '<i4', shape, [r.randrange(2) for _ in range(n)])
    npy(f'{folder}/valid.npy', '|b1', shape, [i % SEQ == 0 or r.random() < .8 for i in range(n)])
    npy(f'{folder}/image.npy', '<f4', (SAMPLES, 4, 8, 2), [r.gauss(0, 1) for _ in range(SAMPLES * 64)])
    npy(f'{folder}/label.npy', '<i4', (SAMPLES,), [r.randrange(4) for _ in range(SAMPLES)])


def name_of(row): return '_'.join(f'{v}' for v in row.values())


def variant(model):
    """The model and the train block of tests/ranks, with data that exists."""
    text = open(os.path.join(ROOT, 'tests', 'ranks', f'{model}_ranks.shard')).read()
    text = text.replace('"none.bin" format = u16', '"text.bin" format = u16')
    if model == 'bert': text = re.sub(r'(\w+) = "none.npy"', r'\1 = "\1.npy"', text)
    if model == 'mixer':
        text = text.replace('image = "none.npy"', 'image = "image.npy"').replace('label = "none.npy"',
                                                                                 'label = "label.npy"')
    return text


def with_signs(text, freeze):
    """After few steps of warm-up some second moments are next to nothing: eps keeps such elements where they are."""
    text = re.sub(r'optim .*', f'optim onebit_adam lr = 1e-3 eps = 1e-3 freeze = {freeze} workers = 4 block = 64', text)
    return re.sub(r'steps \d+', f'steps {8 * freeze}', text)


def with_delay(text, after):
    text = re.sub(r'\n( *)optim ', f'\\n\\1delay after = {after}\\g<0>', text)
    return re.sub(r'steps \d+', f'steps {4 * after}', text)


def with_states(text):
    return re.sub(r'(optim (?:adamw|lamb)[^\n;]*)', r'\1 states = bf16', text)


def with_saves(text): return re.sub(r'\n( *)optim ', r'\n\1save every = 2 keep = 1 async = on\g<0>', text, count=1)


def kept(row):
    """What follows the stack's name: `auto` has two and a half times the layers' inputs of a rank's micro-batch,
    or the row's budget."""
    inputs = 40960 // row['parts'] // row.get('data', 1) // (1 if row['precision'] == 'f32' else 2)
    budget = row.get('budget') or inputs
    part = ['.* keep = none'] if stages(row) > 1 else ['[0..0] keep = input', '[1..1] keep = none']
    lines = {0: [], 1: ['.* keep = input'], 'part': part,
             'auto': [f'.* keep = auto budget = {budget}']}[row['recompute']]
    there = row.get('offload') == 2
    lines = [l + (' offload = host' if there and not l.endswith('none') else '') for l in lines]
    return [l + ' over tensor' for l in lines] if row.get('split') and row['tensor'] > 1 else lines


def flying(row):
    ahead = row.get('flight')
    return ' overlap = on' + (f' prefetch = {ahead}' if row['zero'] else '') if ahead else ''


def stages(row):
    few, alike = row.get('data', 1) * row.get('tensor', 1) <= 4, row['recompute'] != 'auto' or row.get('budget')
    return row.get('pipe', 1) if few and alike else 1


def splits(row): return SPLITS.get(row['model'], 'Heads, Mlp, Vocab')


def schedule(row):
    if row.get('schedule'): return row['schedule']
    if row['parts'] == 1 or row['recompute'] == 'part': return 'sequential'
    return 'gpipe' if (row['zero'] // 2 + row['tensor']) % 2 else 'one_f_one_b'


def ranks_of(row): return row.get('data', 1) * row.get('tensor', 1) * (stages(row) if row.get('data') else 1)


def plan_text(row, name):
    owner = re.search(r'^train \w+ for (\w+)', variant(row['model']), re.M)
    lines = [f'precision {row["precision"]}']
    if row.get('data') and row['precision'] == 'bf16':
        lines[0] += ''.join(f' {k} = {row[k]}' for k in ('grad', 'reduce') if row.get(k))
    if row.get('int8'): lines[0] += ' reduce = int8 block = 16' + (' gather = int8' if row['zero'] == 3 else '')
    if row.get('data'):
        nodes = 2 if row.get('hybrid') and row['data'] == 4 else 1
        lines += [f'mesh data = {row["data"] // nodes}, ' + ('node = 2, ' if nodes > 1 else '')
                  + f'tensor = {row["tensor"]}' + (f', pipe = {stages(row)}' if stages(row) > 1 else ''),
                  f'micro {BATCH // row["data"] // row["parts"]}', 'place Batch -> '
                  + ('node, data' if nodes > 1 else 'data'),
                  f'place {splits(row)} -> tensor' + (' else Seq' if row['seq'] else ''),
                  f'zero {row["zero"]} over data bucket = {row.get("bucket", "8KiB")}' + flying(row)]
        if stages(row) > 1: lines += ['place Layers -> pipe', f'pipeline {schedule(row)}']
        ahead = row['zero'] == 3 and row.get('flight')    # E0901 with parameters on the host
        if row.get('offload'):
            part = row['offload'] == 'stack'
            lines += [f'offload optimizer{["", ", grads"][part or row["offload"] == 2]}'
                      + (f' of {STACKS.get(row["model"], "h")}.*' if part else '') + ' -> host']
            if row['offload'] == 2 and not ahead: lines += ['offload params -> host']
        lines += [f'recompute {STACKS.get(row["model"], "h")}{l}' for l in kept(row)]
    return f'plan {name}{" for " + owner.group(1) if owner else ""} {{\n' + ''.join(f'  {l}\n' for l in lines) + '}\n'


class Bench:
    """A folder in which rows are compiled and run; the results of one rank are kept."""

    def __init__(s, shardc, folder, steps):
        s.shardc, s.folder, s.steps, s.ones, s.made = os.path.abspath(shardc), folder, steps, {}, 0
        write_data(folder)

    def call(s, *command, timeout=1200):
        e = {k: v for k, v in os.environ.items() if not k.startswith(('RANK', 'WORLD_SIZE', 'OMPI', 'PMI'))}
        e.update(MPI, SHARDC_PATH=PATH, NO_COLOR='1')
        e['SHARDC_EMULATE_ACCOUNT'] = f'{s.folder}/account'      # the allocations that the stand-in's driver served
        if 'sm_80' in command: e['PATH'] = '/usr/bin:/bin'       # no ptxas: it is slow, and other tests cover it
        p = subprocess.run(command, cwd=s.folder, capture_output=True, text=True, errors='replace', timeout=timeout,
                           env=e)
        if p.returncode:
            raise RuntimeError(f'{" ".join(command)}: exit {p.returncode}\n{p.stdout[-600:]}{p.stderr[-1500:]}')
        return p.stdout + p.stderr

    def train(s, row, name, over='local'):
        """(losses, norms, weights, its output, the output of `plan`, bytes of each rank, pinned on the host and of its
        GPU)"""
        options, before, behind = OVER[over]
        if over == 'host': row = dict(row, flight=0)      # `flight` is refused for messages through the host
        text = variant(row['model'])
        if row.get('signs'): text = with_signs(text, row['signs'])
        if row.get('states'): text = with_states(text)
        if row.get('late'): text = with_delay(text, row['late'])
        if row.get('aside'): text = with_saves(text)
        if not row['clip']: text = re.sub(r'\n *clip .*', '', text)
        open(f'{s.folder}/{name}.shard', 'w').write(text + plan_text(row, 'p'))
        ranks = ranks_of(row)
        s.made += 1
        quick = ['--quick'] if s.made % 6 else []
        s.call(s.shardc, 'compile', f'{name}.shard', '--plan', 'p', '-o', f'{name}.exe', '-q', *quick, *options)
        if os.path.exists(f'{s.folder}/account'): os.unlink(f'{s.folder}/account')
        said = s.call(*before(s.shardc, ranks), f'./{name}.exe', *behind(ranks), 'train', '--steps', str(s.steps),
                      '--out', name, '--check-memory',
                      '--profile', '--threads', '1', '--save-every', '2' if row.get('aside') else '0', '--dump',
                      f'{name}.st')
        rows = [r for r in map(json.loads, open(f'{s.folder}/{name}/metrics.jsonl')) if 'loss' in r]
        found = [r['loss'] for r in rows], [r.get('grad_norm', 0) for r in rows], floats(f'{s.folder}/{name}.st'), said
        plan = 'data' in row and json.loads(s.call(s.shardc, 'plan', f'{name}.shard', '--plan', 'p', '--json',
                                               *options).splitlines()[0])
        given = [tuple(map(int, l.split()[1:])) for l in open(f'{s.folder}/account')] if '--target' in options else []
        for path in f'{name}.exe', f'{name}.st', f'{name}.shard': os.unlink(f'{s.folder}/{path}')
        shutil.rmtree(f'{s.folder}/{name}')
        return (*found, plan, given)

    def one(s, row):
        key = {k: row[k] for k in ('model', 'precision', 'clip', 'signs', 'late', 'states') if k in row}
        name = 'one_' + name_of(key)
        if name not in s.ones: s.ones[name] = s.train(key, name)
        return s.ones[name]

    def differs(s, row, over='local'):
        """The fault of a row; None: it trains as one rank does, has the predicted bytes and sends the planned bytes."""
        found = s.train(row, f'{over}_{name_of(row)}', over)
        one, signs = s.one(row), row.get('signs')
        if signs: one = (*one[:2], {k: v for k, v in one[2].items() if not of_signs(k)}, *one[3:])
        kind = 'signs' if signs else 'bf16' if row.get('int8') or row['precision'] == 'fp8' else row['precision']
        return (compare(one, found, kind) or memory(found) or sent(found, s.steps, signs or s.steps)
                or (None if row.get('int8') else messages(row, found)))


def of_signs(name):
    """Errors and scales of momenta: where rounding turns a sign, one element of them is another one."""
    return name.startswith(('onebit.error', 'onebit.momentum'))


def compare(one, many, precision):
    """Losses, norms of gradients, all tensors of the dump (parameters, states, outputs) by norm."""
    # Parameters whose exact gradient is 0 (biases of keys) move with rounding, by up to lr a step: the last number, per
    # element. Elements to which 1-bit Adam gives the other sign move by lr and more.
    close, tight, noise = {'f32': (2e-5, 2e-3, 1e-6), 'bf16': (2e-2, 0.2, 2e-3), 'signs': (2e-5, 1e-2, 1e-3)}[precision]
    if len(one[0]) != len(many[0]): return f'{len(many[0])} steps, {len(one[0])} wanted'
    for i, (a, b) in enumerate(zip(one[0], many[0])):
        if not abs(a - b) <= close * max(abs(a), 1): return f'step {i + 1}: loss {b}, one rank {a}'
    for i, (a, b) in enumerate(zip(one[1], many[1])):
        if not abs(a - b) <= 20 * close * max(abs(a), .1): return f'step {i + 1}: norm {b}, one rank {a}'
    for name, x in one[2].items():
        if name.startswith(('norm2.of.', 'decode.of.', 'out.', 'logits.')): continue       # outputs of one entry
        if name not in many[2]: return f'{name} is missing'
        y = many[2][name]
        apart, size = sum((a - b) ** 2 for a, b in zip(x, y)) ** .5, sum(a * a for a in x) ** .5
        if len(x) != len(y) or not apart <= tight * size + noise * len(x) ** .5:
            return f'{name}: differs by {apart} of {size}'


def classes(plan):
    """By rank: the bytes that `plan` gives its class on the device, on the host, and pinned in addition."""
    need = {}
    for c in plan['classes']:
        device, host = c['bytes']['total'] - c['bytes']['reserve'], c.get('host', {}).get('total', 0)
        for part in c['ranks'].split(','):
            first, _, last = part.partition('-')
            for rank in range(int(first), int(last or first) + 1):
                need[rank] = device, host, c['host_pinned']['total'], c.get('host', {}).get('snapshot', 0)
    return need


def memory(found):
    said, need = found[3], classes(found[4])
    rows = re.findall(r'^(step|eval|init|logits|decode|snapshot) +(\d+) +(\d+) +(\d+)  (\w+)', said, re.M)
    all_ = re.search(r'^arenas +(\d+) bytes', said, re.M)
    if not rows or any(r[4] != 'exact' for r in rows): return f'memory: {rows}'
    planned = sum(need[0][:2])                  # arenas of both memories
    if int(all_.group(1)) != planned: return f'memory: {all_.group(1)} bytes of arenas, {planned} planned'
    for pinned, *gpus in found[5]:
        rank = next(i for i, n in enumerate(gpus) if n)
        device, host, besides, spare = need[rank]        # a rank that writes nothing has no snapshot
        if (sum(gpus), pinned) not in ((device, host + besides), (device, host + besides - spare)):
            return f'memory: host and GPUs gave {found[5]} bytes, rank {rank} was planned {need[rank]}'


def messages(row, found):
    """What ZeRO sends goes in messages of a bucket at most; sums that are short anyway in one (pass `combine`)."""
    bucket = BUCKETS[row.get('bucket', '8KiB')]
    for axis in found[4]['communication']:
        for c in axis['collectives']:
            most = max(bucket, SHORT) if c['kind'] == 'all_reduce' else bucket
            if axis['axis'] == 'data' and c['largest_message_bytes'] > most:
                return f'{c} over data, buckets of {most} bytes'


def sent(found, steps, freeze):
    """Elements and bytes that rank 0 sent along each axis are those of the plan, of frozen steps from `freeze` on, and
    of the messages that are sent once before them."""
    real = {a: (int(n), int(b)) for a, n, b in re.findall(r'^axis (\w+) +\d+ calls +(\d+) elements +(\d+) bytes',
                                                          found[3], re.M)}
    first = found[4]['classes'][0]
    frozen, once = (first.get(f'sends_{when}', {}) for when in ('per_frozen_step', 'at_freeze'))
    for axis, planned in first['sends_per_step'].items():
        behind, at = (sends.get(axis, {'elements': 0, 'bytes': 0}) for sends in (frozen, once))
        want = tuple(freeze * planned[k] + (steps - freeze) * behind[k] + at[k] * (freeze < steps)
                     for k in ('elements', 'bytes'))
        if real.get(axis, (0, 0)) != want:
            return f'over {axis}: {real.get(axis)} elements and bytes in {steps} steps, {want} planned'
