"""Random programs of the language: small models of a handful of operators, layers and stacks over few short dims.

    python3 generate.py FIRST LAST FOLDER [BATCH]        writes FOLDER/pN.shard for FIRST <= N < LAST

The same number gives the same program. Functions are kept tame (no exp of large numbers), so that gradients compare well;
`stop_gradient` is left out, since central differences do not know it.
"""
import random, sys

SIZE = {'A': 2, 'B': 3, 'C': 4, 'D': 5, 'E': 6, 'F': 2, 'G': 3, 'K': 3, 'H': 16}
INPUTS = ['x [Batch, B, C] f32', 'y [Batch, C] f32', 'i [Batch] of C', 'j [Batch, B] of E', 'b [Batch, B] bool', 'k [Batch, K] bool']
INDEX = [('i', 'C', ['Batch']), ('j', 'E', ['Batch', 'B'])]
MOST = 4000                           # elements of a value, without those of Batch
UNARY = ['tanh(%s)', 'sigmoid(%s)', 'sin(%s)', 'cos(%s)', 'erf(%s)', 'exp(-(%s)^2)', 'log(1 + (%s)^2)', 'sqrt(1 + (%s)^2)',
         'rsqrt(1 + (%s)^2)', 'silu(%s)', 'gelu(%s)', 'gelu_tanh(%s)', '0.3 * %s', '%s / 3', '%s - 0.1', 'softplus(%s)',
         'tanh(%s)^3', 'clamp(%s, -3, 3)', 'relu(%s)', 'abs(%s)', '-%s', 'dropout(%s, p = 0)']
BINARY = ['%s + %s', '%s - %s', '%s * %s', 'max(%s, %s)', 'min(%s, %s)', '%s / (1 + (%s)^2)']
LAYERS = ['  param w [{d}, {h}] ~ normal(0.4)\n  param u [{h}, {d}] ~ normal(0.4)\n  return x + dot[{h}](tanh(dot[{d}](x, w)), u)',
          '  sub n = LayerNorm[{d}]\n  sub l = Linear[{d} -> {d}] with init = normal(0.3)\n  return x + gelu(l(n(x)))',
          '  param g [{d}] ~ normal(0.3, mean = 1)\n  aux 0.1 * mean[*](x^2)\n  return x * g + c',
          '  sub n = RMSNorm[{d}]\n  return n(x) * sigmoid(x) + 0.1 * x',
          '  stack k [N4] of {inner}\n  return x + 0.5 * k(tanh(x))']

# with the guard, without, and without but with a state beside each parameter
RULES = ['optim sgd lr = 1', 'optim sgd lr = 1\n  on_nan off', 'optim sgd lr = 1 momentum = 0.9\n  on_nan off']


class Program:
    def __init__(s, seed):
        s.r, s.lines, s.params, s.subs, s.layers, s.n, s.tables = random.Random(seed), [], [], [], [], 0, 0
        s.rule = RULES[seed % len(RULES)]
        s.values = [('x', ['Batch', 'B', 'C']), ('y', ['Batch', 'C'])]

    def add(s, expr, dims):
        size = 1
        for d in dims: size *= SIZE.get(d, 1)
        if len(dims) > 5 or size > MOST: return
        s.n += 1
        s.lines.append(f'v{s.n} = {expr}')
        s.values.append((f'v{s.n}', list(dims)))

    def param(s, dims):
        s.tables += 1
        name = f'p{s.tables}'
        mean, mark = s.r.choice([0, 0, 1]), s.r.choice(['', ' @nodecay', '', ' @frozen'])
        if s.tables == 1 and mark == ' @frozen': mark = ''  # a model with nothing to train is refused
        s.params.append(f'param {name} [{", ".join(dims)}] ~ normal(0.5, mean = {mean}){mark}')
        if s.r.random() < .1: s.params.append(f'aux {s.r.choice([0.1, 0.01])} * mean[*]({name}^2)')
        return name

    def pick(s):
        v, dims = s.r.choice(s.values[-6:] if s.r.random() < .8 else s.values)
        return v, dims, [d for d in dims if d != 'Batch'], [d for d in SIZE if d not in dims]

    # one operator each; what does not fit is left out
    def unary(s, v, dims, own, new): s.add(s.r.choice(UNARY) % v, dims)

    def binary(s, v, dims, own, new):
        w, other = s.r.choice([z for z in s.values if set(z[1]) <= set(dims) or set(dims) <= set(z[1])])
        pair = (v, w) if s.r.random() < .5 else (w, v)
        s.add(s.r.choice(BINARY) % pair, dims if set(other) <= set(dims) else other)

    def reduce(s, v, dims, own, new):
        q = s.r.sample(own, s.r.randint(1, min(2, len(own))))
        op = s.r.choice(['0.3 * sum', 'mean', 'max', 'min', 'var', 'logsumexp'])
        s.add(f'{op}[{", ".join(q)}]({v})', [d for d in dims if d not in q])

    def softmax(s, v, dims, own, new): s.add(f'softmax[{s.r.choice(own)}]({v})', dims)

    def weights(s, v, dims, own, new):
        q = s.r.sample(own, s.r.randint(1, min(2, len(own))))
        out = s.r.sample(new, s.r.randint(0, min(2, len(new))))
        p = q + out + [d for d in own if d not in q and s.r.random() < .3]
        s.r.shuffle(p)
        s.add(f'dot[{", ".join(q)}]({v}, {s.param(p)}) / {len(q) + 1}', [d for d in dims if d not in q] + out)

    def dot(s, v, dims, own, new):
        fits = [(w, o, [d for d in o if d in own]) for w, o in s.values]
        w, other, shared = s.r.choice([z for z in fits if z[2]])
        q = s.r.choice(shared)
        s.add(f'dot[{q}]({v}, {w}) / 3', [d for d in dims if d != q] + [d for d in other if d not in dims and d != q])

    def expand(s, v, dims, own, new):
        if len(dims) < 4: d = s.r.choice(new); s.add(f'expand[{d}]({v})', dims + [d])

    def swap(s, v, dims, a, b, expr): s.add(expr, [b if d == a else d for d in dims])

    def rename(s, v, dims, own, new):
        a, b = s.r.choice([(a, b) for a in own for b in new if SIZE[a] == SIZE[b]])
        s.swap(v, dims, a, b, f'rename[{a} -> {b}]({v})')

    def slice(s, v, dims, own, new):
        a, b = s.r.choice([(a, b) for a in own for b in new if SIZE[b] <= SIZE[a]])
        s.swap(v, dims, a, b, f'slice[{a} -> {b}]({v}, at = {s.r.randint(0, SIZE[a] - SIZE[b])})')

    def pad(s, v, dims, own, new):
        a, b = s.r.choice([(a, b) for a in own for b in new if SIZE[b] >= SIZE[a]])
        s.swap(v, dims, a, b, f'pad[{a} -> {b}]({v}, at = {s.r.randint(0, SIZE[b] - SIZE[a])})')

    def gather(s, v, dims, own, new):
        i, of, where = s.r.choice(INDEX)
        d = s.r.sample([d for d in SIZE if d != of and d not in where], s.r.choice([1, 1, 2]))
        s.add(f'{s.param(s.r.sample([of] + d, len(d) + 1))}[{of} = {i}]', where + d)
        if s.r.random() < .4: s.norm(s.values[-1][0], where + d, d, new)

    def norm(s, v, dims, own, new):
        d = own[-1]
        if s.r.random() < .5: s.subs.append(f'sub s{len(s.subs)} = {s.r.choice(["LayerNorm", "RMSNorm"])}[{d}]'); s.add(f's{len(s.subs) - 1}({v})', dims)
        else: s.add(s.r.choice([f'softmax[{d}]({v})', f'0.3 * logsumexp[{d}]({v}) * {v}']), dims)

    # the score of a label that stands for many rows, and a margin over more dims than the label's
    def label(s, v, dims, own, new):
        i, of, where = s.r.choice([z for z in INDEX if z[1] in own])
        left = [d for d in dims if d != of]
        s.add(f'{v}[{of} = {i}]', where + [d for d in left if d not in where])
        over = [of] + [d for d in left if d not in where and s.r.random() < .7]
        margin = s.r.choice(['tanh(%s - %s)', 'max(0, 1 + %s - %s)', 'sigmoid(%s - %s)']) % (v, s.values[-1][0])
        if set(where) <= set(left): s.add(f'0.3 * sum[{", ".join(over)}]({margin})', [d for d in dims if d not in over])

    def one_hot(s, v, dims, own, new):
        i, of, where = s.r.choice([z for z in INDEX if z[1] in own and set(z[2]) <= set(dims)])
        s.add(f'{v} * one_hot[{of}]({i})', dims)

    def scatter(s, v, dims, own, new):
        if 'B' in own and 'Batch' in dims and 'E' in new: s.add(f'scatter_add[B -> E]({v}, j)', ['E' if d == 'B' else d for d in dims])

    def merged(s, v, dims, own, new):
        if 'E' not in own: return
        p = ['A', 'B'] + [d for d in own if d not in 'ABE' and s.r.random() < .3]
        s.r.shuffle(p)
        s.add(f'{v} * {s.r.choice(["merge[A, B -> E](%s)", "softmax[E](merge[A, B -> E](%s))"]) % s.param(p)}', dims)

    def attend(s, v, dims, own, new):
        q = s.r.choice([w for w in s.values if {'Batch', 'B', 'C'} <= set(w[1]) and 'K' not in w[1]])
        fits = [w for w in s.values if {'Batch', 'K', 'C'} <= set(w[1]) <= set(q[1]) - {'B'} | {'K'}]
        if not fits: s.add(f'dot[B](x, {s.param(["B", "K"])})', ['Batch', 'C', 'K'])
        m = s.r.choice(fits or s.values[-1:])
        mask = s.r.choice(['all', 'padding(k)', 'causal', 'k'])
        s.add(f'attention[B -> K; C]({q[0]}, {m[0]}, {m[0]}, mask = {mask})', q[1])

    def scan(s, v, dims, own, new):
        d = s.r.choice(own)
        s.add(s.r.choice([f'shift[{d}]({v}, by = {s.r.choice([-2, -1, 1, 2])})', f'0.3 * cumsum[{d}]({v})']), dims)

    def cut(s, v, dims, own, new):
        if 'E' in own and 'A' in new and 'B' in new: s.add(f'split[E -> A, B]({v})', [z for d in dims for z in (['A', 'B'] if d == 'E' else [d])])
        elif 'A' in own and 'B' in own and 'E' in new: s.add(f'merge[A, B -> E]({v})', ['E' if d == 'A' else d for d in dims if d != 'B'])
        elif 'B' in own and 'Batch' in dims: s.add(f'where(b, {v}, tanh({v}))', dims)

    def layer(s, v, dims, own, new):
        d, name, e = s.r.choice(own), f's{len(s.subs)}', s.r.choice(new)
        kind = s.r.choice(['LayerNorm', 'RMSNorm', 'Linear', 'stack', 'stack'])
        if kind == 'Linear':
            s.subs.append(f'sub {name} = Linear[{d} -> {e}] with init = normal(0.4){s.r.choice([", bias = none", ", bias = 0.1", ""])}')
            return s.swap(v, dims, d, e, f'{name}({v})')
        if kind != 'stack': s.subs.append(f'sub {name} = {kind}[{d}]')
        else:
            which, rounds = s.r.randrange(len(LAYERS)), s.r.choice([2, 3])
            option = {2: ' with c = 0.1'}.get(which, '')
            inner = f'L{len(s.layers)}'
            if which == len(LAYERS) - 1:          # a stack of stacks
                s.layers.append(f'layer {inner}(x: [*, {d}]) -> [*, {d}] {{\n{LAYERS[s.r.choice([0, 1, 3])].format(d=d, h=e)}\n}}\n')
            s.layers.append(f'layer L{len(s.layers)}(x: [*, {d}]) -> [*, {d}]{option} {{\n{LAYERS[which].format(d=d, h=e, inner=inner)}\n}}\n')
            given = f' with c = {[0.2, 0.3, 0.4][:rounds]}' if option and s.r.random() < .5 else ''
            s.subs.append(f'stack {name} [N{rounds}] of L{len(s.layers) - 1}{given}')
        s.add(f'{name}({v})', dims)

    STEPS = [unary] * 4 + [binary] * 3 + [reduce] * 2 + [softmax] + [weights] * 3 + [dot, expand, rename, gather, slice, pad, scan, cut] + [layer] * 2 + [label, gather, one_hot, scatter, merged, attend]

    def text(s):
        for _ in range(s.r.randint(4, 14)):
            v, dims, own, new = s.pick()
            if own and new:
                try: s.r.choice(s.STEPS)(s, v, dims, own, new)
                except IndexError: pass           # nothing to choose from
        terms = s.r.sample(s.values[-4:], 2)
        loss = ' + '.join(f'0.5 * mean[*]({v} * cos({v}))' for v, _ in terms) + ' + 0.01 * mean[*](x^2)'
        body = [f'input {i}' for i in INPUTS] + s.params + s.subs + s.lines + [f'output {terms[0][0]}', f'loss {loss}']
        return ('use "std"\ndims { Batch; ' + '; '.join(f'{d} = {n}' for d, n in SIZE.items()) + '; N2 = 2; N3 = 3; N4 = 2 }\n' + ''.join(s.layers) +
                'model M {\n' + ''.join(f'  {line}\n' for line in body) + '}\n'
                f'train t {{\n  batch 4\n  steps 2\n  {s.rule}\n'
                '  data columns(x = "x.npy", y = "y.npy", i = "i.npy", j = "j.npy", b = "b.npy", k = "k.npy")\n}\n')


if __name__ == '__main__':
    first, last, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    batch = sys.argv[4] if len(sys.argv) > 4 else '4'
    for n in range(first, last): open(f'{folder}/p{n}.shard', 'w').write(Program(n).text().replace('batch 4', f'batch {batch}'))
