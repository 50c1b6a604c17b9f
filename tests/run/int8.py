"""Messages in 8 bits: python3 int8.py SHARDC

Gradients of random and adversarial tensors (a bound reached, one large number in a block, numbers that underflow,
zeros): the sum that every rank applies is within the bound that `plan` prints, in every stage of `zero`, over one axis
and over two, on processors, over MPI, over the stand-in's NCCL; the weights that `zero 3` gathers are within their own
bound. A NaN or an infinity is detected as in f32. The bytes sent equal the plan, a quarter of f32. The loss of a small
GPT ends within 1 % of that in f32; bad words are refused.
"""
import array, json, math, os, random, re, shutil, sys
from common import check, floats, has_mpi, run, text_file, workdir

SHARDC, WORK = os.path.abspath(sys.argv[1]), workdir()
BLOCK, RANKS, FEAT, READ = 256, 4, 64 * 256, 48
BOUND = 0.00394
MODEL = f'''use "std"
dims {{ Batch; Feat = {FEAT} }}
model Net {{
  input x [Batch, Feat] f32
  param w [Feat] = 0
  loss mean[Batch](dot[Feat](x, w))
}}
train t for Net {{
  batch {RANKS}
  steps 1
  data  columns(x = "x.f32") shuffle = off
  optim sgd lr = 1
}}
'''
ONE, TWO = f'mesh data = {RANKS}; place Batch -> data; ', 'mesh data = 2, node = 2; place Batch -> node, data; '
TRAVEL = 'precision f32 reduce = int8'


def write(path, values): array.array('f', values).tofile(open(f'{WORK}/{path}', 'wb'))


def f32(values): return array.array('f', values).tolist()


def adversary(r, kind):
    """A block of numbers."""
    draw = {'normal': lambda i: r.gauss(0, 1), 'tail': lambda i: r.gauss(0, 1) ** 9,
            'spike': lambda i: 1e6 if i == 77 else r.gauss(0, 1), 'half': lambda i: (2 * i - 255) / 254 if i else 1.0,
            'zero': lambda i: 0.0, 'same': lambda i: -3.7, 'tiny': lambda i: r.gauss(0, 1e-38),
            'huge': lambda i: r.gauss(0, 1e15), 'signs': lambda i: (-1) ** i * 0.1,
            'sparse': lambda i: r.gauss(0, 1) if r.random() < .02 else 0.0}[kind]
    return [draw(i) for i in range(BLOCK)]


KINDS = ('normal', 'tail', 'spike', 'half', 'zero', 'same', 'tiny', 'huge', 'signs', 'sparse')


def rows(seed):
    """A row for each rank: of a block all of one kind, or each of another."""
    r = random.Random(seed)
    made = [[] for _ in range(RANKS)]
    for b in range(FEAT // BLOCK):
        kinds = [KINDS[b % len(KINDS)]] * RANKS if b < 30 else [r.choice(KINDS) for _ in range(RANKS)]
        for row, kind in zip(made, kinds): row += adversary(r, kind)
    return [f32(row) for row in made]


def tensor(path, name): return tuple(floats(f'{WORK}/{path}')[name])


def trained(plan, name, how='local', sets=(), expect=0):
    """The dump of a run of the plan."""
    open(f'{WORK}/net.shard', 'w').write(f'{MODEL}plan p for Net {{ {plan} }}\n')
    options = {'local': [], 'mpi': ['--comm', 'mpi'], 'nccl': ['--target', 'sm_80']}[how]
    sets = [w for s in sets for w in ('--set', s)]
    run(SHARDC, 'compile', 'net.shard', '--plan', 'p', '-o', 'net.exe', '-q', '--quick', *options, *sets, cwd=WORK)
    start = {'local': [SHARDC, 'run', '-n', str(RANKS), './net.exe', '--'], 'nccl':
             [SHARDC, 'run', '-n', str(RANKS), '--emulate', './net.exe', '--'],
             'mpi': ['mpirun', '--oversubscribe', '-n', str(RANKS), './net.exe']}[how]
    shutil.rmtree(f'{WORK}/{name}', ignore_errors=True)
    said = run(*start, 'train', '--out', name, '--save-every', '0', '--dump', f'{name}.st', '--profile', cwd=WORK,
               expect=expect, env={'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'})
    return ''.join(said)


# ---- gradients ----
def most(values): return [max(map(abs, values[i:i + BLOCK])) for i in range(0, len(values), BLOCK)]


def allowed(terms, plan):
    """What the sum may be off by, block by block: of each message half a step of its codes."""
    sums, pairs = [[sum(c) for c in zip(*terms)]], []
    if 'node' in plan: pairs = [[sum(c) for c in zip(*half)] for half in (terms[:2], terms[2:])]
    sent = terms + pairs                                          # terms over the first axis, and over the second
    if 'zero' not in plan: sent += pairs                          # sums travel to all ranks, rounded again
    if 'zero' not in plan or 'over data' in plan: sent += sums
    return [BOUND * sum(m) * 1.01 + 1e-30 + 1e-6 * max(m) for m in zip(*map(most, sent))]


def worst(have, want, terms, plan):
    """The error of the sums, as a share of the allowed error."""
    most_off = allowed(terms, plan)
    return max(abs(a - b) / most_off[i // BLOCK] for i, (a, b) in enumerate(zip(have, want)))


def gradients():
    plans = [(ONE, 'local'), (ONE + 'zero 1; ', 'local'), (ONE + 'zero 2; ', 'local'), (ONE + 'zero 3; ', 'local'),
             (ONE + 'zero 3; ', 'nccl'), (ONE, 'nccl'), (TWO + 'zero 1 over node, data; ', 'local'), (TWO, 'local'),
             (TWO + 'zero 1 over data; ', 'local')]
    if has_mpi(): plans += [(ONE + 'zero 2; ', 'mpi'), (ONE, 'mpi')]
    else: print('MPI is passed over')
    x = rows(5)
    write('x.f32', sum(x, []))
    terms = [[v / RANKS for v in row] for row in x]
    want = [sum(c) for c in zip(*terms)]
    bits = {}
    for plan, how in plans:
        trained(plan + TRAVEL, 'run', how)
        have = [-v for v in tensor('run.st', 'w')]
        off = worst(have, want, terms, plan)
        check(off < 1, f'{plan} {how}: {off:.3g} of the bound')
        check(off > .02, f'{plan} {how}: {off:.3g} of the bound: nothing was rounded')
        check(all(v == 0 for v in have[4 * BLOCK:5 * BLOCK]), 'zeros stay zeros')
        key = plan.replace('zero 1', 'zero').replace('zero 2', 'zero').replace('zero 3', 'zero')
        check(how == 'nccl' or bits.setdefault(key, have) == have, f'{plan} {how}: other bits')
        print(f'{plan}{how}: {off:.2f} of the bound')


def not_finite():
    """Noticed in a message of 8 bits as in one of 32."""
    for bad in math.nan, math.inf, -math.inf:
        x = rows(6)
        x[2][3 * BLOCK + 9] = bad
        write('x.f32', sum(x, []))
        for plan in ONE + 'zero 2; ' + TRAVEL, ONE + TRAVEL, ONE:
            said = trained(plan, 'bad', expect=5)
            check('not finite' in said, f'{bad} under {plan}\n{said}')


# ---- weights ----
def weights():
    """The first step makes weights of -x / 4; each of the others reads one of them, in its loss."""
    r = random.Random(8)
    x = rows(9)
    w = f32(-sum(c) for c in zip(*[f32(v / RANKS for v in row) for row in x]))
    largest = most(w)
    at = [r.choice([i for i in range(b * BLOCK, (b + 1) * BLOCK) if abs(w[i]) > 1e-9 or not largest[b]])
          for b in range(READ) if any(abs(v) > 1e-9 for v in w[b * BLOCK:(b + 1) * BLOCK]) or not largest[b]]
    one = lambda i: [1e-18 if k == i else 0.0 for k in range(FEAT)] * RANKS
    write('x.f32', sum(x, []) + [v for i in at for v in one(i)])
    for how in 'local', 'nccl':
        trained(ONE + 'zero 3; precision f32 gather = int8', 'run', how, [f'train.steps={1 + len(at)}'])
        losses = [json.loads(l) for l in open(f'{WORK}/run/metrics.jsonl')]
        read = [l['loss'] * 1e18 for l in losses if 'loss' in l][1:]
        off = [abs(v - w[i]) / (BOUND * largest[i // BLOCK] + 1e-12) for v, i in zip(read, at)]
        check(len(off) == len(at) and max(off) < 1 and max(off) > .1, f'weights {how}: {max(off):.3g} of the bound')
        print(f'weights {how}: {max(off):.2f} of the bound, {len(at)} blocks')


# ---- bytes sent ----
def traffic():
    write('x.f32', sum(rows(5), []))
    sent = {}
    for kind, words in ('f32', 'precision f32'), ('int8', TRAVEL + ' gather = int8'):
        said = trained(f'{ONE}zero 3; {words}', 'run')
        plan = json.loads(run(SHARDC, 'plan', 'net.shard', '--plan', 'p', '--json', cwd=WORK)[0])
        axis = plan['communication'][0]
        counted = re.search(r'^axis data +\d+ calls +(\d+) elements +(\d+) bytes', said, re.M)
        check(tuple(map(int, counted.groups())) == (axis['elements_per_step'], axis['bytes_per_step']),
              f'{axis}\n{said}')
        sent[kind] = axis['bytes_per_step']
        check(('int8' in plan) == (kind == 'int8') and (kind == 'f32' or plan['int8']['error'] == BOUND), f'{plan}')
    check(sent['f32'] > 3.9 * sent['int8'], f'{sent}')
    said = run(SHARDC, 'plan', 'net.shard', '--plan', 'p', cwd=WORK)
    check('in 8 bits: gradients and gathered weights, a scale for 256 of them; a message rounds each by 0.394 % of the '
          'largest of these at most' in said[0] and 'W0707' in said[1], ''.join(said))
    print(f'{sent["f32"] / sent["int8"]:.2f} times less than f32, counted')


# ---- refusals ----
REFUSED = (('zero 3; precision f32 gather = int8 block = 100', 'E0602'), ('precision f32 block = 64', 'E0602'),
           ('zero 2; precision f32 gather = int8', 'E0602'), ('precision f32 reduce = int8 block = 0', 'E0'),
           ('zero 1 bucket = 1KiB; precision f32 reduce = int8', 'E0602'), ('precision f32 reduce = int4', 'E0'))


def refusals():
    for words, code in REFUSED:
        open(f'{WORK}/net.shard', 'w').write(f'{MODEL}plan p for Net {{ {ONE}{words} }}\n')
        said = run(SHARDC, 'compile', 'net.shard', '--plan', 'p', '-o', 'no.exe', expect=1, cwd=WORK)[1]
        check(f'[{code}' in said and 'net.shard:14:' in said, f'{words}:\n{said}')


# ---- training ----
def learns():
    """Two ranks, all their messages in 8 bits."""
    text_file(f'{WORK}/text.txt', 200000)
    model = open(os.path.join(os.path.dirname(SHARDC), '..', 'examples', 'tiny.shard')).read()
    plan = 'plan {} for Tiny {{ mesh data = 2; place Batch -> data; zero 3; precision f32{} }}\n'
    open(f'{WORK}/gpt.shard', 'w').write(model + plan.format('wide', '')
                                         + plan.format('bytes', TRAVEL[13:] + ' gather = int8'))
    loss = {}
    for name in 'wide', 'bytes':
        run(SHARDC, 'run', '--quick', 'gpt.shard', '--plan', name, '-n', '2', '-D', 'Layers=2', '--set',
            'train.steps=120', '--', 'train', '--data', 'text.txt', '--out', name, '--eval-every', '120',
            '--save-every', '0', cwd=WORK)
        found = [json.loads(l).get('valid_loss') for l in open(f'{WORK}/{name}/metrics.jsonl')]
        loss[name] = [v for v in found if v is not None][-1]
    check(loss['bytes'] < 1.02 * loss['wide'] and loss['wide'] < 3, f'{loss}')
    print(f'a small GPT: {loss["wide"]:.4f}, in 8 bits {loss["bytes"]:.4f}')


gradients()
not_finite()
weights()
traffic()
refusals()
learns()
shutil.rmtree(WORK)
