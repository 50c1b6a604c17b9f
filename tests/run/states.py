"""Moments in bf16 against the algorithms in plain Python: AdamW, LAMB and SGD with momentum, which round the moments to
the nearest, ties to even, after the update has read them. Moments are equal bit by bit, weights to rounding of f32;
plans of other ranks, with states on the host, with micro-batches and on the GPU of the stand-in give the same results;
a resumed run has the same bits, and so has `delay`, whose deferred gradient stays f32; `plan` counts two bytes per
moment. And moments in 8 bits: every step of every element is rounded to a neighbour on the grid of the head of
passes/math/codes8.c, without a mean error, and weights move by the moments before they are rounded. The test also
checks refusals and warnings.

    python3 states.py SHARDC
"""
import array, json, math, os, random, shutil, subprocess, sys
from common import EXAMPLES, bf16, check, numbers, read, run, workdir

SHARDC, WORK = os.path.abspath(sys.argv[1]), workdir()
BATCH, FEAT, OUT, STEPS, STOP = 16, 6, 8, 12, 5
LR, BETA1, BETA2, EPS, DECAY, MOMENTUM = 1e-2, 0.9, 0.95, 1e-6, 0.1, 0.9
MODEL = f'''use "std"
dims {{ Batch; Feat = {FEAT}; Out = {OUT} }}
model Net {{
  input x [Batch, Feat] f32
  input y [Batch, Out] f32
  param w [Feat, Out] ~ normal(0.5)
  param b [Out] ~ normal(0.5) @nodecay
  loss mean[Batch](sum[Out]((dot[Feat](x, w) + b - y)^2))
}}
train t for Net {{
  batch {BATCH}
  steps {STEPS}
  data  columns(x = "x.f32", y = "y.f32") shuffle = off
  optim %s
  %s
  save  every = {STOP} keep = 20
}}
machine box {{ node gpus = 1 arch = sm_80 memory = 40GiB; host memory = 1GiB cores = 2 }}
plan one for Net {{ }}
plan parts for Net {{ micro 4 }}
plan two for Net {{ mesh data = 2; place Batch -> data; zero 2 over data; offload optimizer, grads -> host }}
plan three for Net {{ mesh data = 2; place Batch -> data; zero 3 over data; offload optimizer, grads, params -> host }}
plan tensor for Net {{ mesh data = 2, tensor = 2; place Batch -> data; place Out -> tensor; zero 1 over data }}
plan gpu for Net {{ on box; mesh data = 1; place Batch -> data; zero 1 over data; offload optimizer -> host }}
'''
BETAS = f'betas = [{BETA1}, {BETA2}] eps = {EPS}'
ADAMW, LAMB = f'adamw lr = {LR} weight_decay = {DECAY} {BETAS}', f'lamb lr = {LR} weight_decay = {DECAY} {BETAS}'
SGD = f'sgd lr = {LR} weight_decay = {DECAY} momentum = {MOMENTUM}'
PLANS = ('parts', 1), ('two', 2), ('three', 2), ('tensor', 4), ('gpu', 1)
MOMENTS = {ADAMW: ('m', 'v'), LAMB: ('m', 'v'), SGD: ('momentum',)}
UPDATES = 'moments.updates'
DECAYS = {'w': DECAY, 'b': 0}


def write(optim, more=''): open(f'{WORK}/m.shard', 'w').write(MODEL % (optim, more))


def tensors(path): return numbers(path, 'F32', 'BF16', 'U8')


# ---- the algorithms ----
def data():
    r = random.Random(3)
    x = [[r.gauss(0, 1) for _ in range(FEAT)] for _ in range(STEPS * BATCH)]
    y = [[row[o % FEAT] * (o - 3) + 0.1 * row[0] for o in range(OUT)] for row in x]
    back = []
    for name, values in ('x', x), ('y', y):
        a = array.array('f', sum(values, []))
        a.tofile(open(f'{WORK}/{name}.f32', 'wb'))
        n = len(a) // len(x)
        back.append([a[i:i + n].tolist() for i in range(0, len(a), n)])
    return back


def gradient(p, x, y):
    w, b = p['w'], p['b']
    g = {'w': [0.0] * FEAT * OUT, 'b': [0.0] * OUT}
    for row, target in zip(x, y):
        for o in range(OUT):
            d = 2 * (sum(row[k] * w[k * OUT + o] for k in range(FEAT)) + b[o] - target[o]) / BATCH
            g['b'][o] += d
            for k in range(FEAT): g['w'][k * OUT + o] += d * row[k]
    return g


def norm(v): return math.sqrt(sum(x * x for x in v))


def adam_moments(s, name, g):
    m = [m + (d - m) * (1 - BETA1) for m, d in zip(s[name, 'm'], g)]
    v = [BETA2 * v + (1 - BETA2) * d * d for v, d in zip(s[name, 'v'], g)]
    s[name, 'm'], s[name, 'v'] = list(map(bf16, m)), list(map(bf16, v))
    return m, v


def adamw(s, name, p, g, t):
    m, v = adam_moments(s, name, g)
    root, rate = math.sqrt(1 - BETA2 ** t), LR / (1 - BETA1 ** t)
    return [p * (1 - LR * DECAYS[name]) - rate * m / (math.sqrt(v) / root + EPS) for p, m, v in zip(p, m, v)]


def lamb(s, name, p, g, t):
    m, v = adam_moments(s, name, g)
    root, fresh = math.sqrt(1 - BETA2 ** t), 1 - BETA1 ** t
    u = [m / fresh / (math.sqrt(v) / root + EPS) + DECAYS[name] * p for p, m, v in zip(p, m, v)]
    trust = norm(p) / norm(u) if DECAYS[name] else 1
    return [p - LR * trust * u for p, u in zip(p, u)]


def sgd(s, name, p, g, t):
    b = [MOMENTUM * b + d + DECAYS[name] * p for b, d, p in zip(s[name, 'momentum'], g, p)]
    s[name, 'momentum'] = list(map(bf16, b))
    return [p - LR * b for p, b in zip(p, b)]


RULES = {ADAMW: adamw, LAMB: lamb, SGD: sgd}


def expected(optim, first, x, y):
    p, s = dict(first), {(n, m): [0.0] * len(first[n]) for n in first for m in MOMENTS[optim]}
    for t in range(1, STEPS + 1):
        g = gradient(p, x[(t - 1) * BATCH:t * BATCH], y[(t - 1) * BATCH:t * BATCH])
        p = {n: RULES[optim](s, n, p[n], g[n], t) for n in p}
    return p, s


# ---- runs ----
def train(name, ranks=1, *more):
    if '--resume' not in more: shutil.rmtree(f'{WORK}/out.{name}', ignore_errors=True)
    command = [SHARDC, 'run', *(['-n', str(ranks)] if ranks > 1 else []), *(['--emulate'] if name == 'gpu' else []),
               f'./{name}', '--']
    run(*command, 'train', '--out', f'out.{name}', '--dump', f'{name}.st', *more, cwd=WORK)
    return tensors(f'{WORK}/{name}.st')


def compiled(name): run(SHARDC, 'compile', '--quick', 'm.shard', '--plan', name, '-o', name, '-q', cwd=WORK)


def weights(t): return {n: list(t[n][1]) for n in 'wb'}


def worst(a, b): return max(abs(x - y) for x, y in zip(a, b, strict=True))


def same(got, want, what, last_bits):
    """last_bits: the difference allowed to bf16 moments, since other plans sum gradients in another order."""
    p, s = want
    for n in p:
        far = worst(got[n][1], p[n])
        check(far < (1e-4 if last_bits else 3e-6), f'{what}: {n} by {far}')
    for (n, m), values in s.items():
        kind, have = got[f'{n}.{m}']
        check(kind == 'BF16', f'{what}: {n}.{m} in {kind}')
        far = max(abs(a - b) / max(abs(b), 1e-30) for a, b in zip(have, values, strict=True))
        check(far <= last_bits * 2**-7, f'{what}: {n}.{m} by {far:.2g} of it')


def algorithm(optim):
    write(f'{optim} states = bf16')
    compiled('one')
    run('./one', 'train', '--out', 'out.first', '--steps', '0', '--dump', 'first.st', cwd=WORK)
    first = weights(tensors(f'{WORK}/first.st'))
    shutil.rmtree(f'{WORK}/out.first')
    want, whole = expected(optim, first, *data()), train('one')
    same(whole, want, optim, 0)
    for name, ranks in PLANS:
        compiled(name)
        same(train(name, ranks), want, f'{optim}, {name}', 1)
    for name, ranks in ('one', 1), ('two', 2):
        again = train(name, ranks)
        shutil.rmtree(f'{WORK}/out.{name}')
        train(name, ranks, '--steps', str(STOP))
        check(train(name, ranks, '--resume') == again, f'{optim}, {name}: other bits after a resume')
    return max(worst(whole[n][1], tensors(f'{WORK}/first.st')[n][1]) for n in 'wb')


# ---- codes of 8 bits ----
def decoded(kind, code, beta, updates):
    if kind == 'v' or code < 128: sign, k = 1, code
    else: sign, k = -1, code - 128
    steps = -3 * math.log2(beta) * updates
    return sign * 2 ** ((k - 1 - (steps - math.floor(steps))) / 3 - (60 if kind == 'v' else 30)) if k else 0.0


def moments(t, n): return [[decoded(k, c, b, t[UPDATES][1][0]) for c in t[f'{n}.{k}'][1]]
                           for k, b in (('m', BETA1), ('v', BETA2))]


def codes():
    """Each checkpoint follows from the one before."""
    write(f'{ADAMW} states = int8')
    compiled('one')
    last = train('one', 1, '--save-every', '1', '--keep', '99')
    x, y = data()
    run('./one', 'train', '--out', 'out.first', '--steps', '0', '--dump', 'first.st', cwd=WORK)
    before, errors = tensors(f'{WORK}/first.st'), []
    shutil.rmtree(f'{WORK}/out.first')
    for t in range(1, STEPS + 1):
        now = tensors(f'{WORK}/out.one/step-{t:06d}/rank-00000.safetensors')
        g = gradient(weights(before), x[(t - 1) * BATCH:t * BATCH], y[(t - 1) * BATCH:t * BATCH])
        for n in 'wb':
            m, v = moments(before, n) if t > 1 else ([0.0] * len(g[n]),) * 2
            m = [a + (d - a) * (1 - BETA1) for a, d in zip(m, g[n])]
            v = [BETA2 * a + (1 - BETA2) * d * d for a, d in zip(v, g[n])]
            errors += [have / want - 1 for want, have in zip(m + v, sum(moments(now, n), []))]
            root, rate = math.sqrt(1 - BETA2 ** t), LR / (1 - BETA1 ** t)
            p = [p * (1 - LR * DECAYS[n]) - rate * a / (math.sqrt(b) / root + EPS)
                 for p, a, b in zip(before[n][1], m, v)]
            check(worst(p, now[n][1]) < 1e-5, f'step {t}: {n} by {worst(p, now[n][1])}')
        before = now
    mean, most = sum(errors) / len(errors), max(map(abs, errors))
    good = 0.2 < most < 2 ** (1 / 3) - 0.99 and abs(mean) < 0.006
    check(good, f'errors of codes: {most} at most, {mean} in the mean')
    for name, ranks in PLANS:
        compiled(name)
        far = max(worst(train(name, ranks)[n][1], last[n][1]) for n in 'wb')
        check(far < 2e-3, f'int8, {name}: {far}')
        whole = train(name, ranks)
        shutil.rmtree(f'{WORK}/out.{name}')
        train(name, ranks, '--steps', str(STOP))
        check(train(name, ranks, '--resume') == whole, f'int8, {name}: other bits after a resume')


def bytes_of(name):
    c = json.loads(run(SHARDC, 'plan', 'm.shard', '--plan', name, '--json', cwd=WORK)[0])['classes'][0]
    return c['bytes']['optimizer'] + c['host']['optimizer']


def counted():
    narrow = {}
    for states in 'f32', 'bf16', 'int8':
        write(f'{ADAMW} states = {states}')
        narrow[states] = bytes_of('one')
    for states, bytes in ('f32', 4), ('bf16', 2), ('int8', 1):  # each begins at a multiple of 64
        want = 2 * sum((bytes * n + 63) // 64 * 64 for n in (FEAT * OUT, OUT)) + 64 * (states == 'int8')
        check(narrow[states] == want, f'{states}: {narrow[states]} bytes, {want} are expected')
    for states, kind in ('bf16', 'BF16'), ('int8', 'U8'):
        write(f'{ADAMW} states = {states}', f'delay after = {STOP - 2}')
        compiled('two')
        whole = train('two', 2)
        check(whole['w.waiting'][0] == 'F32' and whole['w.m'][0] == kind, f'{whole["w.waiting"][0]}')
        check(states == 'bf16' or whole[UPDATES][1][0] == STEPS - 1, f'{UPDATES}: one step only waits')
        shutil.rmtree(f'{WORK}/out.two')
        train('two', 2, '--steps', str(STOP))
        check(train('two', 2, '--resume') == whole, 'delay: other bits after a resume')


def other_type():
    """A checkpoint of f32 moments is not one of bf16 moments."""
    for states, code in ('f32', 0), ('bf16', 1), ('int8', 1):
        write(f'{ADAMW} states = {states}')
        compiled('one')
        more = ['--resume'] if code else ['--steps', str(STOP)]
        if not code: shutil.rmtree(f'{WORK}/out.one', ignore_errors=True)
        p = subprocess.run(['./one', 'train', '--out', 'out.one', *more], cwd=WORK, capture_output=True, text=True)
        check((p.returncode != 0) == bool(code) and (not code or 'R0503' in p.stderr),
              f'{states}: {p.returncode} {p.stderr}')


def said(optim, status, *words):
    write(optim)
    p = subprocess.run([SHARDC, 'check', 'm.shard'], cwd=WORK, capture_output=True, text=True,
                       env=dict(os.environ, SHARDC_PATH=EXAMPLES, NO_COLOR='1'))
    check(p.returncode == status and all(w in p.stderr for w in words) and ('W0503' in words) == ('W0503' in p.stderr),
          f'{optim}: {p.returncode} {p.stderr}')


data()
moved = [algorithm(optim) for optim in RULES]
codes()
counted()
other_type()
said('adamw states = bf16', 0, 'W0503', 'm.shard:14:24', 'the second moment', '0.999')
said('lamb states = bf16 betas = [0.999, 0.95]', 0, 'W0503', 'the first moment')
said('sgd momentum = 0.999 states = bf16', 0, 'W0503', 'the velocity')
said('adamw states = bf16 betas = [0.9, 0.99]', 0)
said('adamw states = f32', 0)
said('adamw states = int8', 0)
said('lion states = int8', 1, 'E0602', 'f32', 'bf16')
said('sgd states = bf16', 1, 'E0602', 'm.shard:14:22', 'keeps none')
said('adamw states = f16', 1, 'E0602', 'f32', 'bf16')
said('onebit_adam states = bf16', 1, 'E0601', 'states')
shutil.rmtree(WORK)
print(f'{len(RULES)} optimizers with moments in bf16: as in Python, weights move by {min(moved):.2g} at least; '
      f'{len(PLANS)} plans alike')
