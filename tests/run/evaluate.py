"""`eval` reads all validation data: the loss of every set and batch size is the mean over its samples, under plans and
over ranks too; if a loss is no sum over samples, the rest is left out with a message. `--dump` of `eval` holds the
outputs of every sample; no dump has values that were not computed.

    python3 evaluate.py SHARDC
"""
import array, json, math, os, random, shutil, struct, subprocess, sys, tempfile
from common import check, npy

SHARDC = os.path.abspath(sys.argv[1])
D = tempfile.mkdtemp(prefix='evaluate ')
rng = random.Random(3)
MODEL = '''use "std"
dims { Batch; In = 5; Hid = 7; Out = 4; Layers = 2; Hid2 like Hid }
layer Block(x: [Batch, Hid]) -> [Batch, Hid] {
  param w [Hid, Hid2] ~ normal(0.5)
  aux 0.1 * mean[*](w^2)
  return dropout(tanh(rename[Hid2 -> Hid](dot[Hid](x, w))), p = 0.2)
}
model M {
  input x [Batch, In] f32
  input y [Batch] of Out
  sub a = Linear[In -> Hid]
  stack h [Layers] of Block
  sub b = Linear[Hid -> Out]
  logits = b(h(relu(a(x))))
  norm = sum[Out](logits^2)
  output logits, norm
  loss LOSS
}
train t for M { batch 4; steps 3; data columns(x = "x16.npy", y = "y16.npy"); optim adamw lr = 1e-1 }
plan one for M { }
plan cut for M { micro 2 }
plan two for M { mesh data = 2
 place Batch -> data
 zero 3 }
'''


def run(*command, says='', lacks=None, expect=0):
    p = subprocess.run(list(map(str, command)), cwd=D, capture_output=True, text=True, timeout=1200,
                       env={**os.environ, 'NO_COLOR': '1'})
    text = p.stdout + p.stderr
    if p.returncode != expect or says not in text or (lacks and lacks in text):
        sys.exit(f'{" ".join(map(str, command))}\n  exit {p.returncode}, expected {expect}, `{says}` and no `{lacks}`\n{text}')
    return p.stdout


def tensors(path):
    data = open(f'{D}/{path}', 'rb').read()
    n, = struct.unpack('<Q', data[:8])
    return {k: (t['shape'], array.array('f', data[8 + n + t['data_offsets'][0]:8 + n + t['data_offsets'][1]]))
            for k, t in json.loads(data[8:8 + n]).items() if k != '__metadata__' and t['dtype'] == 'F32'}


def sets(n, name):
    x, y = [rng.gauss(0, 1) for _ in range(n * 5)], [rng.randrange(4) for _ in range(n)]
    npy(f'{D}/x{name}.npy', '<f4', (n, 5), x), npy(f'{D}/y{name}.npy', '<i4', (n,), y)
    return x, y


def compute(w, x, y):
    """Logits and the loss of one sample, without its regularizers."""
    def linear(v, name, out):
        return [sum(v[i] * w[name + '.w'][1][i * out + o] for i in range(len(v))) + w[name + '.b'][1][o]
                for o in range(out)]
    h = [max(v, 0) for v in linear(x, 'a', 7)]
    for layer in range(2):
        h = [math.tanh(sum(h[i] * w['h.*.w'][1][layer * 49 + i * 7 + o] for i in range(7))) for o in range(7)]
    logits = linear(h, 'b', 4)
    return logits, math.log(sum(math.exp(v) for v in logits)) - logits[y]


def files(n): return ['--data', 'x=x16.npy,y=y16.npy', '--valid', f'x=x{n}.npy,y=y{n}.npy']


def every_sample():
    open(f'{D}/m.shard', 'w').write(MODEL.replace('LOSS', 'cross_entropy[Out](logits, y)'))
    data = {n: sets(n, n) for n in (16, 1, 3, 5, 8, 10, 11)}
    # at a rate of 0.1 frozen steps would make weights of 50, which multiply rounding errors
    signs = [f'--set=train.optim{s}' for s in ('=onebit_adam', '.workers=2', '.freeze=1', '.lr=1e-3')]
    for plan in 'one', 'cut', 'two', 'signs':
        more = ['cut', *signs] if plan == 'signs' else [plan]
        run(SHARDC, 'compile', 'm.shard', '-o', plan, '--quick', '--plan', *more)
        go = [SHARDC, 'run', f'./{plan}', '-n', '2', '--'] if plan == 'two' else [f'./{plan}']
        run(*go, 'train', *files(10), '--eval-batches', '1', '--out', f'r {plan}', '--dump', 'train.st',
            says='takes 4 of the validation samples', lacks='depends on the batch')
        check(not [k for k in tensors('train.st') if k.startswith('out.')], 'no zeros for outputs')
        for n, (x, y) in data.items():
            e = json.loads(run(*go, 'eval', '--out', f'r {plan}', *files(n), '--json', '--dump', 'e.st',
                               lacks='left out'))
            got = tensors('e.st')
            want = [compute(got, x[5 * i:5 * i + 5], y[i]) for i in range(n)]
            aux = sum(0.1 * sum(v * v for v in got['h.*.w'][1][49 * k:49 * k + 49]) / 49 for k in range(2))
            loss = sum(v for _, v in want) / n + aux
            check(e['samples'] == e['of'] == n and abs(e['loss'] - loss) < 2e-5,
                  f'{plan}, {n} samples: {e}, expected {loss}')
            check(got['out.logits'][0] == [n, 4] and got['out.norm'][0] == [n],
                  f'shapes of outputs: {got["out.logits"][0]}')
            flat = [v for logits, _ in want for v in logits]
            check(max(abs(a - b) for a, b in zip(got['out.logits'][1], flat)) < 1e-4, f'{plan}: outputs of {n} samples')
        few = json.loads(run(*go, 'eval', '--out', f'r {plan}', *files(11), '--eval-batches', '1', '--json'))
        check(few['samples'] == 4 and few['of'] == 11, f'{few}')
    run('./one', 'train', *files(10), '--out', 'r one', '--resume', '--dump', 'again.st', says='no step was run')
    check('loss' not in tensors('again.st') and 'a.w' in tensors('again.st'), 'a dump of a run with nothing to do')


def no_sum():
    """A loss that looks at the batch as a whole: a part of a batch has none."""
    for i, loss in enumerate(['log(cross_entropy[Out](logits, y, ignore = 0))', 'max[Batch](nll[Out](logits, y))',
                              'mean[Batch, Out]((logits - mean[Batch](logits))^2) + cross_entropy[Out](logits, y)']):
        open(f'{D}/no{i}.shard', 'w').write(MODEL.replace('LOSS', loss))
        run(SHARDC, 'compile', '--quick', f'no{i}.shard', '--plan', 'one', '-o', f'no{i}')
        run(f'./no{i}', 'train', *files(10), '--out', f'rn{i}', says='takes 8 of the validation samples')
        run(f'./no{i}', 'train', *files(10), '--out', f'rm{i}', says='an evaluation is the mean over 2 batches of 4 ')
        run(f'./no{i}', 'eval', '--out', f'rn{i}', *files(10), says='(8 of 10 samples)')
        run(f'./no{i}', 'eval', '--out', f'rn{i}', *files(10), says='the last 2 samples make no whole batch of 4')
        run(f'./no{i}', 'eval', '--out', f'rn{i}', *files(10), says='the mean over 2 batches of 4')
        run(f'./no{i}', 'eval', '--out', f'rn{i}', *files(3), says='a batch has 4 samples, the data 3')


def said():
    run('./one', 'train', '--data', 'x=x16.npy,y=y16.npy', '--valid', '1%', '--out', 's1',
        says='the run has no validation')
    run('./one', 'train', '--data', 'x=x3.npy,y=y3.npy', '--out', 's2', says='a batch has 4 samples, the data 3')
    run('./one', 'train', '--data', 'x=x16.npy,y=y16.npy,z=x16.npy', '--out', 's3', expect=4,
        says='the model has no input `z`')
    for given, says in (',x=x3.npy', 'input `x` has two sources'), (',x=', 'input `x` has two sources'):
        run('./one', 'train', '--data', 'x=x16.npy,y=y16.npy' + given, '--out', 's3', expect=4, says=says)
    run('./one', 'train', '--data', 'x=,y=y16.npy', '--out', 's3', expect=4, says='input `x` has no file')
    run('./one', 'eval', '--out', 's1', '--data', 'x=x16.npy,y=y16.npy', '--valid', 'x=x3.npy,y=y3.npy,logits=x3.npy',
        expect=4, says='its inputs: x, y')


def two_inputs():
    """`sample` fills one input: a model whose logits need another one is refused, not given zeros."""
    open(f'{D}/seq.shard', 'w').write('''use "std"
dims { Batch, Seq; Vocab = 9; Embed = 4 }
model S {
  input tokens, targets [Batch, Seq] of Vocab
  input style [Batch] of Vocab
  param wte [Vocab, Embed] ~ normal(0.5)
  logits = dot[Embed](wte[Vocab = tokens] + wte[Vocab = style], wte)
  output logits
  loss cross_entropy[Vocab](logits, targets)
}
train t for S {
  size Seq = 4; batch 2; steps 1; optim sgd
  data columns(tokens = "none.npy", targets = "none.npy", style = "none.npy")
}
''')
    run(SHARDC, 'compile', '--quick', 'seq.shard', '-o', 'seq')
    run('./seq', 'sample', '--prompt', 'a', expect=2, says='logits needs input style as well')


every_sample()
no_sum()
two_inputs()
said()
shutil.rmtree(D)
