"""Dropout in an executable: moments and correlations of the kept elements; losses that do not depend on micro-batches;
evaluation without it, the same each time.

    python3 dropout.py SHARDC
"""
import array, json, math, os, random, shutil, struct, sys
from common import check, run, workdir

SHARDC, WORK = os.path.abspath(sys.argv[1]), workdir()
P, SIZE, STEPS = 0.3, (50, 40, 32), 8

TRAINED = '''use "std"
dims { Batch, Seq; Feat = 12; Wide = 22; Deep = 3; Class = 4 }
layer Block(x: [Batch, Seq, Wide]) -> [Batch, Seq, Wide] with drop = 0 {
  sub lin = Linear[Wide -> Wide] with init = normal(0.1)
  return x + dropout(tanh(lin(x)), p = drop)
}
model Drop {
  input x [Batch, Seq, Feat] f32
  input y [Batch] of Class
  sub up = Linear[Feat -> Wide] with init = normal(0.2)
  stack h [Deep] of Block with drop = RATES
  sub head = Linear[Wide -> Class] with init = normal(0.2)
  z = h(dropout(up(x), p = FIRST))
  loss cross_entropy[Class](head(mean[Seq](z)), y)
}
train t for Drop {
  size  Seq = 10
  batch 12
  steps 10
  data  columns(x = "x.f32", y = "y.idx") valid = columns(x = "x.f32", y = "y.idx")
  optim adamw lr = 1e-3
}
plan m1 for Drop { micro 1 }
plan m3 for Drop { micro 3 }
plan m12 for Drop { micro 12 }
'''

# every element of d and e is 0 or 1 / (1 - p): x is 0 and has no influence
COUNTED = f'''use "std"
dims {{ Batch, Seq; Feat = {SIZE[2]} }}
model Count {{
  input x [Batch, Seq, Feat] f32
  param w [Feat] = 1
  param v [Feat] = 0
  d = dropout(x + w, p = {P})
  e = dropout(x * v + 1, p = {P})
  loss MOMENT + 0 * mean[*](d) + 0 * mean[*](e)
}}
train c for Count {{
  size  Seq = {SIZE[1]}
  batch {SIZE[0]}
  steps {STEPS}
  data  columns(x = "zero.f32")
  optim sgd lr = 1e-20
}}
'''


def floats(name, values): open(f'{WORK}/{name}', 'wb').write(array.array('f', values).tobytes())


def losses(text, *options):
    open(f'{WORK}/m.shard', 'w').write(text)
    shutil.rmtree(f'{WORK}/out', ignore_errors=True)
    run(SHARDC, 'compile', 'm.shard', '-o', 'm', '--quick', *options, cwd=WORK)
    run('./m', 'train', '--out', 'out', cwd=WORK)
    return [r['loss'] for r in map(json.loads, open(f'{WORK}/out/metrics.jsonl')) if 'loss' in r]


def moments():
    """Each figure over all steps against what chance allows: within 4.5 standard deviations of the mean of n draws."""
    floats('zero.f32', [0] * math.prod(SIZE))
    v = P / (1 - P)                                    # variance of one element
    cases = [('mean[*](d)', 1, v), ('mean[*](d * d)', 1 / (1 - P), P / (1 - P) ** 3),
             ('mean[*]((d - 1) * (e - 1))', 0, v * v),
             ('mean[*]((d - 1) * (shift[Feat](d, fill = 1) - 1))', 0, v * v),
             ('mean[*]((d - 1) * (shift[Seq](d, fill = 1) - 1))', 0, v * v)]
    for moment, want, variance in cases:
        got, n = losses(COUNTED.replace('MOMENT', moment)), math.prod(SIZE)
        allowed = 4.5 * math.sqrt(variance / n)
        check(all(abs(g - want) < allowed for g in got), f'{moment}: {got}, expected {want} within {allowed}')
        check(abs(sum(got) / STEPS - want) < allowed / math.sqrt(STEPS), f'{moment}: mean of {got}, expected {want}')
        check(len(set(got)) == STEPS, f'{moment}: two steps drew the same: {got}')


def trained():
    rng = random.Random(1)
    floats('x.f32', [rng.gauss(0, 1) for _ in range(12 * 10 * 12)])
    open(f'{WORK}/y.idx', 'wb').write(struct.pack('>HBBI', 0, 8, 1, 12) + bytes(rng.randrange(4) for _ in range(12)))
    text = TRAINED.replace('RATES', '[0, 0.1, 0.5]').replace('FIRST', '0.25')
    want = losses(text, '--plan', 'm12')
    first = [run('./m', 'eval', '--out', 'out', cwd=WORK)[0] for _ in range(2)]
    check('validation loss' in first[0] and first[0] == first[1], f'two evaluations differ: {first}')
    check(losses(text, '--plan', 'm12') == want, 'two runs of the same executable differ')
    for plan in 'm1', 'm3':
        got = losses(text, '--plan', plan)
        check(all(abs(a - b) <= 1e-5 * b for a, b in zip(got, want)), f'{plan}: {got}, whole batch {want}')
    open(f'{WORK}/m.shard', 'w').write(TRAINED.replace('RATES', '0').replace('FIRST', '0'))
    run(SHARDC, 'compile', 'm.shard', '-o', 'm', '--quick', cwd=WORK)
    last = run('./m', 'eval', '--out', 'out', cwd=WORK)[0]
    check(last == first[0], f'evaluation: {first[0]}, without any dropout {last}')


moments(), trained()
shutil.rmtree(WORK)
