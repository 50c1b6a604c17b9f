"""Sampling with caches gives the tokens and, up to rounding, the logits of sampling from the whole window: absolute and
rotary positions, grouped heads, a sliding window, nested and single layers, routed experts, texts longer than the
window. Models that
mix positions in other ways sample from the whole window and print the reason. Memory for sampling beyond the model is
allocated only by `sample`.

    python3 decode.py SHARDC
"""
import json, os, re, shutil, sys
from common import EXAMPLES, check, floats, run, text_file, workdir

SHARDC, WORK = os.path.abspath(sys.argv[1]), workdir()
HEAD = '''use "std"
dims { Batch, Seq; Key like Seq; Vocab = 256; Embed = 24; Kv = 2; Group = 2; Head = 6; Layers = 3; Deep = 2
  Bucket = 8 }
'''
TAIL = '''
train t for M {
  size  Seq = 20
  batch 4
  steps 30
  data  "text.txt" valid = 10%
  optim adamw lr = 1e-2
}
'''
ATTENTION = '''layer Attention(x: [Batch, Seq, Embed]) -> [Batch, Seq, Embed] {
  param wq [Kv, Group, Head, Embed] ~ normal(0.3)
  param wk [Kv, Head, Embed] ~ normal(0.3)
  param wv [Kv, Head, Embed] ~ normal(0.3)
  param wo [Embed, Kv, Group, Head] ~ normal(0.3)
  q = rope[Seq; Head](dot[Embed](x, wq))
  k = rope[Seq; Head](dot[Embed](x, wk))
  v = dot[Embed](x, wv)
  return dot[Kv, Group, Head](attention[Seq -> Key; Head](q, k, v, mask = MASK), wo)
}
'''
BLOCK = '''layer Block(x: [Batch, Seq, Embed]) -> [Batch, Seq, Embed] {
  sub norm = RMSNorm[Embed]
  sub attn = Attention
  return x + attn(norm(x))
}
'''
NESTED = BLOCK + '''layer Pair(x: [Batch, Seq, Embed]) -> [Batch, Seq, Embed] {
  stack deep [Deep] of Block
  return deep(x)
}
'''
MODEL = '''model M {
  input tokens, targets [Batch, Seq] of Vocab
  param embed [Vocab, Embed] ~ normal(0.5)
  BODY
  logits = dot[Embed](x, embed)
  output logits
  loss cross_entropy[Vocab](logits, targets)
}
'''
STACK = 'stack h [Layers] of Block\n  x = h(embed[Vocab = tokens])'


ROUTED = '''dims {{ Experts = 8; Route = Experts; Slot = {slot}; Mlp = 12; Teams = 4; Of = 2 }}
layer Mixture(x: [Batch, Seq, Embed]) -> [Batch, Seq, Embed] {{
  param router [Embed, Route]        ~ normal(1)  @f32
  param bias   [Route]               ~ normal(0.1)
  param w_in   [Experts, Embed, Mlp] ~ normal(0.3)
  param w_out  [Experts, Mlp, Embed] ~ normal(0.3)
  s = dot[Embed](x, router)
  {gates}
  at, gate = route[Seq -> Slot; Route -> Experts](p, k = {k}, by = b)
  e = dot[Mlp](gelu(dot[Embed](x[Seq = at], w_in)), w_out)
  aux 0.1 * mean[Batch](load_balance[Route; Seq](p, k = {k}))
  return x + scatter_add[Experts, Slot -> Seq](e * gate, at)
}}
layer Block(x: [Batch, Seq, Embed]) -> [Batch, Seq, Embed] {{
  sub norm = RMSNorm[Embed]
  sub attn = Attention
  sub moe  = Mixture
  return moe(x + attn(norm(x)))
}}
'''
SOFTMAX = 'p = softmax[Route](s)\n  b = p'
SIGMOID = 'p = sigmoid(s)\n  b = p + bias'
TEAMS = '''p = sigmoid(s)
  g = split[Route -> Teams, Of](p)
  best = top[Teams](sum[Of](g), k = 2)
  b = merge[Teams, Of -> Route](where(best, g, -inf))'''


def routed(gates, k, slot='Seq'): return model(layers=ROUTED.format(gates=gates, k=k, slot=slot))


def model(mask='causal', layers=BLOCK, body=STACK):
    return HEAD + ATTENTION.replace('MASK', mask) + layers + MODEL.replace('BODY', body) + TAIL


BY_LAYER = model('seen', body=STACK.replace(
    'of Block', 'of Block with seen = repeat([causal & sliding(3), causal]), base = [10, 1000, 10]'))
for old, new in (('x, wq))', 'x, wq), theta = base)'), ('x, wk))', 'x, wk), theta = base)'),
                 ('[Batch, Seq, Embed] {', '[Batch, Seq, Embed] with seen = causal, base = 1 {'),
                 ('sub attn = Attention', 'sub attn = Attention with seen = seen, base = base')):
    BY_LAYER = BY_LAYER.replace(old, new)
CACHED = dict(
    causal=model(),
    sliding=model('causal & sliding(5)'),
    listed=model('causal & blocks(4) & (window(3) | global(1) | random(1, seed = 3))'),
    blind=model('causal & blocks(4) & global([1], columns = off)'),  # most positions do not even see themselves
    layers=BY_LAYER,
    capped=model('causal, cap = 0.5'),
    near=model('causal, bias = alibi[Seq -> Key](alibi_slopes[Group]())'),
    buckets=model('causal, bias = table[Bucket = bucket[Seq -> Key; Bucket](far = 9, both = off)]').replace(
        '  param wo', '  param table [Kv, Bucket] ~ normal(2)\n  param wo'),
    sinks=model('causal & sliding(5), sink = sinks').replace(
        '  param wo', '  param sinks [Kv, Group] ~ normal(2)\n  param wo'),
    nested=model(layers=NESTED, body=STACK.replace('Block', 'Pair')),
    table=model(body='param pos [Seq, Embed] ~ normal(0.5)\n  '
                + STACK.replace('embed[Vocab = tokens]', 'embed[Vocab = tokens] + pos')),
    experts=routed(SOFTMAX, 2), expert=routed(SIGMOID, 1), teams=routed(TEAMS, 3),
    places=routed(SIGMOID, 8, 'Seq + 3'),
    single=model(body='sub one = Attention\n  sub two = Attention\n  e = embed[Vocab = tokens]\n  x = two(e + one(e)) + e'))
NOT = dict(
    ahead=(model('all'), 'not causal'),
    back=(model('sliding(5)'), 'not causal'),
    shifted=(model(body='e = embed[Vocab = tokens]\n  x = e + shift[Seq](e, 1)'),
             'positions meet outside of attention'),
    summed=(model(body='x = cumsum[Seq](embed[Vocab = tokens])'), 'positions meet outside of attention'),
    capacity=(routed(SOFTMAX, 2, 'Seq / 2'), 'fewer places than positions'),
    mean=(model(body='e = embed[Vocab = tokens]\n  x = e + mean[Seq](e)'), 'more than one token'),
    plain=(model(body='x = embed[Vocab = tokens]'), 'no attention'))


def compiled(name, text):
    open(f'{WORK}/{name}.shard', 'w').write(text)
    run(SHARDC, 'compile', f'{WORK}/{name}.shard', '-o', f'{WORK}/{name}', '-q', '--quick', '--equal', '5', cwd=WORK)
    return f'{WORK}/{name}'


def trained(exe):
    run(exe, 'train', '--data', 'text.txt', '--valid', '10%', '--out', 'run', '--steps', '30', '--quiet', cwd=WORK)


def sample(exe, cache, *more):
    return run(exe, 'sample', '--out', 'run', '--cache', cache, *more, cwd=WORK)[0]


def tensor(path, name): return floats(path)[name].tolist()


def logits(exe, cache, prompt):
    sample(exe, cache, '--prompt', prompt, '--tokens', '1', '--dump', f'{WORK}/dump')
    if cache == 'on': return tensor(f'{WORK}/dump', 'decode.of.out.logits')
    return tensor(f'{WORK}/dump', 'out.logits')[256 * (len(prompt) - 1):256 * len(prompt)]


def compare(name, exe):
    shutil.rmtree(f'{WORK}/run', ignore_errors=True)
    trained(exe)
    for more in (['--temperature', '0'], ['--seed', '3'], ['--seed', '4', '--prompt',
                                                           'a prompt that is longer than one window of this model']):
        check(sample(exe, 'on', '--tokens', '70', *more) == sample(exe, 'off', '--tokens', '70', *more),
              f'{name}: {more}')
    worst = max(abs(a - b) for p in ('T', 'To') for a, b in zip(logits(exe, 'on', p), logits(exe, 'off', p)))
    print(f'{name}: logits differ by at most {worst:.1e}')
    check(worst < 1e-4, 'logits')


def arenas(exe, *command):
    """Bytes that the command allocates."""
    said = run(exe, *command, '--check-memory', cwd=WORK)[1]
    return int(re.search(r'^arenas +(\d+) bytes', said, re.M).group(1))


def allocated(name, exe):
    """Training has no room for logits of a window and caches, and plan counts them apart."""
    data = ('--data', 'text.txt', '--valid', '10%', '--out', 'run')
    plan = json.loads(run(SHARDC, 'plan', f'{WORK}/{name}.shard', '--json')[0].splitlines()[0])['classes'][0]
    total, more = plan['bytes']['total'], plan['sampling']
    check(more > 0, plan)
    check(arenas(exe, 'train', *data, '--resume', '--steps', '31') == total, f'to train: {total}')
    check(arenas(exe, 'eval', *data) == total, f'to evaluate: {total}')
    check(arenas(exe, 'eval', *data, '--dump', 'outputs') == total + more, f'with outputs: {total} + {more}')
    check(arenas(exe, 'sample', '--out', 'run', '--tokens', '5') == total + more, f'to sample: {total} + {more}')


text_file(f'{WORK}/text.txt', 8000)
for name, text in CACHED.items():
    exe = compiled(name, text)
    info = json.loads(run(exe, 'info', '--json')[0])
    check('bytes' in info['settings']['sample.cache'], info['settings'])
    entries = '4 entries (not decode)' if name == 'places' else '5 entries;'  # too few places at small sizes
    check(entries in info['equal'], f'{name}: {info["equal"]}')
    compare(name, exe)
    run(exe, 'sample', '--out', 'run', '--check-memory', '--tokens', '30', cwd=WORK)
    if name == 'listed': allocated(name, exe)
run(SHARDC, 'compile', f'{EXAMPLES}/tiny.shard', '-o', f'{WORK}/tiny', '-q', '--quick')
compare('tiny', f'{WORK}/tiny')
for name, (text, why) in NOT.items():
    exe = compiled(name, text)
    says = json.loads(run(exe, 'info', '--json')[0])['settings']['sample.cache']
    check(says.startswith('none: ') and why in says, f'{name}: {says}')
    shutil.rmtree(f'{WORK}/run', ignore_errors=True)
    trained(exe)
    check(sample(exe, 'off', '--seed', '2') == run(exe, 'sample', '--out', 'run', '--seed', '2', cwd=WORK)[0], name)
    check('R0801' in run(exe, 'sample', '--out', 'run', '--cache', 'on', cwd=WORK, expect=2)[1], name)
open(f'{WORK}/two.shard', 'w').write(model('causal') + 'plan two for M { mesh data = 2; place Batch -> data }\n')
exe = f'{WORK}/two'
run(SHARDC, 'compile', f'{exe}.shard', '--plan', 'two', '-o', exe, '-q', '--quick')
shutil.rmtree(f'{WORK}/run', ignore_errors=True)
run(SHARDC, 'run', exe, '--', 'train', '--data', 'text.txt', '--out', 'run', '--steps', '2', '--quiet', cwd=WORK)
said = run(SHARDC, 'run', exe, '--', 'sample', '--out', 'run', '--cache', 'on', cwd=WORK, expect=2)[1]
check('without caches: several ranks compute all positions' in said, said)
shutil.rmtree(WORK)
