"""Names of users that look like names of the compiler: python3 names.py SHARDC [TRIALS [SEED]]

Random models whose dims, subs, stacks, layers and parameters are called as passes, entries, C, the runtime or a mangled
twin would be, under random plans (ZeRO, stages, tensor, offload, ranges of layers, micro-batches): each compiles, and
losses and tensors are those of one rank of the same names.
"""
import json, os, random, re, shutil, struct, sys
from common import check, floats, run, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
STEPS, SAMPLES, SEQ = 3, 16, 4
LONG = 'x' * 60
# Dims: those of passes before and after they became impossible to write; the axis; keywords of C.
DIMS = ['micro', 'batch', 'Flat_0', 'Flat_0_0', 'Flat_2_2', 'Bucket_0', 'Piece_0', 'Piece_1', 'Owner_0_data',
        'Owner_2_data', 'Member_0', 'Message_Flat_0', 'Flat_0_all', 'Flat_0_to_0', 'sums_0', 'sums_0_0', 'int8_in',
        'onebit_in', 'Batch_a', 'Layers_0_1', 'Layers_2_3', 'Layers_to_1', 'd0', 'int', 'main', 'Seq_block', 'F_laid0',
        'D' + LONG]
WORDS = ['h', 'h2', 'h_2', 'zero', 'root', 'root2', 'mesh', 'data', 'pipe', 'grads', 'decode', 'logits', 'forward',
         'fwd', 'bwd', 'eval', 'init', 'refresh', 'publish', 'micro', 'kernel', 'k_step', 'k1', 'elem1', 'm', 'v',
         'master', 'norm2', 'onebit', 'int', 'double', 'register', 'main', 'rt', 'rt_start', 'rt_tensor', 'printf',
         'NULL', 'base', 'a', 'b', 'a_b', 'b_a', 'stages', 'first', 'last', 'host', 'arena', 'frame', 'p0', 'image',
         'ptx', 'ranks', 'x86', 'w', 'scale', 'momentum', 'wait', 'program', 'tokens0', '_', '__', 'T', LONG,
         'y' + LONG]
ORDINARY = {'E': 'Embed', 'W': 'Wide', 'L': 'Layers', 'K': 'Others', 'model': 'Model', 'block': 'Block', 'net': 'Net',
            'train': 'job', 'plan': 'p', 'first': 'first', 'second': 'second', 'sub': 'part', 'inner': 'inner',
            'up': 'up', 'gain': 'gain', 'embed': 'embed', 'head': 'head'}
TEXT = '''use "std"
dims {{ Batch, Seq; Vocab = 12; {E} = 8; {W} = 16; {L} = 4; {K} = 4 }}
layer {block}(x: [Batch, Seq, {E}]) -> [Batch, Seq, {E}] {{
  sub {up} = Linear[{E} -> {W}]
  param {gain} [{W}, {E}] ~ normal(0.2)
  return x + dot[{W}](gelu({up}(x)), {gain})
}}
layer {net}(x: [Batch, Seq, {E}]) -> [Batch, Seq, {E}] {{
  stack {inner} [{K}] of {block}
  return {inner}(x)
}}
model {model} {{
  input tokens, targets [Batch, Seq] of Vocab
  param {embed} [Vocab, {E}] ~ normal(0.2)
  param {head} [{E}, Vocab] ~ normal(0.2)
  stack {first} [{L}] of {block}
  {rest}
  loss cross_entropy[Vocab](dot[{E}]({call}, {head}), targets)
}}
train {train} for {model} {{
  size Seq = {seq}
  batch 8
  steps {steps}
  data "text.bin" format = u16
  optim {optim}
}}
plan {plan} for {model} {{
  {lines}
}}
'''


def names(r):
    """Different words for all that share a scope."""
    special = r.choice([{}, {'first': 'h', 'second': 'h2'}, {'first': 'a_b', 'sub': 'a', 'inner': 'b'}, {'sub': 'zero'},
                        {'sub': LONG, 'inner': 'y' + LONG, 'up': 'z' + LONG}])
    words = r.sample([w for w in WORDS if w not in special.values()], len(ORDINARY))
    return {**dict(zip(ORDINARY, r.sample(DIMS, 4) + words)), **special}  # a_b, and b of a: one name in C


def plan(r, n):
    """Lines, and how many ranks they are for; {E} are names."""
    pipe, data, tensor = r.choice([(1, 2, 1), (1, 2, 1), (1, 1, 2), (2, 1, 1), (2, 2, 1), (1, 2, 2), (1, 1, 1)])
    axes = [a for a in (('pipe', pipe, '{L}'), ('data', data, 'Batch'), ('tensor', tensor, '{W}')) if a[1] > 1]
    lines = ['mesh ' + ', '.join(f'{a} = {k}' for a, k, _ in axes)] if axes else []
    lines += [f'place {d} -> {a}' for a, _, d in axes] + ([f'micro {r.choice([1, 2])}'] if r.random() < .6 else [])
    if data > 1:
        lines += [f'zero {r.randrange(4)} over data' + r.choice(['', ' persist = 1KiB', ' bucket = 1KiB'])]
    if pipe == 1 and r.random() < .5:
        lines += [r.choice(['offload optimizer -> host', 'offload optimizer of {first}[0..1] -> host',
                            'offload optimizer of {embed} -> host'])]
    return '\n  '.join(lines).format(**n), pipe * data * tensor, pipe > 1


def write(path, n, optim, lines, alone):
    rest = '' if alone else f'sub {n["sub"]} = {n["net"]}\n  stack {n["second"]} [{n["K"]}] of {n["block"]}'
    call = f'{n["first"]}({n["embed"]}[Vocab = tokens])'
    if not alone: call = f'{n["second"]}({n["sub"]}({call}))'
    open(path, 'w').write(TEXT.format(**n, rest=rest, call=call, seq=SEQ, steps=STEPS, optim=optim,
                                      lines=lines or 'micro 8'))


def train(name, n, optim, lines, ranks, alone):
    write(f'{folder}/{name}.shard', n, optim, lines, alone)
    run(SHARDC, 'compile', f'{name}.shard', '-o', f'{name}.exe', '-q', '--quick', '--plan', n['plan'], cwd=folder)
    start = [SHARDC, 'run', '-n', str(ranks), f'./{name}.exe', '--'] if ranks > 1 else [f'./{name}.exe']
    run(*start, 'train', '--out', name, '--threads', '1', '--dump', f'{name}.st', cwd=folder)
    if ranks == 1: run(f'./{name}.exe', 'export', '--out', f'{name}.weights', f'--resume={name}', cwd=folder)
    losses = [m['loss'] for m in map(json.loads, open(f'{folder}/{name}/metrics.jsonl')) if 'loss' in m]
    held = lambda k: k.split('.')[0] in n.values() and '.of.' not in k
    return losses, {k: v for k, v in floats(f'{folder}/{name}.st').items() if held(k)}


def compare(have, want, what):
    check(len(have[0]) == len(want[0]) == STEPS, f'{what}: {have[0]}')
    check(all(abs(a - b) < 1e-5 * abs(b) for a, b in zip(have[0], want[0])), f'{what}: {have[0]}, not {want[0]}')
    check(set(have[1]) == set(want[1]), f'{what}: tensors {set(have[1]) ^ set(want[1])}')
    for name, x in want[1].items():
        size = sum(a * a for a in x) ** .5 + 1e-3 * len(x) ** .5
        check(sum((a - b) ** 2 for a, b in zip(have[1][name], x)) ** .5 < 1e-3 * size, f'{what}: {name}')


try:
    r = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 5)
    tokens = [r.randrange(12) for _ in range(SAMPLES * SEQ + 1)]
    open(f'{folder}/text.bin', 'wb').write(struct.pack(f'<{len(tokens)}H', *tokens))
    trials = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    for k in range(trials):
        n, optim = names(r), r.choice(['adamw', 'adamw', 'sgd momentum = 0.9', 'lamb'])
        lines, ranks, alone = plan(r, n)
        what = f'{optim}, {n}, {lines}'
        if os.environ.get('SHOW'): print(k, what, flush=True)
        compare(train(f't{k}', n, optim, lines, ranks, alone), train(f'one{k}', n, optim, '', 1, alone), what)
    print(f'{trials} models with names of the compiler: losses and tensors of a plan are those of one rank')
finally:
    shutil.rmtree(folder)
