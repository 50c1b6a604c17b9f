"""Evaluation adds sums and counts: where labels are left out or weighted, the loss of a validation set is one number,
whatever the batch, the last partial batch, the ranks and the plan; `eval`, evaluations while training and the end line
agree. A step without counted samples is reported, and metrics.jsonl has the count of each step.

    python3 evaluate_counts.py SHARDC [SEED]
"""
import json, math, os, random, shutil, struct, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from common import check, npy, run, tensors, workdir

SHARDC = os.path.abspath(sys.argv[1])
rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
D = workdir()
SEQ, VOCAB, EMBED, LAYERS = 4, 6, 4, 2
MODEL = '''use "std"
dims { Batch, Seq; Vocab = 6; Embed = 4; To like Embed; Layers = 2 }
layer Block(x: [Batch, Seq, Embed]) -> [Batch, Seq, Embed] {
  param w [Embed, To] ~ normal(0.5)
  return x + tanh(rename[To -> Embed](dot[Embed](x, w)))
}
model M {
  input tokens, labels [Batch, Seq] of Vocab
  input share [Batch, Seq] f32
  param e [Vocab, Embed] ~ normal(1)
  param u [Vocab, Embed] ~ normal(1)
  stack h [Layers] of Block
  logits = dot[Embed](h(e[Vocab = tokens]), u)
  output logits
  LOSS
}
train t for M { size Seq = 4; batch 4; steps 2; eval every = 1; optim adamw lr = 1e-2
  data columns(tokens = "x8.npy", labels = "y8.npy", share = "w8.npy") }
plan one for M { }
plan cut for M { micro 1 }
plan two for M { mesh data = 2; place Batch -> data }
plan zero for M { mesh data = 2; place Batch -> data; zero 3; micro 1 }
plan tensor for M { mesh tensor = 2; place Vocab -> tensor }
plan seq for M { mesh cp = 2; place Seq -> cp }
plan pipe for M { mesh stage = 2; place Layers -> stage; pipeline one_f_one_b; micro 1 }
'''
# The loss as source text and as a Python function: the (sum, weight, least) of all positions are summed.
LOSSES = {
    'ignored': ('loss cross_entropy[Vocab](logits, labels, ignore = -100)', lambda nll, w: [(nll, 1, 1)]),
    'smooth': ('loss 0.5 * cross_entropy[Vocab](logits, labels, ignore = -100) + 2 * mean[*](u^2)',
               lambda nll, w: [(nll / 2, 1, 1)]),
    'weighted': ('loss sum[*](nll[Vocab](logits, labels) * share) / max(sum[*](share), 1e-6)',
                 lambda nll, w: [(nll * w, w, 1e-6)]),
    'both': ('''used = float(labels != -100)
  n = sum[*](used * share)
  loss cross_entropy[Vocab](logits, labels, ignore = -100) -
       0.3 * where(n > 0, sum[*](nll[Vocab](logits, labels) * used * share) / where(n > 0, n, 1), 0)''',
             lambda nll, w: [(nll, 1, 1), (-0.3 * nll * w, w, 0)]),
}


def rows_file(name, kind, rows):
    npy(f'{D}/{name}', kind, (len(rows), SEQ), [v for row in rows for v in row])


def sets(n, counts):
    """A set of n samples, of which most labels count or few."""
    x = [[rng.randrange(VOCAB) for _ in range(SEQ)] for _ in range(n)]
    y = [[rng.randrange(VOCAB) if rng.random() < counts else -100 for _ in range(SEQ)] for _ in range(n)]
    w = [[rng.choice([0, 0.25, 1, 3]) for _ in range(SEQ)] for _ in range(n)]
    if counts: k = rng.randrange(n); y[k][0], w[k][0] = 1, 1
    rows_file(f'x{n}.npy', '<i4', x), rows_file(f'y{n}.npy', '<i4', y), rows_file(f'w{n}.npy', '<f4', w)
    rows_file(f'ys{n}.npy', '<i4', [[max(v, 0) for v in row] for row in y])  # the same by weights alone
    rows_file(f'ws{n}.npy', '<f4', [[b * (a != -100) for a, b in zip(*rows)] for rows in zip(y, w)])
    return x, y, w


def files(n, s=''): return f'tokens=x{n}.npy,labels=y{s}{n}.npy,share=w{s}{n}.npy'


def nll(p, token, label):
    x = p['e'][token]
    for layer in range(LAYERS):
        w = p['h.*.w'][layer * EMBED:(layer + 1) * EMBED]
        x = [x[j] + math.tanh(sum(x[i] * w[i][j] for i in range(EMBED))) for j in range(EMBED)]
    z = [sum(a * b for a, b in zip(x, u)) for u in p['u']]
    return math.log(sum(map(math.exp, z))) - z[label]


def expected(p, loss, x, y, w):
    sums = {}
    for tokens, labels, weights in zip(x, y, w):
        for token, label, weight in zip(tokens, labels, weights):
            if label == -100: continue
            for k, (s, c, least) in enumerate(LOSSES[loss][1](nll(p, token, label), weight)):
                a, b, _ = sums.get(k, (0, 0, 0))
                sums[k] = (a + s, b + c, least)
    regular = 2 * sum(v * v for r in p['u'] for v in r) / (VOCAB * EMBED) if loss == 'smooth' else 0
    return sum(a / max(b, least) for a, b, least in sums.values() if b) + regular


def params(path):
    held = tensors(open(path, 'rb').read())
    flat = {k: struct.unpack(f'<{len(v) // 4}f', v) for k, v in held.items() if k in ('e', 'u', 'h.*.w')}
    return {k: [v[i:i + EMBED] for i in range(0, len(v), EMBED)] for k, v in flat.items()}


def go(plan):
    ranks = [] if plan in ('one', 'cut') else [SHARDC, 'run']
    return [*ranks, './' + plan, *(['-n', '2', '--'] if ranks else [])]


def random_ones():
    data = {n: sets(n, c) for n, c in ((8, 0.8), (1, 0.9), (3, 0.3), (7, 0.1), (10, 0.5), (13, 0.02))}
    plans = ['one', 'cut', 'two', 'zero', 'tensor', 'seq', 'pipe']
    for loss in LOSSES:
        open(f'{D}/{loss}.shard', 'w').write(MODEL.replace('LOSS', LOSSES[loss][0]))
        run(SHARDC, 'compile', f'{loss}.shard', '-o', 'first', '--quick', '-q', '--plan', 'one', cwd=D)
        kind = 's' if loss == 'weighted' else ''
        run('./first', 'train', '--out', loss, '--data', files(8, kind), '--quiet', '--dump', f'{loss}.st', cwd=D)
        p = params(f'{D}/{loss}.st')
        for plan in rng.sample(plans, 4):
            batch = rng.choice([2, 4, 6] if plan != 'one' else [1, 2, 3, 5])
            run(SHARDC, 'compile', f'{loss}.shard', '-o', plan, '--quick', '-q', '--plan', plan,
                f'--set=train.batch={batch}', cwd=D)
            for n in rng.sample(sorted(data), 3):
                out, _ = run(*go(plan), 'eval', '--out', loss, '--valid', files(n, kind), '--json', cwd=D)
                got, want = json.loads(out), expected(p, loss, *data[n])
                check(got['samples'] == n and abs(got['loss'] - want) < 1e-6 * max(1, abs(want)),
                      f'{loss}, {plan}, batch {batch}, {n} samples: {got}, expected {want}')


def one_number():
    """While training, at its end, and by `eval`."""
    out, _ = run('./first', 'train', '--out', 'again', '--valid', files(13), '--eval-batches', '0', '--quiet', cwd=D)
    rows = [json.loads(line) for line in open(f'{D}/again/metrics.jsonl')]
    told = json.loads(run('./first', 'eval', '--out', 'again', '--valid', files(13), '--json', cwd=D)[0])
    check(abs(rows[-1]['valid_loss'] - told['loss']) < 1e-6 and all('valid_loss' in r for r in rows), f'{rows} {told}')
    check(f'validation loss {told["loss"]:.4f} (13 of 13 samples)' in out, out)


def nothing_counts():
    run(SHARDC, 'compile', 'ignored.shard', '-o', 'none', '--quick', '-q', '--plan', 'one', cwd=D)
    x, y, _ = sets(4, 0)
    _, said = run('./none', 'train', '--out', 'none4', '--data', files(4), '--valid', files(4), cwd=D)
    check(said.count('no label of step 1 counts') == 1 and said.count('no label of step') == 1, said)
    check(said.count('no label of the validation samples counts') == 1, said)
    rows = [json.loads(line) for line in open(f'{D}/none4/metrics.jsonl')]
    check([r['counted'] for r in rows] == [0, 0] and not any('valid_loss' in r for r in rows), f'{rows}')
    _, said = run('./none', 'eval', '--out', 'none4', '--valid', files(4), cwd=D, expect=4)
    check('R0203' in said and 'no label of the validation data counts' in said, said)
    _, said = run('./none', 'train', '--out', 'none8', '--data', files(8), cwd=D)
    rows = [json.loads(line) for line in open(f'{D}/none8/metrics.jsonl')]
    check(sum(r['counted'] for r in rows) > 8 and 'no label' not in said, f'{rows} {said}')


def training_counts():
    """The count of a step is that of all ranks and micro-batches."""
    told = []
    for plan in 'one', 'zero', 'pipe':
        run(SHARDC, 'compile', 'ignored.shard', '-o', plan, '--quick', '-q', '--plan', plan, cwd=D)
        run(*go(plan), 'train', '--out', f'c{plan}', '--data', files(8), '--quiet', cwd=D)
        told.append([json.loads(line)['counted'] for line in open(f'{D}/c{plan}/metrics.jsonl')])
    check(told[0] == told[1] == told[2], f'{told}')


random_ones()
one_number()
training_counts()
nothing_counts()
shutil.rmtree(D)
