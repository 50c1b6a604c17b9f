"""Products in 8 bits (`precision fp8`): python3 fp8.py SHARDC REFERENCE_FOLDER

Loss and gradients of two products equal those of this file, which rounds by a table of all numbers of the format: on
random numbers, on outliers, on numbers below the smallest normal one. The bound that `plan` prints is reached to more
than 0.9 by adversarial operands, forward and backward, in both formats. A small GPT-2 stays near its losses in bf16,
also in micro-batches, and a resumed run has the same bits. Plans without a product to round are refused, GPUs warned.
"""
import array, bisect, json, math, os, random, shutil, sys
from common import bf16, check, floats, run, workdir

SHARDC, FOLDER, WORK = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), workdir()
BATCH, FEAT, OUT, BLOCK = 32, 256, 64, 128
MODEL = f'''use "std"
dims {{ Batch; Feat = {FEAT}; Out = {OUT}; Layers = 1 }}
layer Two(x: [Batch, Feat]) -> [Batch, Feat] {{
  param w [Feat, Out] W
  param v [Out, Feat] V
  return dot[Out](dot[Feat](x, w), v)
}}
model Net {{
  input x, t [Batch, Feat] f32
  stack h [Layers] of Two
  loss mean[Batch](sum[Feat](h(x) * t))
}}
train t for Net {{
  batch {BATCH}
  steps 1
  data  columns(x = "x.f32", t = "t.f32") shuffle = off
  optim sgd lr = 1
}}
plan p for Net {{ precision fp8WORDS }}
'''
BOUND = {'e4m3': (18 / 17) ** 2 - 1, 'e5m2': 18 / 17 * 10 / 9 - 1}


# ---- the format, by its definition ----
def numbers(bits, bias, count):
    """The numbers of codes 0 to count - 1."""
    parts = ((c >> bits, (c & (1 << bits) - 1) / (1 << bits)) for c in range(count))
    return [math.ldexp(f, 1 - bias) if e == 0 else math.ldexp(1 + f, e - bias) for e, f in parts]


FORMATS = {'e4m3': numbers(3, 7, 127), 'e5m2': numbers(2, 15, 124)}


def nearest(table, x):
    i = bisect.bisect_left(table, abs(x))
    if i == len(table) or table[i] != abs(x):
        low, high = table[i - 1], table[min(i, len(table) - 1)]
        near = abs(x) - low, high - abs(x)
        i = i - 1 if near[0] < near[1] or (near[0] == near[1] and (i - 1) % 2 == 0) else i
    return math.copysign(table[i], x)


def rounded(block, form):
    """The numbers of a block, rounded with one scale."""
    table, most, scale = FORMATS[form], max(map(abs, block)), 2.0 ** -100
    while most > table[-1] * scale: scale *= 2
    return [nearest(table, x / scale) * scale for x in block]


def rows(m, size, form='e4m3'):
    """The matrix, rounded in blocks of 1 x size."""
    return [sum((rounded(row[i:i + size], form) for i in range(0, len(row), size)), []) for row in m]


def turned(m): return [list(c) for c in zip(*m)]


def tiles(m, high, wide):
    made = [row[:] for row in m]
    for i in range(0, len(m), high):
        for j in range(0, len(m[0]), wide):
            flat = rounded([x for row in m[i:i + high] for x in row[j:j + wide]], 'e4m3')
            for k in range(high): made[i + k][j:j + wide] = flat[k * wide:(k + 1) * wide]
    return made


def brains(m): return [[bf16(x) for x in row] for row in m]


def product(a, b):
    columns = turned(b)
    return [[sum(map(float.__mul__, row, c)) for c in columns] for row in a]


def expected(x, t, w, v, back, whole=False):
    """Loss and the gradients of w and v; `whole`: without 8 bits."""
    row = (lambda m, size, form='e4m3': m) if whole else rows
    tile = (lambda m, *size: m) if whole else tiles
    x, w, v = brains(x), tile(brains(w), BLOCK, OUT), tile(brains(v), OUT, BLOCK)
    h = brains(product(row(x, BLOCK), w))
    y = product(row(h, OUT), v)
    loss = sum(map(sum, ([a * b for a, b in zip(*both)] for both in zip(y, t)))) / BATCH
    dy = brains([[a / BATCH for a in row] for row in t])
    dh = brains(product(row(dy, BLOCK, back), turned(v)))
    along = lambda m, form: row(turned(m), BATCH, form)
    return loss, product(along(x, 'e4m3'), turned(along(dh, back))), product(along(h, 'e4m3'), turned(along(dy, back)))


# ---- the executable ----
def write(path, m): array.array('f', sum(m, [])).tofile(open(f'{WORK}/{path}', 'wb'))


def tensor(path, name, wide):
    flat = floats(f'{WORK}/{path}')[name].tolist()
    return [flat[i:i + wide] for i in range(0, len(flat), wide)]


def trained(words='', w='~ normal(0.1)', v='~ normal(0.1)', sets=()):
    text = MODEL.replace(' W\n', f' {w}\n').replace(' V\n', f' {v}\n').replace('WORDS', words)
    open(f'{WORK}/net.shard', 'w').write(text)
    sets = [s for word in sets for s in ('--set', word)]
    run(SHARDC, 'compile', 'net.shard', '--plan', 'p', '-o', 'net.exe', '-q', *sets, cwd=WORK)
    shutil.rmtree(f'{WORK}/run', ignore_errors=True)
    run('./net.exe', 'train', '--out', 'run', '--save-every', '0', '--dump', 'run.st', cwd=WORK)
    loss = [json.loads(l)['loss'] for l in open(f'{WORK}/run/metrics.jsonl') if '"loss"' in l][0]
    return loss, tensor('run.st', 'h.*.w', OUT), tensor('run.st', 'h.*.v', FEAT)


def minus(a, b): return [[x - y for x, y in zip(*both)] for both in zip(a, b)]
def largest(m): return max(max(map(abs, row)) for row in m)


def compare(kind, r, draw):
    x, t = ([[array.array('f', [draw(r)])[0] for _ in range(FEAT)] for _ in range(BATCH)] for _ in range(2))
    write('x.f32', x), write('t.f32', t)
    for words, back in ('', 'e4m3'), (' backward = e5m2', 'e5m2'):
        _, w, v = trained(words, sets=['train.optim.lr=1e-30'])
        loss, after_w, after_v = trained(words)
        want, off, plain = (expected(x, t, w, v, back), [], expected(x, t, w, v, back, True))
        for a, b, p in (minus(w, after_w), want[1], plain[1]), (minus(v, after_v), want[2], plain[2]):
            off.append((largest(minus(a, b)) / largest(b), largest(minus(p, b)) / largest(b)))
        size = sum(abs(a) for row in t for a in row) / BATCH
        check(all(a < .006 and a < p / 4 for a, p in off), f'{kind} {back}: gradients are off by {off}')
        near = 2e-3 * max(1, abs(want[0])) * max(1, size / 100)
        check(abs(loss - want[0]) < near, f'{kind} {back}: {loss} {want[0]}')
        print(f'{kind}, backward in {back}: gradients off by {max(a for a, _ in off):.1e}, '
              f'those without 8 bits by {min(p for _, p in off):.1e}')


def random_numbers():
    compare('normal', random.Random(1), lambda r: r.gauss(0, 1))
    compare('outliers', random.Random(2), lambda r: r.gauss(0, 1) ** 5)
    compare('wide range', random.Random(3), lambda r: r.gauss(0, 1) * 2 ** r.uniform(-24, 0))


def bounds():
    """1.0625, halfway between two numbers of e4m3, is rounded down; so is 1.125 in e5m2."""
    tie, plan = 1.0625, {}
    write('x.f32', [[tie] * FEAT] * BATCH), write('t.f32', [[1.0] * FEAT] * BATCH)
    loss = trained(w=f'= {tie}', v='= 1')[0]
    exact = FEAT * OUT * FEAT * tie * tie
    reached = {'forward': (exact - loss) / exact / BOUND['e4m3']}
    write('x.f32', [[1.0] * 17 + [0.0] * (FEAT - 17)] * BATCH)                # 17 = 16 * 1.0625
    for form, tie in ('e4m3', 1.0625), ('e5m2', 1.125):
        write('t.f32', [[tie] * FEAT] * BATCH)
        _, w, v = trained(f' backward = {form}', w='= 1', v=f'= 1.0625')
        exact = tie * FEAT * 1.0625, 17 * tie
        have = 1 - w[0][0], 1.0625 - v[0][0]
        for name, a, b in zip(('of a value', 'of a weight'), exact, have):
            reached[f'{form}, gradient {name}'] = (a - b) / a / BOUND[form]
        plan[form] = json.loads(run(SHARDC, 'plan', 'net.shard', '--plan', 'p', '--json', cwd=WORK)[0])['eights']
    for name, share in reached.items():
        print(f'{name}: {share:.3f} of the bound')
        check(.9 <= share <= 1, f'{name}: {share} of the bound')
    check(abs(plan['e4m3']['error'] - BOUND['e4m3']) < 1e-6 and plan['e4m3']['share'] == 1, f'{plan}')
    check(abs(plan['e5m2']['backward_error'] - BOUND['e5m2']) < 1e-6, f'{plan}')


def losses():
    """A small GPT-2 for 60 steps."""
    data, model = f'{FOLDER}/gpt2_small.bin', f'{FOLDER}/gpt2_small.shard'

    def train(exe, out, steps, *options):
        run(f'{WORK}/{exe}', 'train', '--data', data, '--out', out, '--steps', str(steps), *options, cwd=WORK)
        return [json.loads(l)['loss'] for l in open(f'{WORK}/{out}/metrics.jsonl') if '"loss"' in l]

    for exe, sets in ('bf16', ['precision=bf16']), ('fp8', ['precision=fp8']), ('parts', ['precision=fp8', 'micro=2']):
        run(SHARDC, 'compile', model, '-o', exe, '-q', *[w for s in sets for w in ('--set', f'plan.{s}')], cwd=WORK)
    want, have, parts = train('bf16', 'a', 60), train('fp8', 'b', 60), train('parts', 'c', 60)
    off = [max(abs(x - y) for x, y in zip(want, l)) for l in (have, parts)]
    check(0 < off[0] < .03 and 0 < off[1] < .03, f'losses of fp8 are off by {off}')
    train('fp8', 'd', 8)
    check(train('fp8', 'd', 12, '--resume') == have[:12], 'a resumed run differs')
    print(f'60 steps: {off[0]:.1e} from bf16, in micro-batches {off[1]:.1e}')


def refusals():
    flat = MODEL.replace(' W\n', ' = 1\n').replace(' V\n', ' = 1\n').replace('WORDS', '')
    flat = flat.replace('stack h [Layers] of Two', 'sub h = Two')
    other = flat.replace('precision fp8', 'precision bf16 backward = e5m2')
    for text in flat, other, flat.replace('fp8', 'fp8 backward = e3m4'):
        open(f'{WORK}/no.shard', 'w').write(text)
        said = run(SHARDC, 'plan', 'no.shard', '--plan', 'p', expect=1, cwd=WORK)[1]
        check('[E06' in said and f'no.shard:{text.count(chr(10))}:' in said, said)
    said = ''.join(run(SHARDC, 'plan', 'net.shard', '--plan', 'p', '--target', 'sm_90a', cwd=WORK))
    check('W0709' in said, said)


random_numbers(), bounds(), losses(), refusals()
shutil.rmtree(WORK)
