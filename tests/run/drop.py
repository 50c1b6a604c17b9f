"""Dropout inside of attention is that of the library: losses of `attention(.., drop = 0.2)` equal those of the same
scores written with `dot`, `softmax` and `dropout`, with a bias and a sink, on one rank and over ranks; eval drops
nothing.

    python3 drop.py SHARDC
"""
import json, os, shutil, sys
from common import check, npy, run, workdir

SHARDC, WORK = os.path.abspath(sys.argv[1]), workdir()
MODEL = '''use "std"
dims { Batch, Seq; Key like Seq; Vocab = 37; Embed = 24; Kv = 2; Group = 2; Head = 6; Layers = 3; Bucket = 8 }
layer Block(x: [Batch, Seq, Embed]) -> [Batch, Seq, Embed] {
  sub norm = RMSNorm[Embed]
  param wq [Kv, Group, Head, Embed] ~ normal(0.3)
  param wk [Kv, Head, Embed]        ~ normal(0.3)
  param wo [Embed, Kv, Group, Head] ~ normal(0.3)
  param near [Bucket, Kv, Group]    ~ normal(1)
  h = norm(x)
  q = dot[Embed](h, wq)
  k = dot[Embed](h, wk)
  bias = near[Bucket = bucket[Seq -> Key; Bucket](far = 20, both = off)]
  s = dot[Head](q, rename[Seq -> Key](k)) / sqrt(Head) + bias
  p = softmax[Key](where(causal, s, -1e30))
  y = SCORES
  return x + dot[Kv, Group, Head](y, wo)
}
model M {
  input x, y [Batch, Seq] of Vocab
  param w [Vocab, Embed] ~ normal(0.3)
  stack layers [Layers] of Block
  loss cross_entropy[Vocab](dot[Embed](layers(w[Vocab = x]), w), y)
}
train t for M {
  size  Seq = 40
  batch 4
  steps 6
  data  columns(x = "x.npy", y = "y.npy") valid = 50%
  eval  every = 3
  optim adamw lr = 1e-2
}
plan spread for M {
  mesh  data = 2, cp = 2
  place Batch -> data
  place Seq -> cp balanced
  zero  3 over data
  recompute layers.* keep = input
}
plan heads for M {
  mesh  tensor = 2
  place Kv -> tensor
  micro 2
}
'''
FUSED = 'attention[Seq -> Key; Head](q, k, k, mask = causal, bias = bias, drop = DROP)'
PLAIN = '''dot[Key](dropout(p, p = DROP), rename[Seq -> Key](k))'''


def losses(name, scores, plan=None):
    out = f'{WORK}/{name}-{plan}'
    shutil.rmtree(out, ignore_errors=True)
    text = MODEL.replace('SCORES', scores)
    if 'attention' in scores: text = ''.join(x for x in text.splitlines(True) if x[:6] not in ('  s = ', '  p = '))
    open(f'{WORK}/{name}.shard', 'w').write(text)
    run(SHARDC, 'run', f'{WORK}/{name}.shard', '-q', '--quick', *(['--plan', plan] if plan else []), '--', '--out', out,
        '--quiet', cwd=WORK)
    lines = [json.loads(line) for line in open(f'{out}/metrics.jsonl')]
    return [x[k] for x in lines for k in ('loss', 'eval_loss', 'valid_loss') if k in x]


def far(a, b): return max(abs(x - y) / abs(y) for x, y in zip(a, b))


npy(f'{WORK}/x.npy', '<i4', (32, 40), [(7 * i * i + 3 * i) % 37 for i in range(32 * 40)])
npy(f'{WORK}/y.npy', '<i4', (32, 40), [(5 * i * i + i) % 37 for i in range(32 * 40)])
want = losses('plain', PLAIN.replace('DROP', '0.2'))
none = losses('none', FUSED.replace('DROP', '0'))
check(len(want) >= 6 and far(none, want) > 1e-3, f'dropout changes nothing: {want}, {none}')
for plan in (None, 'spread', 'heads'):
    got = losses('fused', FUSED.replace('DROP', '0.2'), plan)
    check(len(got) == len(want) and far(got, want) < 5e-6, f'{plan}: {got}, {want}')
print(f'{len(want)} losses of the same probabilities, kept and dropped, in kernels and without; also over ranks')
