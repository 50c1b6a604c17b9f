"""Random programs of the language: small models of a handful of operators, layers and stacks over few short dims.

    python3 generate.py FIRST LAST FOLDER [BATCH [in_subs | twins]]     writes FOLDER/pN.shard for FIRST <= N < LAST

The same number gives the same program. Functions are kept tame (no exp of large numbers), so that gradients compare
well; what jumps (sign, floor, argmax, comparisons) does so where numbers are seldom equal. Every word of the language
is in some program, or words.py says why not; plans.py draws plans.
"""
import random, re, sys

SIZE = {'A': 2, 'B': 3, 'C': 4, 'D': 5, 'E': 6, 'F': 2, 'G': 3, 'K': 3, 'H': 16, 'U': 1, 'W': 33}
DECLARED = {'E': ['= A * B', '= 6'], 'H': ['= 4 * C', '= 16'], 'G': ['like B', '= 3', '']}
INPUTS = ['x [Batch, B, C] f32', 'y [Batch, C] f32', 'i [Batch] of C', 'j [Batch, B] of E', 'b [Batch, B] bool',
          'k [Batch, K] bool', 'c [Batch] i32']
INDEX = [('i', 'C', ['Batch']), ('j', 'E', ['Batch', 'B'])]
MOST = 4000                           # elements of a value, without those of Batch
UNARY = ['tanh(%s)', 'sigmoid(%s)', 'sin(%s)', 'cos(%s)', 'erf(%s)', 'exp(-(%s)^2)', 'log(1 + (%s)^2)',
         'sqrt(1 + (%s)^2)',
         'rsqrt(1 + (%s)^2)', 'silu(%s)', 'gelu(%s)', 'gelu_tanh(%s)', '0.3 * %s', '%s / 3', '%s - 0.1', 'softplus(%s)',
         'tanh(%s)^3', 'clamp(%s, -3, 3)', 'relu(%s)', 'abs(%s)', '-%s', 'dropout(%s, p = 0)', 'dropout(%s, p = 0.25)', 'log1p((%s)^2)',
         'tanh(%s) * sign(%s + 0.123)', '0.3 * floor(2 * tanh(%s) + 0.37)', '%s * rand(%s)', '%s * stop_gradient(%s)',
         'tanh(%s) + stop_gradient(%s)', 'small * %s', 'soft(%s)', 'soft(%s, c = 2)', '%s |> silu', 'exp(min(%s, 1))', '%s + float(%s > 0.123)']
BINARY = ['%s + %s', '%s - %s', '%s * %s', 'max(%s, %s)', 'min(%s, %s)', '%s / (1 + (%s)^2)']
COMPARED = ['i < 2', 'i >= 1', 'j <= 3', 'j != 2', 'j == 1', 'b', 'not(b)', 'b & (j > 2)', 'b | (i == 0)']
FUNCTIONS = """const small = 0.1 * ceil(1.5)
fn soft(x, c = 0.5) = c * tanh(x / c)
fn center[D](x) {
  m = mean[D](x)
  return x - m
}
layer Scale[D](x: [*, D]) -> [*, D] {
  param gain [D] ~ normal(0.3, mean = 1)  @nodecay
  return x * gain
}
"""
# masks that layout `near` may denote; every other program has the first one
NEAR = ['causal & sliding(2)', 'blocks(2) & window(3)', 'blocks(1) & (window(1) | global(1, rows = off))',
        'blocks(2) & causal & fixed(local = 2, global = 1)', 'blocks(1) & variable(windows = [2, 3], globals = [0, [3, 5]])',
        'blocks(1) & strided(2)', 'blocks(2) & (dilated(3, 2) | causal)', 'blocks(1) & causal & longformer()',
        'blocks(1) & causal & random(2, seed = 3)', 'blocks(2) & bigbird(window = 1, random = 1)',
        'blocks(1) & per_head([fixed(local = 2, horizontal = on), causal])']
# a stack: its body, the option that it declares, the option's values, a second operand and its argument
LAYERS = [('  param w [{d}, {h}] ~ normal(0.4)\n  param u [{h}, {d}] ~ normal(0.4)\n  h = tanh(dot[{d}](x, w))\n  return x + dot[{h}](h, u)',),
          ('  sub n = LayerNorm[{d}]\n  sub l = Linear[{d} -> {d}] with init = normal(0.3)\n  h = l(n(x))\n  return x + gelu(h)',),
          ('  param g [{d}] ~ normal(0.3, mean = 1)\n  aux 0.1 * mean[*](x^2)\n  return x * g + c', 'c = 0.1', [0.2,
                  0.3, 0.4, 0.1]),
          ('  sub n = RMSNorm[{d}] with eps = 1e-3\n  h = n(x)\n  return h * sigmoid(x) + 0.1 * x',),
          ('  stack k [N4] of {inner}\n  return x + 0.5 * k(tanh(x))',),
          ('  sub l = Linear[{d} -> {h}] with init = normal(0.3), bias = none\n  sub m = Linear[{h} -> {d}] with init = normal(0.3)\n'
           '  h = silu(l(x))\n  return x + dropout(m(h), p = p)', 'p = 0', [0.1, 0, 0.2, 0.3]),
          ('  sub a = {inner}\n  h = a(x)\n  return x + 0.3 * h',),
          ('  param w [{d}] ~ truncated_normal(0.4) @f32\n  h = soft(x * m)\n  return 0.8 * x + w * h', None, None,
           'm')]
INNER = [0, 1, 3]                     # of a stack in a stack
ATTENDING = ('layer L{n}(x: [Batch, B, C], seen: [Batch, K] bool) -> [Batch, B, C]'
             ' with m = all, t = 50 {{\n  sub n = RMSNorm[C]\n  param w [C, A, F] ~ normal(0.4)\n'
             '  param o [A, F, C] ~ normal(0.4)\n  h = rope[B; F](dot[C](n(x), w), theta = t)\n'
             '  y = attention[B -> K; F](h, h, h, mask = m & {mask})\n  return x + dot[A, F](y, o)\n}}\n')
# a mixture of experts: tokens B, places A, routes G, experts K
ROUTED = """layer L{n}(x: [Batch, B, C]) -> [Batch, B, C] {{
  param r [C, G] ~ normal(1)
  param u [K, C, F] ~ normal(0.4){mark}
  param d [K, F, C] ~ normal(0.4)
  g = {gates}
{rule}  at, gate = route[B -> A; G -> K]({weights}, k = {k}{by})
  h = tanh(dot[C](x[B = at], u))
  aux 0.1 * {balance}
  return x + scatter_add[K, A -> B](dot[F](h, d) * gate, at)
}}
"""

# states that rules of their own update: a bias of the choice, an average, a count
RULE = """  param b [G] = 0  @f32
  param a [K, C, F] = 0  @f32
  param c [] = 0  @f32
  p = g + b
  seen = sum[Batch, B](float(top[G](p, k = {k})))
  update b = b + 0.02 * tanh(mean[*](seen) - seen)
  update a = 0.9 * a + 0.1 * u
  update c = c + 1
"""

# with the guard, without it, and without it but with a state for each parameter
RULES = ['optim sgd lr = 1', 'optim sgd lr = 1\n  on_nan off', 'optim sgd lr = 1 momentum = 0.9\n  on_nan off']


class Program:
    def __init__(s, seed, across=False, whole=False):
        """across: with means over Batch, which forbid micro-batches; whole: with a balance of the whole batch, by a
        term that is computed for each micro-batch."""
        s.seed = seed
        s.r, s.lines, s.params, s.subs, s.layers, s.n = random.Random(seed), [], [], [], [], 0
        # parameters by their dims; subs that may be called again, with what they do to dims
        s.tables, s.called = {}, []
        s.rule = RULES[seed % len(RULES)]
        s.like = s.r.random() < .75   # K is like B
        s.deep = None                 # the result of a stack
        s.across, s.whole = across and s.r.random() < .2, whole
        s.values = [('x', ['Batch', 'B', 'C']), ('y', ['Batch', 'C'])]

    def add(s, expr, dims):
        size = 1
        for d in dims: size *= SIZE.get(d, 1)
        if len(dims) > 5 or size > MOST: return
        s.n += 1
        s.lines.append(f'v{s.n} = {expr}')
        s.values.append((f'v{s.n}', list(dims)))

    def param(s, dims):
        old = s.tables.get(tuple(dims))
        if old and s.r.random() < .3: return old      # used twice
        name = f'p{len(s.tables) + 1}'
        if old: name += f'_{len(s.params)}'
        mean, mark = s.r.choice([0, 0, 1]), s.r.choice(['', ' @nodecay', '', ' @frozen', ' @f32'])
        if not s.tables and mark == ' @frozen': mark = ''   # a model with nothing to train is refused
        begin = s.r.choice([f'~ normal(0.5, mean = {mean})'] * 4 + ['~ uniform(-0.8, 0.9)',
                                                                    f'~ truncated_normal(0.5, mean = {mean})'])
        s.params.append(f'param {name} [{", ".join(dims)}] {begin}{mark}')
        if s.r.random() < .1: s.params.append(f'aux {s.r.choice([0.1, 0.01])} * mean[*]({name}^2)')
        s.tables[tuple(dims)] = name
        return name

    def pick(s):
        v, dims = s.r.choice(s.values[-6:] if s.r.random() < .8 else s.values)
        return v, dims, [d for d in dims if d != 'Batch'], [d for d in SIZE if d not in dims]

    # one operator each; operators that do not fit are left out
    def unary(s, v, dims, own, new): s.add(s.r.choice(UNARY).replace('%s', v), dims)

    def binary(s, v, dims, own, new):
        w, other = s.r.choice([z for z in s.values if set(z[1]) <= set(dims) or set(dims) <= set(z[1])])
        pair = (v, w) if s.r.random() < .5 else (w, v)
        s.add(s.r.choice(BINARY) % pair, dims if set(other) <= set(dims) else other)

    def reduce(s, v, dims, own, new):
        q = s.r.sample(own, s.r.randint(1, min(2, len(own))))
        op = s.r.choice(['0.3 * sum', 'mean', 'max', 'min', 'var', 'logsumexp'])
        s.add(f'{op}[{", ".join(q)}]({v})', [d for d in dims if d not in q])

    def softmax(s, v, dims, own,
                new): s.add(f'{s.r.choice(["softmax", "softmax", "0.3 * log_softmax", "center", "center"])}[{s.r.choice(own)}]({v})', dims)

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

    def over_batch(s, v, dims, own, new):
        if s.across and 'Batch' in dims: s.add(s.r.choice(['0.5 * ({v} - mean[Batch]({v}))',
                                                           'tanh({v}) * rsqrt(mean[Batch]({v}^2) + 0.1)',
                                                           '{v} - 0.1 * sum[Batch]({v})']).format(v=v), dims)

    def whole_number(s, v, dims, own, new):
        if 'Batch' in dims: s.add(s.r.choice(['0.3 * {v} * float(c)', 'where(c > 2, {v}, 0.3 * {v})']).format(v=v),
                                  dims)

    def outer(s, v, dims, own, new):
        w, other = s.r.choice([z for z in s.values if z[0] != v])
        s.add(f'outer({v}, {w}) / 2', dims + [d for d in other if d not in dims])

    def joined(s, v, dims, own, new):
        a, b, c = s.r.choice([(a, b,
                               c) for a in own for b in new for c in new if b != c and SIZE[a] + SIZE[b] == SIZE[c]])
        fits = [w for w, other in s.values if set(other) == set(dims) - {a} | {b}]
        w = s.r.choice(fits) if fits else f'{"slice" if SIZE[a] >= SIZE[b] else "pad"}[{a} -> {b}](0.7 * {v})'
        x, y = s.r.choice([((a, v), (b, w)), ((b, w), (a, v))])
        s.swap(v, dims, a, c, f'concat[{x[0]}, {y[0]} -> {c}]({x[1]}, {y[1]})')

    def apart(s, v, dims, own, new):
        d = s.r.choice([d for d in own if SIZE[d] <= 3])
        names = [f'v{s.n + k + 1}' for k in range(SIZE[d])]
        s.lines.append(f'{", ".join(names)} = unstack[{d}]({v})')
        s.n += len(names)
        s.values += [(n, [o for o in dims if o != d]) for n in names]

    def count(s, v, dims, own, new):
        d = s.r.choice([d for d in own if d != 'H'])
        of = s.r.choice([o for o in SIZE if o not in dims and SIZE[o] >= SIZE[d]])
        s.add(s.r.choice([f'{v} * 0.3 * float(iota({d}))', f'{v} * {s.param([of])}[{of} = iota({d})]']), dims)

    def turn(s, v, dims, own, new):
        d, along = s.r.choice([(d, a) for d in own for a in own if SIZE[d] % 2 == 0 and a != d])
        more = s.r.choice(['', ', theta = 100', ', factor = 2',
                           ', factor = 4, original = 16, low = 0.5, high = 2',
                           ', theta = 50, factor = 4, original = 9, slow = 0.2, fast = 2',
                           ', pos = j' if along == 'B' and 'Batch' in dims
                           else ''])
        s.add(f'rope[{along}; {d}]({v}{more})', dims)

    def largest(s, v, dims, own, new):
        d, to = s.r.choice(own), s.r.choice(new)
        left = [o for o in dims if o != d]
        chosen = f'argmax[{d}]({v} + 0.1 * rand({v}))'
        if s.r.random() < .3: s.add(f'0.3 * float({chosen})', left)
        else: s.add(f'{s.param(s.r.sample([d, to], 2))}[{d} = {chosen}]', left + [to])

    def choose(s, v, dims, own, new):
        w = s.r.choice([w for w, other in s.values if set(other) == set(dims)])
        if 'Batch' in dims and 'B' in dims: s.add(f'where({s.r.choice(COMPARED)}, {v}, sin({w}))', dims)
        else: s.add(f'where({v} {s.r.choice(["<", "<=", ">", ">="])} {w} + 0.123, {v}, sin({w}))', dims)

    # a loss of the library, in addition to the model's
    def measure(s, v, dims, own, new):
        labels = [(i, of) for i, of, where in INDEX if of in own and set(where) <= set(dims)]
        w = s.r.choice([w for w, other in s.values if set(other) == set(dims)])
        if labels and s.r.random() < .6:
            i, of = s.r.choice(labels)
            if s.r.random() < .3: return s.add(f'0.3 * nll[{of}]({v}, {i})', [d for d in dims if d != of])
            more = s.r.choice(['', ', ignore = 1', ', smooth = 0.1', ', ignore = -100, smooth = 0.2'])
            s.lines.append(f'aux 0.1 * cross_entropy[{of}]({v}, {i}{more})')
        else: s.lines.append(s.r.choice([f'aux 0.1 * mse({v}, sin({w}))', f'aux 0.1 * bce({v}, sigmoid({w}))']))

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

    # the score of a label that many rows share, and a margin over more dims than the label's
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
        if 'B' in own and 'Batch' in dims and 'E' in new: s.add(f'scatter_add[B -> E]({v}, j)',
                                                                ['E' if d == 'B' else d for d in dims])

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
        more = s.r.choice(['', '', ', scale = 0.4', ', cap = 0.7'])
        rows = [d for d in q[1] if d not in ('Batch', 'C') and s.r.random() < .5]
        more += s.r.choice(['', f', sink = {s.param(rows)}']) if rows else ''
        more += s.r.choice(['', '', ', drop = 0.25']) if 'cap' not in more else ''
        kind = s.r.randrange(4)
        more += s.bias() if kind == 1 else f', bias = {s.param([*rows, "K"])}' if kind == 2 else ''
        s.add(f'attention[B -> K; C]({q[0]}, {m[0]}, {m[0]}, mask = {s.mask()}{more})', q[1])

    def bias(s):
        if s.r.random() < .5: return f', bias = {s.param(["E"])}[E = bucket[B -> K; E](far = 9, both = off)]'
        return f', bias = alibi[B -> K]({s.r.choice(["0.4", "sum[A](alibi_slopes[A]())"])})'

    def mask(s):
        some = ['all', 'padding(k)', 'causal', 'k'] + ['sliding(2)', 'same(j)', 'padding(b)', 'near'] * s.like
        m = s.r.choice(some)
        if s.r.random() < .3: m += f' {s.r.choice("&|")} {s.r.choice(some[1:])}'
        return m

    def layout(s):
        mask = NEAR[s.seed // 2 % len(NEAR) if s.seed % 2 else 0]
        return f'layout near [B, K] = {mask}\n'

    def scan(s, v, dims, own, new):
        d = s.r.choice(own)
        s.add(s.r.choice([f'shift[{d}]({v}, by = {s.r.choice([-2, -1, 1, 2])})', f'0.3 * cumsum[{d}]({v})']), dims)

    def cut(s, v, dims, own, new):
        if 'E' in own and 'A' in new and 'B' in new: s.add(f'split[E -> A, B]({v})',
                                                           [z for d in dims for z in (['A', 'B'] if d == 'E' else [d])])
        elif 'A' in own and 'B' in own and 'E' in new: s.add(f'merge[A, B -> E]({v})',
                                                             ['E' if d == 'A' else d for d in dims if d != 'B'])
        elif 'B' in own and 'Batch' in dims: s.add(f'where(b, {v}, tanh({v}))', dims)

    def layer(s, v, dims, own, new):
        again = [c for c in s.called if c[1] in own and (c[2] == c[1] or c[2] in new)]
        if again and s.r.random() < .2: name, d, e = s.r.choice(again); return s.swap(v, dims, d, e, f'{name}({v})')
        d, name, e = s.r.choice(own), f's{len(s.subs)}', s.r.choice(new)
        kind = s.r.choice(['LayerNorm', 'RMSNorm', 'Linear', 'Linear', 'Scale'] + ['stack'] * 7)
        if kind == 'stack': return s.stack(v, dims, d, name, e)
        if kind == 'Linear':
            e = s.r.choice([e, e, d])
            s.subs.append(f'sub {name} = Linear[{d} -> {e}] with init = normal(0.4){s.r.choice([", bias = none", ", bias = 0.1", ""])}')
        else:
            e, both = d, s.r.choice([o for o in own if o != d] or [None]) if s.r.random() < .3 else None
            more = ' with eps = 1e-2' if kind != 'Scale' and s.r.random() < .3 else ''
            s.subs.append(f'sub {name} = {kind}[{d}{", " + both if both else ""}]{more}')
            if both: return s.add(f'{name}({v})', dims)
        s.called.append((name, d, e))
        s.swap(v, dims, d, e, f'{name}({v})')

    def stack(s, v, dims, d, name, e):
        rounds, more = s.r.choice(['N2', 'N3', 'N5']), ''
        if set(dims) == {'Batch', 'B', 'C'} and s.r.random() < .5:
            s.layers.append(ATTENDING.format(n=len(s.layers),
                                             mask=s.r.choice(['causal', 'padding(seen)', 'causal | seen'] + ['near',
                                             'causal & sliding(1)'] * s.like)))
            masks = [s.r.choice(['causal', 'all'] + ['near', 'sliding(2)'] * s.like) for _ in range(2)]
            given = s.r.choice(['', '', f' with m = repeat([{", ".join(masks)}])', ' with t = repeat([9, 50, 9])',
                                f' with t = repeat([9, 50]), m = repeat([{masks[0]}, {masks[0]}, {masks[1]}])'])
            of, more = f'L{len(s.layers) - 1}', ', k'
        else:
            which = s.r.randrange(len(LAYERS))
            body, option, values, operand = (LAYERS[which] + (None,) * 3)[:4]
            if operand:
                fits = [w for w, other in s.values if set(other) == set(dims)]
                more = f', {s.r.choice(fits)}'
            s.one_layer(body, d, e, option, operand, dims)
            of, n = f'L{len(s.layers) - 1}', {'N2': 2, 'N3': 3, 'N5': 4}[rounds]
            given = f' with {option.split()[0]} = {values[:n]}' if option and s.r.random() < .5 else ''
            if not option and not operand and which in INNER and s.r.random() < .25:
                s.one_layer(LAYERS[s.r.choice(INNER)][0], d, e, None, None, dims)
                of, rounds = f'({of}, L{len(s.layers) - 1})', s.r.choice(['N2', 'N5'])
        s.subs.append(f'stack {name} [{rounds}] of {of}{given}')
        if not more: s.called += [(name, d, d)] * 2
        s.add(f'{name}({v}{more})', dims)
        s.deep = s.values[-1]

    def one_layer(s, body, d, e, option, operand, dims):
        inner = f'L{len(s.layers)}'
        if '{inner}' in body: s.layers.append(f'layer {inner}(x: [*, {d}]) -> [*, {d}] {{\n{LAYERS[s.r.choice(INNER)][0].format(d=d, h=e)}\n}}\n')
        head, result, more = f'x: [*, {d}]', f'[*, {d}]', f' with {option}' if option else ''
        if operand: result = f'[{", ".join(dims)}]'; head = f'x: {result}, {operand}: {result}'
        s.layers.append(f'layer L{len(s.layers)}({head}) -> {result}{more} {{\n{body.format(d=d, h=e, inner=inner)}\n}}\n')

    def routed(s):
        """Has it a layer of experts?"""
        s.own = random.Random(f'routes {s.seed}')
        return s.own.random() < .15

    def route(s, own):
        """Some programs have a routed layer, in a stack; the others stay as they were before there was one."""
        k, chosen, name = own.choice([1, 2, 3]), own.random() < .3, f's{len(s.subs)}'
        gates = own.choice(['softmax[G](dot[C](x, r))', 'sigmoid(dot[C](x, r))'])
        weights = own.choice(['g', f'2 * g * float(top[G](g, k = {k}))', 'g / sum[G](g)'])
        by = ', by = g' if weights[0] == '2' or chosen else ''
        rule = ''
        if random.Random(f'rules {s.seed}').random() < .6: by, rule = ', by = p', RULE.format(k=k)
        mark = own.choice(['', ' @frozen', ' @f32', ''])
        balance = f'mean[Batch](load_balance[G; B](g, k = {k}))'
        if s.whole and random.Random(f'balance {s.seed}').random() < .5:
            balance = f'load_balance[G; Batch, B](g, k = {k})'
        s.layers.append(ROUTED.format(n=len(s.layers), gates=gates, weights=weights, k=k, by=by, mark=mark, rule=rule,
                                      balance=balance))
        s.subs.append(f'stack {name} [{own.choice(["N2", "N3"])}] of L{len(s.layers) - 1}')
        s.lines.append(f'routed = {name}({own.choice(["x", "0.5 * x", "tanh(x)"])})')
        return [('routed', ['Batch', 'B', 'C'])]

    STEPS = [unary] * 4 + [binary] * 3 + [reduce] * 2 + [softmax] + [weights] * 3 + [dot, expand, rename, gather, slice,
            pad, scan, cut] + [layer] * 9 + [label, gather, one_hot, scatter, merged, attend] + [
        outer, joined, apart, count, turn, largest, choose, measure, over_batch, whole_number]

    def text(s):
        for _ in range(s.r.randint(4, 14)):
            v, dims, own, new = s.pick()
            if own and new:
                try: s.r.choice(s.STEPS)(s, v, dims, own, new)
                except IndexError: pass           # nothing to choose from
        terms = s.r.sample(s.values[-4:], 2)
        if s.deep and s.deep not in terms and s.r.random() < .7: terms.append(s.deep)
        if s.routed(): terms += s.route(s.own)
        loss = ' + '.join(f'0.5 * mean[*]({v} * cos({v}) / (1 + 0.01 * {v}^2))' for v,
                          _ in terms) + ' + 0.01 * mean[*](x^2)'
        body = [f'input {i}' for i in INPUTS] + s.params + s.subs + s.lines + [f'output {terms[0][0]}', f'loss {loss}']
        dims, sizes = s.dims()
        return ('use "std"\n' + dims + FUNCTIONS + s.layout() * s.like + ''.join(s.layers) +
                'model M {\n' + ''.join(f'  {line}\n' for line in body) + '}\n'
                f'train t {{\n  batch 4\n  steps 2\n{sizes}  {s.rule}\n'
                '  data columns(x = "x.npy", y = "y.npy", i = "i.npy", j = "j.npy", b = "b.npy", k = "k.npy", c = "c.npy")\n}\n')

    def dims(s):
        """The block of dims, and the line that gives sizes to its open dims."""
        text, sizes = 'Batch', ''
        for d, n in SIZE.items():
            how = s.r.choice(DECLARED.get(d, [f'= {n}']))
            if d == 'K' and s.like: how = 'like B'
            if '=' in how and d not in 'AF' and s.r.random() < .12: how += f' pad {s.r.choice([2, 4])}'
            if not how: sizes = f'  size {d} = {n}\n'
            text += f'; {d} {how}'.rstrip()
        return f'dims {{ {text}; N2 = 2; N3 = 3; N4 = 2; N5 = 4 }}\n', sizes


def in_subs(text):
    """Stacks of the model, s0 .., in subs of it, a0 ..; not those that are called with a second value."""
    for name, rounds, of in re.findall(r'^  stack (s\d+) (\[N\d\]) (of .*)$', text, re.M):
        heads = [re.search(rf'^layer {l}\((.*?)\) ->', text, re.M).group(1) for l in re.findall(r'L\d+', of)]
        if any('],' in h for h in heads): continue
        layer, dims = 'A' + name[1:], heads[0][len('x: '):]
        text = text.replace(f'  stack {name} {rounds} {of}\n', f'  sub a{name[1:]} = {layer}\n')
        head, model = text.split('model M {', 1)
        head += f'layer {layer}(x: {dims}) -> {dims} {{\n  stack {name} {rounds} {of}\n  return {name}(x)\n}}\n'
        text = head + 'model M {' + re.sub(rf'\b{name}\(', f'a{name[1:]}(', model)
    return text


def twins(text):
    """Parameters that share one gradient, in layers of stacks and outside of them."""
    seed = len(text)
    marks = ['', ' @nodecay', ' @f32', '']

    def three(m):
        d, names = m[2], ('t1', 't2', 't3')
        params = ''.join(f'  param {n} [{d}] ~ normal(0.2){marks[(seed + i) % 4]}\n' for i, n in enumerate(names))
        more = ['(t2 + t3)', 't2 - t3', 't2'][seed % 3]
        return f'{m[1]}{params}{m[3]}  return {m[4]} + t1 + {more}\n}}'

    text = re.sub(r'^(layer L\d+\(x: \[\*, (\w+)\]\).*?\n)(.*?)^  return (.*?)\n}', three, text, flags=re.M | re.S)
    text = text.replace('model M {\n', 'model M {\n  param r1 [C] ~ normal(0.2)\n  param r2 [C] ~ normal(0.2)\n'
                        '  param r3 [B, C] ~ normal(0.2)\n  param r4 [B, C] ~ normal(0.2)\n')
    return re.sub(r'^  loss (.*)$', r'  loss \1 + 0.3 * mean[*](tanh(x + r1 + r2 + r3 + r4)^2)', text, flags=re.M)


MADE = {'in_subs': in_subs, 'twins': twins}

if __name__ == '__main__':
    first, last, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    batch, made = sys.argv[4] if len(sys.argv) > 4 else '4', MADE[sys.argv[5]] if sys.argv[5:] else str
    for n in range(first, last): open(f'{folder}/p{n}.shard', 'w').write(made(Program(n).text()).replace('batch 4',
            f'batch {batch}'))
