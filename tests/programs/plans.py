"""Random plans and train blocks for random programs; their text is legal as far as is known without compiling.

    lines, ranks = many(r, text)      of a mesh, ranks processes; one(r, text): of one rank
    text = trained(r, text)           another rule, schedule, clipping, data and output while it trains

`text` is a program of generate.py, `r` a random.Random. Results differ from those of one rank in f32 only by rounding;
`narrow` tells whether a plan rounds to 16 bits or less. It must not look at results.
"""
import random, re
from generate import SIZE

BATCH = 8
BYTES = ['100', '256', '256', '300', '600', '1KiB', '4KiB', '64KiB', '1MiB', '25MiB', '1GiB', '1TiB']
MACHINES = """machine small { node cpus = 1 arch = x86_64_v3 memory = 8GiB reserve = 1MiB }
machine large {
  node arch = native memory = 64GB f32 = 1TFLOPS
  link intra = 10GB/s inter = 1GB/s
}
"""
RULES = ['adamw lr = 0.1 eps = 0.1', 'adamw lr = 0.2 betas = [0.5, 0.9] eps = 0.2 weight_decay = 0.1',
         'sgd lr = 0.5 momentum = 0.5 nesterov = on',
         'sgd lr = 0.5 weight_decay = 0.1', 'lamb lr = 0.05 betas = [0.5, 0.9] eps = 0.1 weight_decay = 0.5',
         'onebit_adam lr = 0.1 eps = 0.1 freeze = 1 workers = 4 block = 64',
         'onebit_adam lr = 0.1 eps = 0.1 freeze = 1 workers = 4 block = 64 renew = 1']
AVERAGES = ['lr = 0.1 eps = 0.1', 'lr = 0.2 betas = [0.5, 0.9] eps = 0.2 weight_decay = 0.1']
PROJECTIONS = ['{w} / sqrt(0.1 + sum[{d}]({w}^2))', '{w} - mean[{d}]({w})', 'clamp({w}, -0.6, 0.7)']
SCHEDULES = ['constant', 'cosine warmup = 1 floor = 0.1', 'linear floor = 0.2', 'wsd decay = 50% floor = 0.1',
             'inverse_sqrt warmup = 2']


def stacks(text): return [word.split()[1] for word in text.splitlines() if word.strip().startswith('stack s')]


def narrow(lines): return any(re.match('precision (bf16|f16|fp8)', l) or 'int8' in l for l in lines)


def stored(text):
    """Sizes of dims in memory."""
    padded = {d: int(n) for d, n in re.findall(r'(\w+) = [^;}]*? pad (\d+)', text.splitlines()[1])}
    return {d: -(-size // padded.get(d, 1)) * padded.get(d, 1) for d, size in SIZE.items()}


def rounds(stack, text): return re.search(rf'stack {stack} \[(N\d)\]', text).group(1)
def depth(stack, text): return {'N2': 2, 'N3': 3, 'N5': 4}[rounds(stack, text)]


def layers_of(stack, text):
    of = re.search(rf'stack {stack} \[N\d\] of (.*?)( with .*)?$', text, re.M).group(1)
    return [re.search(rf'^layer {l}\(.*?^}}', text, re.M | re.S).group(0) for l in re.findall(r'L\d+', of)]


def named(stack, text):
    """Lists of values that each of its layers has; layers that take turns have no names for them."""
    every = layers_of(stack, text)
    if len(every) > 1: return []
    return (['[h]'] * 2 if all('\n  h = ' in l for l in every) else []) + (['[a.h]', '[h, a.h]']
                                                                           if all('\n  sub a = ' in l for l in every)
                                                                           else [])


def nested(r, stack, text):
    """Lines of a stack in a stack."""
    if '\n  stack k ' not in layers_of(stack, text)[0] or r.random() < .4: return []
    return [f'recompute {stack}.*.k{r.choice([".*", ".*", "[0..0]", ".1"])} keep = {r.choice(["input", "none", "all", "auto budget = 1KiB"])}']


def recompute(r, stack, text):
    """Lines of a stack: all layers alike, or parts of them that keep different things."""
    layers = depth(stack, text)
    keep = ['input', 'none', 'all'] + named(stack, text)
    if r.random() < .4: return [f'recompute {stack}.* keep = {r.choice(keep)}']
    if r.random() < .3:
        return [f'recompute {stack}.* keep = auto budget = {r.choice(["40", "100", "400", "1KiB", "4KiB"])}']
    cut = r.randrange(layers)
    keep.append('auto budget = 2KiB')
    lines = [f'recompute {stack}[0..{cut}] keep = {r.choice(keep)}']
    if cut + 1 < layers and r.random() < .6:
        lines.append(f'recompute {stack}[{cut + 1}..{layers - 1}] keep = {r.choice(keep)}')
    return lines


def kept(r, text):
    every = stacks(text)
    if every and r.random() < .15:
        return [f'recompute {", ".join(s + ".*" for s in every)} keep = {r.choice(["input", "none", "auto budget = 16KiB"])}']
    return [line for s in every if r.random() < .5 for line in recompute(r, s, text) + nested(r, s, text)]


def precision(r):
    kind = r.random()
    if kind < .6: return []
    if kind < .7: return [f'precision {r.choice(["f32", "tf32"])}']
    if kind < .9:
        copies = ' copies = off' * (int(kind * 1e6) % 4 == 0)
        return ['precision bf16' + copies + r.choice(['', ' master = f32', ' grad = f32', ' grad = bf16'])
                + r.choice(['', '', ' reduce = bf16', ' reduce = f32'])]
    return ['precision f16' + r.choice(['', ' grad = f16']) + r.choice(['', ' reduce = f16'])
            + r.choice(['', ' init_scale = 1024 growth_interval = 3', ' init_scale = 64 min_scale = 2'])]


def eights(lines, text):
    """A third of the plans in bf16 have products in 8 bits, where the program has a stack."""
    own = random.Random(f'eights{lines}{text}')    # so that other choices of a seed stay as they are
    if not stacks(text) or own.random() > .35: return lines
    words = 'precision fp8' + own.choice(['', '', ' backward = e4m3', ' backward = e5m2'])
    return [re.sub('^precision bf16', words, l) for l in lines]


def in_bytes(r, lines):
    """The precision line with messages in 8 bits."""
    words = [' reduce = int8'] * (r.random() < .8) + [' gather = int8'] * any(l.startswith('zero 3') for l in lines)
    if not words: return lines
    old = next((l for l in lines if l.startswith('precision')), 'precision f32')
    new = old.split(' reduce')[0] + ''.join(words) + r.choice(['', ' block = 16', ' block = 64'])
    return [l for l in lines if l != old] + [new]


def after(text, lines):
    """Another source of numbers: words that are drawn from it leave the rest of a plan as it is."""
    return random.Random('\n'.join([text, *lines]))


def offload(r, text):
    """Lines that keep states, gradients and parameters on the host: of all, of stacks, of layers, of one parameter."""
    words = r.choice([['optimizer'], ['optimizer, grads'], ['params'], ['optimizer', 'params'], ['optimizer, params'],
                      ['optimizer, grads, params'], ['optimizer, grads', 'params']])
    params = re.findall(r'^  param (p\w+) ', text.split('model M {')[1], re.M)
    return [f'offload {w}{of_some(r, params, text)} -> host' for w in words]


def of_some(r, params, text):
    if r.random() < .5: return ''
    paths = [r.choice([f'{s}.*', f'{s}.*', f'{s}.{r.randrange(depth(s, text))}', f'{s}[0..{depth(s, text) - 1}]',
                       f'{s}[{depth(s, text) // 2}..{depth(s, text) - 1}]']) for s in stacks(text)]
    paths = r.sample(paths, min(len(paths), r.randint(1, 2))) + r.sample(params, min(len(params), r.randint(0, 1)))
    return f' of {", ".join(paths)}' if paths else ''


def on_host(r, lines, text):
    """The lines, with tensors and kept values on the host in some plans."""
    if r.random() < .35: lines = lines + offload(r, text)
    if r.random() < .7: return lines
    return [f'{l} offload = host' if l.startswith('recompute') and 'keep = none' not in l else l for l in lines]


def stages(r, text):
    """The ranks of an axis, and lines that share the layers of a stack over it; 1: none."""
    every = stacks(text)
    alone = [s for s in every if [rounds(o, text) for o in every].count(rounds(s, text)) == 1]
    if not every or r.random() < .35: return 1, []
    dim = rounds(r.choice(alone or every), text)
    ranks, uneven = r.choice({'N2': [(2, 0)], 'N3': [(3, 0), (2, 1)], 'N5': [(4, 0), (2, 0), (3, 1)]}[dim])
    line = r.choice(['sequential', 'one_f_one_b', 'gpipe', 'gpipe', 'interleaved', 'interleaved chunks = 1',
                     'zero_bubble', 'zero_bubble memory = 2', 'auto'])
    if uneven: line += f' uneven = {r.choice(["on", "memory"])}'
    elif r.random() < .1: line += ' uneven = off'
    return ranks, [f'place {dim} -> pipe'] + [f'pipeline {line}'] * (uneven or r.random() < .8)


def rest(r):
    return ['deterministic on'] * (r.random() < .1) + [
        f'on {r.choice(["small", "large", "large nodes = 2"])}'] * (r.random() < .15)


def one(r, text):
    lines = [f'micro {r.choice([1, 2, 4])}'] * (r.random() < .6) + kept(r, text) + precision(r) + rest(r)
    return eights(on_host(after(text, lines), lines, text), text)


def rule(r, axis, dims):
    """A place line of a random shape."""
    first = r.sample(dims, r.randint(1, min(3, len(dims))))
    others = [d for d in dims if d not in first]
    more = f' else {r.choice(others)}' if others and r.random() < .4 else ''
    return f'place {", ".join(first)} -> {axis}{more}'


def placed(r, axis, size, text):
    dims = [d for d, n in stored(text).items() if n % size == 0] if r.random() < .9 else list(SIZE)
    return shared(dealt(rule(r, axis, dims), axis, size, text), axis, dims, text) if dims else []


def shared(line, axis, dims, text):
    """Now and then the axis of a line that keeps parameters whole splits parameters of another line as well."""
    own = random.Random(text + line)               # so that other choices of a seed stay as they are
    others = [d for d in dims if d != 'Batch' and d not in re.findall(r'\w+', line)]
    ways = re.search('balanced|activations|ring', line)
    if not others or not ways or own.random() < .6: return [line]
    lines = [line, f'place {own.choice(others)} -> {axis}']
    return lines if own.random() < .7 else lines[::-1]


def dealt(line, axis, size, text):
    """Now and then its dims in pieces, where they can be, or those of parameters whole."""
    first, sizes = re.match(r'place (.*?) ->', line).group(1).split(', '), stored(text)
    own = random.Random(line + text)               # so that other choices of a seed stay as they are
    fits = all(sizes.get(d, 1) % (2 * size) == 0 and d != 'Batch' and f'[{d}] of' not in text for d in first)
    ring = ' ring' if 'B' in first and 'K like B' in text and 'attention[B -> K' in text and own.random() < .6 else ''
    if fits and own.random() < .5: return line.replace(f'-> {axis}', f'-> {axis} balanced{ring}')
    if ring: return line.replace(f'-> {axis}', f'-> {axis}{ring}')
    held = re.findall(r'^  param \w+ \[(.*?)\]', text, re.M)
    held = any(d in dims.split(', ') for d in first for dims in held) and not any(f'[{d}] of' in text for d in first)
    return line.replace(f'-> {axis}', f'-> {axis} activations') if held and own.random() < .3 else line


def whole(r, text):
    """Some parameters stay whole, by their path."""
    paths = re.findall(r'^  param (p\w+) ', text, re.M) + [f'{s}.*' for s in stacks(text)]
    return [f'place {r.choice(paths)} -> none'] if paths and r.random() < .15 else []


def zero(r, over, more=()):
    """A line `zero`. over: lists of axes for its `over`; more: further axes."""
    line = f'zero {r.randint(0, 3)}'
    if r.random() < .5: line += f' over {", ".join(wider(r.choice(over), line, more))}'
    if r.random() < .6: line += f' bucket = {r.choice(BYTES)}'
    for option in (r.choice(['accumulate = full', 'accumulate = shard']), 'keep_root = off', 'keep_gathered = on',
                   f'persist = {r.choice(["64", "1KiB", "1MiB"])}', 'prefetch = 0 overlap = off'):
        if r.random() < .15: line += f' {option}'
    own = random.Random(line)                      # so that other choices of a seed stay as they are
    ahead = line[5] != '0' and 'prefetch' not in line and own.random() < .3
    return line + (f' prefetch = {own.choice(["1", "1MiB"])} overlap = on' if ahead else '')


def wider(axes, line, more):
    own = random.Random(f'{axes}{line}{more}')     # so that other choices of a seed stay as they are
    return [*axes, *more] if own.random() < .5 else axes


def samples(r):
    """The axes that split Batch and their line; two of them, the nodes of a hybrid mesh, now and then."""
    if r.random() < .3:
        axes = [('data', 2), ('node', 2)]
        return axes, f'place Batch -> {r.choice(["data, node", "node, data"])}', [['data'], ['node'], ['data', 'node'],
                                                                                  ['node', 'data']]
    axes = [('data', r.choice([1, 2, 2, 4]))]
    return axes, 'place Batch -> data', [['data']]


def many(r, text):
    """Mesh, rules, zero, micro, recompute, precision."""
    axes, line, over = samples(r) if r.random() < .85 else ([], None, None)
    lines, ways = [line] if axes else [], 1
    for _, n in axes: ways *= n
    if not axes or r.random() < .5:
        axis = ('tensor', r.choice([2, 2, 3, 4]))
        lines += placed(r, *axis, text) if r.random() < .95 else []
        axes = [axis] + axes if r.random() < .3 else axes + [axis]
    lines.insert(0, 'mesh ' + ', '.join(f'{a} = {k}' for a, k in axes))
    lines += whole(r, text)
    share = BATCH // ways
    if r.random() < .5: lines.append(f'micro {r.choice([d for d in (1, 2, 4, 8) if share % d == 0])}')
    if over and r.random() < .85: lines.append(zero(r, over, [a for a, _ in axes if a == 'tensor']))
    over_axes = f' over {r.choice(axes)[0]}' if r.random() < .3 else ''
    lines += [l + over_axes for l in kept(r, text)] + precision(r) + rest(r)
    if r.random() < .2: lines = in_bytes(r, lines)
    ranks, more = 1, after(text, lines)
    for _, k in axes: ranks *= k
    deep, layers = stages(more, text) if ranks < 6 else (1, [])
    if deep > 1: lines = [f'{lines[0]}, pipe = {deep}'] + layers + lines[1:]
    if deep > 1 and not any(l.startswith('micro') for l in lines): lines.append(f'micro {more.choice([1, 2])}')
    return eights(on_host(more, lines, text), text), ranks * deep


def frozen(r, text):
    """Some parameters of layers are not trained."""
    layers, model = text.split('model M {')
    if r.random() < .3 or not re.search(r'^  param p\w+ [^@\n]*$', model, re.M): return text
    return re.sub(r'^  param \w+ \[[^@\n]*$', lambda m: m[0] + ' @frozen' * (r.random() < .5), layers,
                  flags=re.M) + 'model M {' + model


def projected(r, text):
    """Some trained parameters are projected after each step."""
    ruled = re.findall(r'^  update (\w+)', text, re.M)

    def line(m):
        if m[1] in ruled or r.random() < .5: return m[0]
        return f'{m[0]}\n  project {m[1]} = ' + r.choice(PROJECTIONS).format(w=m[1], d=r.choice(m[2].split(', ')))

    return re.sub(r'^  param (\w+) \[(.+?)\] (?!.*@frozen).*$', line, text, flags=re.M)


def trained(r, text):
    text = frozen(after(text, []), text)
    head, block = text.split('train t {', 1)
    if r.random() < .4: block = re.sub(r'optim .*', 'optim ' + r.choice(RULES), block)
    if re.search('adamw|lamb|momentum', block) and after(text, ['states']).random() < .3:
        block = re.sub(r'(optim .*)', rf'\1 states = {after(text, [""]).choice(["bf16", "bf16", "f32"])}', block)
    if 'optim adamw' in block and after(text, ['int8']).random() < .6:
        block = re.sub(r'(optim adamw.*?)( states = \w+)?\n', r'\1 states = int8\n', block, count=1)
    if 'update' in head: block = re.sub('optim onebit.*', 'optim adamw lr = 0.1 eps = 0.1', block)   # E0602
    steps = 4 if 'onebit' in block else 2     # the third step is the first after a frozen one
    more = []
    if r.random() < .3: more.append(f'lr {r.choice(SCHEDULES)}')
    if r.random() < .3: more.append('clip 1')
    if r.random() < .3: more.append(f'seed {r.randint(1, 9)}')
    if 'on_nan' not in block:
        more += [r.choice(['on_nan stop', 'on_nan skip', 'on_nan skip max = 2'])] * (r.random() < .3)
    if r.random() < .2:
        more.append('save every = 1 keep = 1' + after(text, ['async']).choice(['', ' async = on', ' async = off']))
    if r.random() < .2:
        more.append(r.choice(['eval every = 1 batches = 1', 'eval batches = 1']))
        block = re.sub(r'(data (columns\(.*\)))', r'\1 valid = \2', block)
    if r.random() < .2:
        block = re.sub(r'(data columns.*)', r'\1 ' + r.choice(['format = npy', 'raw = off', 'mean = 0.1 std = 2'])
                       + ' shuffle = off', block)
    if 'onebit' not in block and r.random() < .15:
        more.append('delay after = 1')
        steps = 4                             # of which the third is the first that has what waited
    own = after(text, ['average'])
    if own.random() < .15 and 'onebit' not in block and not any(re.match('lr (?!constant)', line) for line in more):
        block = re.sub(r'optim .*', 'optim schedule_free ' + own.choice(AVERAGES), block)
    own = after(text, ['project'])
    if own.random() < .2 and not re.search('onebit|schedule_free', block): head = projected(own, head)    # E0602
    more = f'  steps {steps}\n' + ''.join(f'  {line}\n' for line in more)
    return head + 'train t {' + block.replace('  steps 2\n', more)
