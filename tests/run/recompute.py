"""The choice of saved inputs changes no loss, and their bytes are counted exactly: a GPT under every policy.

    python3 recompute.py SHARDC

Losses are equal bit by bit: the same kernels run, only later or twice. The work arena is as large as predicted, touched
to the end, and within 3 % of the bytes that live at once.
"""
import json, os, re, sys
from common import check, run, text_file, workdir

SHARDC, WORK = os.path.abspath(sys.argv[1]), workdir()
PLANS = {
    'whole': '',
    'inputs': 'recompute h.* keep = input',
    'bare': 'recompute h.*',
    'nothing': 'recompute h.* keep = none',
    'halves': 'recompute h[0..2] keep = none\n  recompute h[3..5] keep = none',
    'some': 'recompute h[0..3] keep = input',
    'named': 'recompute h.* keep = [attn.q, attn.k, attn.v]',
    'large': 'recompute h.* keep = auto budget = 1MiB',
    'small': 'recompute h.* keep = auto budget = 400KiB',
}
MODEL = '''use "gpt2"
variant Six of GPT2 { Pos = 32; Vocab = 256; Embed = 48; Heads = 3; Layers = 6 }
train six for Six {
  size  Seq = 24
  batch 6
  steps 5
  data  "text.txt"
  optim adamw lr = 2e-3
  clip  1.0
}
''' + ''.join(f'plan {name} for Six {{\n  {line}\n}}\n' for name, line in PLANS.items())


def train(plan):
    run(SHARDC, 'compile', 'six.shard', '--plan', plan, '-o', plan, '--quick', cwd=WORK)
    out, err = run(f'{WORK}/{plan}', 'train', '--check-memory', '--out', f'out {plan}', cwd=WORK)
    losses = [line['loss'] for line in map(json.loads, open(f'{WORK}/out {plan}/metrics.jsonl')) if 'loss' in line]
    m = re.search(r'^step\s+(\d+)\s+(\d+)\s+(\d+)', out + err, re.M)
    check(m, f'no line about the memory of step:\n{out}{err}')
    predicted, touched, live = map(int, m.groups())
    check(predicted - 64 < touched <= predicted, f'{plan}: {touched} of {predicted} predicted bytes touched')
    check(predicted <= 1.03 * live, f'{plan}: {predicted} bytes, {live} live at once')
    told, _ = run(f'{WORK}/{plan}', 'info', cwd=WORK)
    return losses, predicted, re.findall(r'made\.recompute\.\d+ = (.*)', told)


# equal calls have one forward loop, and a backward loop each
TWICE = '''use "std"
dims { Batch; C = 4; Layers = 3 }
layer Scale(x: [Batch, C]) -> [Batch, C] {
  param g [C] ~ normal(0.3, mean = 1)
  aux 0.1 * mean[*](x^2)
  return x * g
}
model M {
  input x, y [Batch, C] f32
  stack h [Layers] of Scale
  a = h(x)
  b = h(x)
  loss mse(b, y)
}
train t for M { batch 8; steps 2; data columns(x = "x.npy", y = "y.npy"); optim sgd lr = 1e-2 }
plan none for M { recompute h.* keep = none }
plan some for M { recompute h[0..1] keep = none; micro 4 }
'''

text_file(f'{WORK}/text.txt')
open(f'{WORK}/twice.shard', 'w').write(TWICE)
for plan in 'none', 'some':
    told, _ = run(SHARDC, 'equal', 'twice.shard', '--plan', plan, cwd=WORK)
    check(told.startswith('equal: '), f'called twice, {plan}: {told}')
open(f'{WORK}/six.shard', 'w').write(MODEL)
whole, most, _ = train('whole')
for plan in list(PLANS)[1:]:
    losses, bytes, told = train(plan)
    check(losses == whole, f'{plan}: losses {losses}, without recomputation {whole}')
    check(plan == 'nothing' or bytes < most, f'{plan}: {bytes} bytes, without recomputation {most}')
    kept = sum(float(n) for n in re.findall(r': (\d+) bytes on a rank', ' '.join(told)))
    budget = {'large': 1 << 20, 'small': 400 << 10}.get(plan, 1e30)
    check(told and kept <= budget, f'{plan}: {told}')
print(f'{len(PLANS)} plans, {len(whole)} equal losses each, fewest bytes {min(most, bytes)}')
