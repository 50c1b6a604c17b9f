"""Updates before the norm is known: python3 offload_speculate.py SHARDC processor|gpu

A small GPT whose layers are updated in the rounds of the backward loop and undone where the norm says so (`offload
optimizer, grads speculate = on`), under rows in which every two choices meet: clipping that no step, some steps or all
steps want, the guard, precision (f16 begins with a scale under which gradients overflow, so steps are skipped),
optimizer, stage, parameters and saved inputs on the host, buckets, gradients of layers that are padded, ranks. Each has
the bits of the same plan without `speculate`: losses, norms, weights, states. On processors in the interpreter
(`verify`), as processes, whose arena on each memory has the predicted size, and as a run that stops and resumes; on the
GPU of the stand-in with late copies in two orders. Some steps must confirm the speculation, others must undo it. The
test also checks refusals and the plans that their edits give.
"""
import json, os, random, shutil, subprocess, sys
from common import EXAMPLES, check, mend, read, run, text_file, workdir
from pairs import greedy

SHARDC, WHERE, folder = os.path.abspath(sys.argv[1]), sys.argv[2], workdir()
CLIPS = {'none': '', 'never': 'clip 100', 'sometimes': 'clip 1.9', 'always': 'clip 0.1'}
CHOICES = {'clip': list(CLIPS), 'guard': ['stop', 'skip', 'off'], 'precision': ['f32', 'bf16', 'f16'],
           'optim': ['adamw', 'adamw states = bf16', 'sgd', 'sgd momentum = 0.9'], 'zero': [2, 3], 'params': [0, 1],
           'saved': [0, 1], 'bucket': ['', ' bucket = 4KiB'], 'embed': [32, 20],
           'ranks': [0, 1, 2]}  # 0: a plan without a mesh
STEPS = 5
MODEL = '''use "gpt2"
variant Small of GPT2 { Pos = 16; Vocab = 256; Embed = %d; Heads = 4; Layers = 2 }
train t for Small {
  size  Seq = 16
  batch 8
  steps %d
  data  "text.txt" format = bytes
  optim %s
  on_nan %s; %s
}
machine box { node gpus = 2 arch = sm_80 memory = 40GiB; host memory = 1GiB cores = 2 }
plan exact for Small { %s; offload optimizer, grads%s -> host%s }
plan early for Small { %s; offload optimizer, grads%s speculate = on -> host%s }
'''


def waits(row): return row['clip'] != 'none' or row['guard'] != 'off' or row['precision'] == 'f16'


def write(row):
    mesh = f'mesh data = {row["ranks"]}; place Batch -> data; zero {row["zero"]} over data{row["bucket"]}; '
    lines = [mesh * (row['ranks'] > 0) +
             f'precision {row["precision"]}' + (' init_scale = 1e6' if row['precision'] == 'f16' else '')]
    if WHERE == 'gpu': lines.append('on box')
    name, *more = row['optim'].split(' ', 1)
    optim = ' '.join([name, 'lr = 2e-3' if name == 'adamw' else 'lr = 0.1', *more])
    rest = ('; '.join(lines), ', params' * row['params'], '; recompute h keep = input offload = host' * row['saved'])
    text = MODEL % (row['embed'], STEPS, optim, row['guard'], CLIPS[row['clip']], *rest, *rest)
    open(f'{folder}/m.shard', 'w').write(text)
    for plan in 'exact', 'early':
        quick = ['--quick'] if WHERE != 'gpu' else []
        run(SHARDC, 'compile', 'm.shard', '--plan', plan, '-o', plan, '-q', *quick, cwd=folder)


def train(plan, ranks, *more, order=None):
    env = {} if order is None else {'SHARDC_EMULATE_ORDER': str(order), 'SHARDC_EMULATE_LATE': '1'}
    said = run(SHARDC, 'run', '-n', str(max(ranks, 1)), *['--emulate'] * (WHERE == 'gpu'), f'./{plan}', '--', 'train',
               '--out', 'out', '--threads', '1', '--dump', 'out.st', *more, cwd=folder, env=env)
    rows = [r for r in map(json.loads, open(f'{folder}/out/metrics.jsonl')) if 'loss' in r]
    return [(r['loss'], r.get('grad_norm') or 0) for r in rows], read(f'{folder}/out.st'), ''.join(said)


def fresh(plan, ranks, *more, **where):
    shutil.rmtree(f'{folder}/out', ignore_errors=True)
    return train(plan, ranks, '--save-every', '0', *more, **where)


def resumed(ranks):
    shutil.rmtree(f'{folder}/out', ignore_errors=True)
    train('early', ranks, '--save-every', '2', '--steps', '2')
    return train('early', ranks, '--resume')


def on_processors(row, what):
    said = run(SHARDC, 'verify', 'm.shard', '--plan', 'early', '--against', 'exact', '--steps', '3', cwd=folder)
    check('the same bits in losses, norms and' in ''.join(said), f'{what}: {said}')
    want, got = fresh('exact', row['ranks']), fresh('early', row['ranks'], '--check-memory')
    check('less' not in got[2], f'{what}: {got[2]}')
    check(got[:2] == want[:2], f'{what}: other bits: {got[0]}, {want[0]}')
    check(resumed(row['ranks'])[:2] == want[:2], f'{what}: other bits where it went on')
    return want[0]


def on_gpus(row, what):
    want = fresh('exact', row['ranks'], order=3)
    for order in 3, 0:
        got = fresh('early', row['ranks'], order=order)
        check(got[:2] == want[:2], f'{what}: other bits: {got[0]}, {want[0]}')
    return want[0]


def count(row, losses, steps):
    """As speculated, or clipped, or skipped."""
    clip = float(CLIPS[row['clip']].split()[-1]) if row['clip'] != 'none' else float('inf')
    for _, norm in losses: steps['right' if 0 < norm <= clip and norm < float('inf') else 'wrong'] += 1


def refused(train, plan, code, *words):
    model = MODEL.replace('speculate = on -> host', '%s -> host') % (
        32, STEPS, 'adamw lr = 2e-3', 'stop', 'clip 1.0', *plan, '', '', *plan, '', 'speculate = on', '')
    for old, new in train: model = model.replace(old, new)
    open(f'{folder}/m.shard', 'w').write(model)
    p = subprocess.run([SHARDC, 'plan', 'm.shard', '--plan', 'early'], cwd=folder, capture_output=True, text=True,
                       env=dict(os.environ, SHARDC_PATH=EXAMPLES, NO_COLOR='1'))
    said = p.stdout + p.stderr
    check(p.returncode != 0 and f'error[{code}]' in said, f'{code}: {said}')
    for word in words: check(word in said, f'{code}, {word}: {said}')
    mend(f'{folder}/m.shard', SHARDC, 'plan', 'm.shard', '--plan', 'early', '--json')


PLAN = ['mesh data = 2; place Batch -> data; zero 2 over data']
EARLY = 'optimizer, grads speculate'
# further lines, code, message
WRONG = [([('clip 1.0', ''), ('on_nan stop', 'on_nan off')], 'E0602', 'gains nothing', 'waits for no norm', 'm.shard:13:'),
         ([(EARLY, 'optimizer, grads of wte speculate')], 'E0602', 'gains nothing', 'no stack has'),
         ([(EARLY, 'optimizer speculate')], 'E0602', 'without update and gradients', 'optimizer, grads'),
         ([(EARLY, 'params speculate')], 'E0602', 'without update and gradients'),
         ([(EARLY, 'grads, params speculate')], 'E0602', 'without update and', 'optimizer, grads, params speculate'),
         ([('offload ' + EARLY, 'offload optimizer, grads of h.* -> host; offload params speculate')], 'E0602',
          'without update and', '`speculate = off`'),
         ([(EARLY, 'optimizer of wte speculate')], 'E0602', 'without update and', '`speculate = off`'),
         ([(EARLY, 'auto speculate'), ('zero 2', 'on box; micro 4; zero 2')], 'E0602', 'together with `offload auto`'),
         ([('clip 1.0', 'clip 1.0; delay after = 2')], 'E0901', 'together with `delay`', 'late steps update first'),
         ([('zero 2', 'zero 1')], 'E0901', 'final only after the loop', '`zero 2` or `zero 3`'),
         ([('data = 2', 'data = 1'), ('zero 2', 'zero 0')], 'E0901', 'final only after the loop',
          '`zero 2` or `zero 3`'),
         ([('over data', 'over data accumulate = full')], 'E0901', 'final only after the loop', '`accumulate = full`'),
         ([('zero 2', 'micro 2; zero 2')], 'E0901', 'sums over micro-batches', 'one micro-batch per step'),
         ([('adamw lr', 'lamb lr')], 'E0901', 'norms of each layer', '`optim adamw` and `sgd`'),
         ([('zero 2', 'recompute h[0..0] keep = input; recompute h[1..1] keep = all; zero 2')], 'E0901',
          'over several loops', 'one `recompute` line')]

text_file(f'{folder}/text.txt')
found, steps = greedy(CHOICES, random.Random(5), fits=waits)[0], {'right': 0, 'wrong': 0}
for row in found:
    write(row)
    what = ' '.join(f'{k}={v}' for k, v in row.items())
    count(row, (on_gpus if WHERE == 'gpu' else on_processors)(row, what), steps)
check(min(steps.values()) >= len(found), f'steps whose guesses were {steps}')
if WHERE == 'processor':
    for change, code, *words in WRONG: refused(change, PLAN, code, *words)
shutil.rmtree(folder)
print(f'{WHERE}: {len(found)} rows of every two choices, steps whose guesses were {steps}: the same bits')
