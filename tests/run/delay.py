"""The delayed update against the algorithm in plain Python: warm-up, the step in which nothing waits yet, and updates
one step late, with clipping; plans of many kinds (ZeRO with states on the host, parts of the batch, a tensor axis, 16
bits) give the same numbers, also where late steps are a program of their own, which `plan` tells apart; a resumed run
gives the same bits, with the deferred gradient; a step whose gradients are not finite is skipped one step later, in
either program. The test also checks refusals.

    python3 delay.py SHARDC
"""
import array, json, math, os, random, shutil, subprocess, sys
from common import EXAMPLES, check, floats, run, workdir
from small_net import BATCH, COUNT, FEAT, HIDDEN, NET, PARAMS, gradient

SHARDC, WORK = os.path.abspath(sys.argv[1]), workdir()
STEPS, AFTER, STOP = 14, 5, 8
LR, BETA1, BETA2, EPS, DECAY, CLIP, WARM = 1e-2, 0.9, 0.999, 1e-8, 0.1, 1.0, 4
MODEL = NET + f'''train t for Net {{
  batch {BATCH}
  steps {STEPS}
  data  columns(x = "x.f32", y = "y.f32") shuffle = off
  optim adamw lr = {LR} weight_decay = {DECAY}
  lr    constant warmup = {WARM}
  clip  {CLIP}
  %s
  save  every = {STOP} keep = 20
}}
plan one for Net {{ }}
plan parts for Net {{ micro 8 }}
plan group for Net {{ mesh data = 1; place Batch -> data; zero 0 over data; offload optimizer, grads -> host }}
plan two for Net {{ mesh data = 2; place Batch -> data; zero 2 over data; micro 4; offload optimizer, grads -> host }}
plan three for Net {{ mesh data = 2; place Batch -> data; zero 3 over data; offload optimizer -> host }}
plan tensor for Net {{ mesh data = 2, tensor = 2; place Batch -> data; place Hidden -> tensor; zero 1 over data }}
plan bf16 for Net {{ precision bf16 }}
plan bf16s for Net {{ mesh data = 2; place Batch -> data; zero 2 over data; precision bf16 }}
'''
DELAY = f'delay after = {AFTER}'
PLANS = ('parts', 1), ('group', 1), ('two', 2), ('three', 2), ('tensor', 4)  # that differ from `one` in rounding alone
HOSTED = 'group', 'two', 'three'


def write(delay): open(f'{WORK}/m.shard', 'w').write(MODEL % delay)


def data(bad=None):
    r = random.Random(3)
    x = [[r.gauss(0, 1) for k in range(FEAT)] for _ in range(STEPS * BATCH)]
    y = [abs(row[1]) - row[2] * 0.5 + 0.1 * row[3] for row in x]
    if bad is not None: y[(bad - 1) * BATCH + 3] = math.inf
    for name, values in ('x', sum(x, [])), ('y', y): array.array('f', values).tofile(open(f'{WORK}/{name}.f32', 'wb'))
    back = lambda v: array.array('f', v).tolist()
    return [back(row) for row in x], back(y)


# ---- the algorithm ----
def update(s, t, g, factor):
    """Update number t, from 1."""
    lr = LR * min(1, t / WARM)
    g = [d * factor for d in g]
    s['m'] = [m + (d - m) * (1 - BETA1) for m, d in zip(s['m'], g)]
    s['v'] = [BETA2 * v + (1 - BETA2) * d * d for v, d in zip(s['v'], g)]
    root, rate = math.sqrt(1 - BETA2 ** t), lr / (1 - BETA1 ** t)
    decays = lambda i: not FEAT * HIDDEN <= i < (FEAT + 1) * HIDDEN
    s['p'] = [p * (1 - lr * DECAY if decays(i) else 1) - rate * m / (math.sqrt(v) / root + EPS)
              for i, (p, m, v) in enumerate(zip(s['p'], s['m'], s['v']))]


def expected(first, x, y, after, bad=None):
    """The final parameters, moments and deferred gradient, computed in plain Python from the first weights."""
    s, waits = {'p': first, 'm': [0.0] * COUNT, 'v': [0.0] * COUNT}, None
    for t in range(1, STEPS + 1):
        at = (t - 1) * BATCH
        g = gradient(s['p'], x[at:at + BATCH], y[at:at + BATCH])
        found = None if t == bad else (g, min(1, CLIP / (math.sqrt(sum(d * d for d in g)) + 1e-6)))
        if t <= after and found: update(s, t, *found)
        if t > after and waits: update(s, t - 1, *waits)
        waits = found if t > after else None
    return {**s, 'waiting': g}


# ---- runs ----
def flat(t, end=''): return sum((list(t[name + end]) for name, _ in PARAMS), [])


def compiled(name): run(SHARDC, 'compile', '--quick', 'm.shard', '--plan', name, '-o', name, '-q', cwd=WORK)


def train(name, ranks=1, *more):
    if '--resume' not in more: shutil.rmtree(f'{WORK}/out.{name}', ignore_errors=True)
    start = [SHARDC, 'run', '-n', str(ranks)] if ranks > 1 else []
    run(*start, f'./{name}', 'train' if ranks == 1 else '--', *(['train'] if ranks > 1 else []), '--out', f'out.{name}',
        '--dump', f'{name}.st', *more, cwd=WORK)
    return floats(f'{WORK}/{name}.st')


def worst(a, b): return max(abs(x - y) for x, y in zip(a, b, strict=True))


def states(t, late=True): return [flat(t)] + [flat(t, e) for e in ('.m', '.v') + (('.waiting',) if late else ())]


def algorithm():
    x, y = data()
    write('')
    compiled('one')
    at_once = train('one')
    run('./one', 'train', '--out', 'out.first', '--steps', '0', '--dump', 'first.st', cwd=WORK)
    first = flat(floats(f'{WORK}/first.st'))
    want = expected(first, x, y, STEPS)
    check(worst(flat(at_once), want['p']) < 3e-6, f'without delay: {worst(flat(at_once), want["p"])}')
    write(DELAY)
    compiled('one')
    late, want = train('one'), expected(first, x, y, AFTER)
    for name, got in zip(('p', 'm', 'v', 'waiting'), states(late)):
        check(worst(got, want[name]) < 5e-6, f'{name} differs by {worst(got, want[name])}')
    moved = worst(flat(at_once), flat(late))
    check(moved > 1e-3, f'the delay changes weights by {moved}')
    print(f'as in Python; a delay moves weights by {moved:.2g} in {STEPS} steps')
    return first, late


def planned(name): return json.loads(run(SHARDC, 'plan', 'm.shard', '--plan', name, '--json', cwd=WORK)[0])


def plans(late):
    for name, ranks in PLANS:
        compiled(name)
        apart = planned(name).get('late')      # where states are on the host
        check(bool(apart) == (name in HOSTED) and (not apart or (apart['from'], apart['steps']) == (AFTER, STEPS)),
              f'{name}: {apart}')
        w = max(worst(a, b) for a, b in zip(states(train(name, ranks)), states(late)))
        check(w < 5e-6, f'{name}: other numbers, by {w}')
    for name, ranks in ('bf16', 1), ('bf16s', 2): compiled(name)
    w = worst(flat(train('bf16')), flat(train('bf16s', 2)))
    check(w < 3e-3, f'bf16: other numbers, by {w}')


def resumed(late):
    for name, ranks in ('one', 1), ('two', 2):
        whole = late if name == 'one' else train(name, ranks)
        shutil.rmtree(f'{WORK}/out.{name}')
        train(name, ranks, '--steps', str(STOP))
        again = train(name, ranks, '--resume')
        check(again == whole, f'{name}: other bits after a resume')


def overflow(first):
    """Gradients of a step in the warm-up, of the first late one, and of a later one that are not finite."""
    for bad in AFTER - 1, AFTER + 1, AFTER + 3:
        x, y = data(bad)
        write(DELAY + '; on_nan skip')
        want = expected(first, x, y, AFTER, bad)
        for name in 'one', 'group':
            compiled(name)
            w = worst(flat(train(name)), want['p'])
            check(w < 5e-6, f'{name}, inf in step {bad}: weights differ by {w}')


def refused():
    for delay, code, word in (('delay', 'E0602', 'after'), (f'delay after = {STEPS}', 'E0602', 'late'),
                              ('delay after = 0', 'E0602', 'after'), ('delay 2 after = 3', 'E06', 'delay')):
        write(delay)
        p = subprocess.run([SHARDC, 'compile', 'm.shard', '--plan', 'one', '-o', 'no'], cwd=WORK, capture_output=True,
                           text=True, env=dict(os.environ, SHARDC_PATH=EXAMPLES, NO_COLOR='1'))
        check(p.returncode == 1 and code in p.stderr and word in p.stderr and 'm.shard:18' in p.stderr,
              f'{delay}: {p.returncode} {p.stderr}')


first, late = algorithm()
plans(late)
resumed(late)
overflow(first)
refused()
shutil.rmtree(WORK)
