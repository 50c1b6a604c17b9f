"""1-bit Adam against the algorithm in plain Python: warm-up, freeze, signs with errors of workers and owners; one rank
with four workers and plans of many kinds (ranks, also over MPI, a tensor axis, parts of the batch) give the same
numbers, in 16 bits the same from the freeze on; so does `zero 1`, and checkpoints go from one to the other; a resumed
run gives the same bits.

    python3 onebit.py SHARDC
"""
import array, json, math, os, random, re, shutil, sys
from common import check, has_mpi, numbers, read, run, workdir
from small_net import BATCH, COUNT, FEAT, HIDDEN, NET, PARAMS, gradient

SHARDC, WORK = os.path.abspath(sys.argv[1]), workdir()
RUN = SHARDC, 'run', '--quick'
WORKERS, BLOCK, STEPS, FREEZE, FIRST, RENEW = 4, 8, 50, 10, 5, 2
LR, BETA1, BETA2, EPS, DECAY = 1e-2, 0.9, 0.999, 1e-8, 0.1
EVEN_LR = 3e-3
MODEL = NET + f'''train t for Net {{
  batch {BATCH}
  steps {STEPS}
  data  columns(x = "x.f32", y = "y.f32") shuffle = off
  optim onebit_adam lr = {LR} weight_decay = {DECAY} workers = {WORKERS} block = {BLOCK} freeze = {FREEZE}
  save  every = 5 keep = 20
}}
plan one for Net {{ }}
plan two for Net {{ mesh data = 2; place Batch -> data }}
plan four for Net {{ mesh data = 4; place Batch -> data }}
plan eight for Net {{ mesh data = 8; place Batch -> data }}
plan parts for Net {{ micro 8 }}
plan tensor for Net {{ mesh data = 2, tensor = 2; place Batch -> data; place Hidden -> tensor; micro 2 }}
plan nodes for Net {{ mesh data = 2, node = 2; place Batch -> node, data; micro 1 }}
plan bf16 for Net {{ precision bf16; micro 8 }}
plan bf16s for Net {{ mesh data = 4; place Batch -> data; precision bf16; micro 2 }}
plan f16 for Net {{ precision f16 }}
plan f16s for Net {{ mesh data = 4; place Batch -> data; precision f16 }}
plan parted for Net {{ mesh data = 4; place Batch -> data; zero 1 }}
plan parted2 for Net {{ mesh data = 2; place Batch -> data; zero 1 }}
plan parted_tensor for Net {{ mesh data = 2, tensor = 2; place Batch -> data; place Hidden -> tensor; micro 2; zero 1 }}
plan parted_nodes for Net {{ mesh data = 2, node = 2; place Batch -> node, data; micro 1; zero 1 over data }}
plan parted_bf16 for Net {{ mesh data = 4; place Batch -> data; precision bf16; micro 2; zero 1 }}
'''
# that differ from `one` in rounding alone
PLANS = ('parts', 1), ('tensor', 4), ('nodes', 4), ('parted_tensor', 4), ('parted_nodes', 4)
NARROW = ('bf16', 'bf16s'), ('f16', 'f16s')        # whose sums are rounded to 16 bits in warm-up


def written(name, x, y):
    """The contents of files of f32."""
    for end, values in ('x', sum(x, [])), ('y', y):
        array.array('f', values).tofile(open(f'{WORK}/{name}{end}.f32', 'wb'))
    back = lambda v: array.array('f', v).tolist()
    return [back(row) for row in x], back(y)


def data():
    r = random.Random(3)
    x = [[r.gauss(0, 1) if k else 0.0 for k in range(FEAT)] for _ in range(4 * BATCH)]  # feature 0: never a gradient
    y = [abs(row[1]) - row[2] * 0.5 + 0.1 * row[3] for row in x]
    return written('', x, y)


def tensors(path): return {k: v for k, (_, v) in numbers(path, 'F32', 'I32', 'U8').items()}


SIZE = -(-COUNT // (WORKERS * BLOCK)) * WORKERS * BLOCK  # with padding


# ---- the algorithm ----
def compressed(y, live):
    """C(y), block by block."""
    out = []
    for at in range(0, len(y), BLOCK):
        part, alive = y[at:at + BLOCK], live[at:at + BLOCK]
        scale = math.sqrt(sum(a * a for a in part) / max(sum(alive), 1))
        out += [scale if a >= 0 else -scale for a in part]
    return out


def adamw(s, t, parts):
    """Update for all steps since the last renewal: after the freeze, errors keep their values, without a unit."""
    g = [sum(c) for c in zip(*parts)]
    before = units(s)
    stays = BETA2 ** (t - (t - 1 if s['renewed'] is None else s['renewed']))
    s['m'] = [m + (d - m) * (1 - BETA1) for m, d in zip(s['m'], g)]
    s['v'] = [stays * v + (1 - stays) * d * d for v, d in zip(s['v'], g)]
    s['root'], s['renewed'] = math.sqrt(1 - BETA2 ** t), t
    turn = lambda errors: [e * a / b for e, a, b in zip(errors, before, units(s))]
    s['error'], s['owner'] = [turn(e) for e in s['error']], turn(s['owner'])


def units(s): return [math.sqrt(v) / s['root'] + EPS for v in s['v']]


def renewals(often):
    """Steps after the freeze that renew second moments: `often` in a row, as many 2 steps apart, and so on."""
    at, apart, found = FREEZE, 1, set()
    while often and at < STEPS:
        found |= {at + apart * (k + 1) for k in range(often)}
        at, apart = at + apart * often, apart * 2
    return found


def frozen(s, parts):
    live = [v > 0 for v in s['v']]
    masked = lambda y, on: [a if l else 0.0 for a, l in zip(y, on)]
    unit = units(s)
    most = math.sqrt(BLOCK)
    sent = []
    for i, g in enumerate(parts):
        new = [max(-most, min(most, (1 - BETA1) * WORKERS * d / u)) for d, u in zip(g, unit)]
        y = masked([BETA1 * m / u + d + e for m, u, d, e in zip(s['m'], unit, new, s['error'][i])], live)
        c = compressed(y, live)
        s['error'][i] = masked([a - b for a, b in zip(y, c)], live)
        sent.append(c)
    z = masked([sum(c) / WORKERS + e for c, e in zip(zip(*sent), s['owner'])], live)
    c = compressed(z, live)
    s['owner'] = masked([a - b for a, b in zip(z, c)], live)
    s['m'] = masked([a * u for a, u in zip(c, unit)], live)


def step(s, t, x, y, lr=LR, often=0):
    """Step number t, from 1."""
    at = (t - 1) * BATCH % len(x)
    each = BATCH // WORKERS
    parts = [gradient(s['p'], x[i:i + each], y[i:i + each], SIZE) for i in range(at, at + BATCH, each)]
    if t > FREEZE and t not in renewals(often): frozen(s, parts)
    else: adamw(s, t, parts)
    rate = lr / (1 - BETA1 ** t)
    decays = lambda i: not FEAT * HIDDEN <= i < (FEAT + 1) * HIDDEN
    s['p'] = [p * (1 - lr * DECAY if decays(i) else 1) - rate * m / (math.sqrt(v) / s['root'] + EPS)
              for i, (p, m, v) in enumerate(zip(s['p'], s['m'], s['v']))]


def state(t):
    line = lambda end: sum((list(t[name + end]) for name, _ in PARAMS), []) + [0.0] * (SIZE - COUNT)
    errors, m, v, root = list(t['onebit.error']), line('.m'), line('.v'), t['onebit.root'][0]
    if t['onebit.begun'][0]: # from then on bits and scales, in units of the step
        bits, scale = t['onebit.momentum'], t['onebit.momentum.scale']
        sign = lambda i: 1 if bits[i // 8] >> i % 8 & 1 else -1
        m = [sign(i) * scale[i // BLOCK] * (math.sqrt(x) / root + EPS) if x > 0 else 0.0 for i, x in enumerate(v)]
    s = {'p': line(''), 'm': m, 'v': v, 'root': root, 'renewed': t.get('onebit.renewed', (None,))[0]}
    in_units = lambda e: [a / u if u > EPS else a for a, u in zip(e, units(s))]   # between renewals and the next step
    same = list if t['onebit.begun'][0] else in_units
    s['error'] = [same(errors[i * SIZE:(i + 1) * SIZE]) for i in range(WORKERS)]
    s['owner'] = same(t['onebit.error.of.owner'])
    return s


def differ(a, b):
    """Errors and momenta, which grow to several steps' sizes, as a share of the largest of them."""
    apart = lambda x, y: max(abs(u - v) for u, v in zip(x, y)) / max(1, *map(abs, x))
    near = max(abs(x - y) for k in ('p', 'v') for x, y in zip(a[k], b[k]))
    return max(near, abs(a['root'] - b['root']), apart(a['m'], b['m']),
               apart(sum(a['error'], []), sum(b['error'], [])), apart(a['owner'], b['owner']))


# ---- runs ----
def checkpoint(out, t, ranks=1):
    """What all ranks hold of it: errors are rank after rank."""
    files = [tensors(f'{WORK}/{out}/step-{t:06d}/rank-{r:05d}.safetensors') for r in range(ranks)]
    whole, sizes = {}, dict(PARAMS)
    for f in files:
        for k, v in f.items():
            name = k.split(':')[0]  # a member of a group is stored in pieces
            missing = name.startswith('onebit.error') or len(whole.get(name, ())) < sizes.get(name.split('.')[0], 1)
            whole[name] = whole.get(name, ()) + v if missing else whole[name]
    return state(whole)


def dump(path):
    return {k: v for k, v in tensors(f'{WORK}/{path}').items() if not k.startswith(('norm2.of.', 'out.'))}


def apart(a, b):
    check(a.keys() == b.keys() and 'onebit.error' in a, f'{set(a) ^ set(b)}')
    size = lambda k: max(1, *map(abs, a[k]))          # rounding of a norm of 1000 is 6e-5
    return max(max(abs(x - y) for x, y in zip(a[k], b[k])) / size(k) for k in a if a[k])


def plans(train):
    """Across the freeze."""
    for plan, n in (('one', 1), *PLANS):
        train(plan, n, '--out', f'{plan}.plan', '--steps', '20', '--save-every', '0', '--dump', f'{plan}.st')
        far = apart(dump(f'{plan}.st'), dump('one.st'))
        check(far < 1e-6, f'plan {plan}: {far:.3g} from one rank')
        print(f'plan {plan}: {far:.2g} from one rank')


def even_data():
    """Features near one size and of one sign, a target that samples agree about: magnitudes of a block are alike then,
    what C(y) takes from y is near a projection, and rounding does not grow. Other seeds are as near (four tried)."""
    r = random.Random(3)
    x = [[sign * (1 + 0.2 * r.gauss(0, 1)) for sign in (0, 0.25, -0.25, -0.25, -0.25, 0.25)] for _ in range(4 * BATCH)]
    return written('even_', x, [1 + 0.2 * r.gauss(0, 1) for _ in x])


def golden(often=0):
    """All states over 50 steps across the freeze, never reset to those of the run: ranks, MPI, stand-in GPUs."""
    x, y = even_data()
    even = f'even{often or ""}'
    source = MODEL.replace('"x.f32"', '"even_x.f32"').replace('"y.f32"', '"even_y.f32"').replace('(0.5)', '(0.3)')
    source = source.replace(f'lr = {LR}', f'lr = {EVEN_LR}')
    if often: source = source.replace(f'freeze = {FREEZE}', f'freeze = {FREEZE} renew = {often}')
    open(f'{WORK}/{even}.shard', 'w').write(source)
    shard = lambda plan, n, *how: run(*RUN, f'{even}.shard', '--plan', plan, '-n', str(n), *how, '--', 'train',
                                      '--out', f'{even}.{plan}{"".join(how)}', cwd=WORK)
    outs = []
    for plan, n, *how in ('one', 1), ('four', 4), ('four', 4, '--emulate'), ('parted', 4), ('parted', 4, '--emulate'):
        shard(plan, n, *how)
        outs.append((f'{even}.{plan}{"".join(how)}', n))
    if mpi_is_here():
        run(SHARDC, 'compile', f'{even}.shard', '--plan', 'four', '--comm', 'mpi', '-o', f'{even}.mpi', '-q', '--quick',
            cwd=WORK)
        run('mpirun', '--oversubscribe', '-n', '4', f'./{even}.mpi', 'train', '--out', f'{even}.of.mpi', cwd=WORK)
        outs.append((f'{even}.of.mpi', 4))
    s, far = checkpoint(f'{even}.one', FIRST), dict.fromkeys(outs, 0)
    for t in range(FIRST + 1, STEPS + 1):
        step(s, t, x, y, EVEN_LR, often)
        for out in outs if t % 5 == 0 else ():
            far[out] = max(far[out], differ(s, checkpoint(out[0], t, out[1])))
    for (out, _), apart in far.items():
        print(f'{out}: {apart:.2g} from the algorithm in {STEPS - FIRST} steps')
        # each renewal rounds momentum and errors into other units, twice
        check(apart < (3e-6 if often else 1e-6), f'{out}: {apart:.3g} from the algorithm')


# Settings that frozen steps cannot obey, and other optimizers: the word is refused, with the reason or an edit.
REFUSED = (('plan.zero=2', 'E0602', '1:11', 'keeps no whole gradient'),
           ('plan.zero=3', 'E0602', '1:11', 'keeps no whole gradient'),
           ('plan.precision.gather=int8', 'E0602', '1:23', '`zero 0` gathers no weights'),
           ('plan.micro=1', 'E0703', '1:12', 'a multiple of 2'),
           ('train.optim.workers=0', 'E0602', '1:21', 'at least 1'),
           ('train.optim.workers=3', 'E0703', '1:21', 'divides the batch'),
           ('train.optim.block=12', 'E0602', '1:19', '`block = 16`'),
           (f'train.optim.freeze={STEPS}', 'E0602', '1:20', 'nothing would be compressed'),
           ('train.optim.freeze=0', 'E0602', '1:20', 'above 0 and below 100%'),
           (f'train.optim.renew={STEPS - FREEZE}', 'E0602', '1:19', 'nothing would be compressed'),
           ('train.optim.renew=0', 'E0602', '1:19', 'at least 1'),
           ('train.optim.ratio=0.9', 'E0602', '1:19', 'is for `freeze = auto`'),
           ('train.optim.freeze=auto', 'E0602', '1:20', 'none of'),
           ('train.optim=onebit_lamb', 'E0602', '1:13', 'instead `onebit_adam` or `lamb`'),
           ('train.optim=OneBitAdam', 'E0602', '1:13', 'write `onebit_adam`'))


def refusals():
    for word, code, at, why in REFUSED:
        _, said = run(SHARDC, 'compile', 'net.shard', '--plan', 'two', '--set', word, '-o', 'no.exe', expect=1,
                      cwd=WORK)
        check(f'[{code}]' in said and f'--set:{at}' in said and why in said, f'{word}: no {code} at {at} in\n{said}')


def counts(plan, often=0):
    """The byte counts of a short run equal those of `plan` for both entries and for the messages between them."""
    steps, renewing, begins = (12, 3, 3) if often else (5, 0, 1)     # steps 3, 5, 9
    wide = ('net.shard', '--plan', plan, '-D', 'Hidden=4096')
    more = [f'optim.renew={often}'] * (often > 0)
    for setting in 'optim.block=2048', f'steps={steps}', 'optim.freeze=2', *more: wide += '--set', f'train.{setting}'
    planned = json.loads(run(SHARDC, 'plan', *wide, '--json', cwd=WORK)[0])
    whole = lambda p: p['communication'][0]['bytes_per_step']
    said = ''.join(run(*RUN, *wide, '-n', '4', '--', 'train', '--out', f'{plan}.wide{often}', '--profile',
                       cwd=WORK))
    counted = re.search(r'^axis data +\d+ calls +\d+ elements +(\d+) bytes', said, re.M)
    warm, frozen = whole(planned), whole(planned['frozen'])
    want = (2 + renewing) * warm + (steps - 2 - renewing) * frozen + begins * planned['bytes_at_freeze']
    if often: want += (begins - 1) * planned['bytes_at_renewal']
    check(counted and int(counted[1]) == want, f'{want} planned\n{said}')
    mean = planned['bytes_per_step_on_average']
    check(abs(mean * steps - want) < 1e-3, f'{mean} on average')
    return planned, warm, frozen


def traffic():
    """A frozen step sends 30 times less than f32 gradients, 15 times less than 16-bit gradients, also with `zero 1`."""
    (whole, warm, frozen), (parted, _, of_parts) = counts('four'), counts('parted')
    check(30 * frozen <= warm and 15 * frozen <= warm / 2, f'{frozen} frozen, {warm} before')
    check(of_parts == frozen, f'zero 1: {of_parts} frozen, not {frozen}')
    print(f'a frozen step sends {warm / frozen:.2f} times less than f32 gradients, counted')
    saved = [p['classes'][0]['bytes']['optimizer'] for p in (whole, parted)]
    params = 8 * 4096  # 4 - 8/N bytes of each
    check(saved[0] - saved[1] == parted['zero_saves'] == 2 * params, f'{saved} of moments')
    check(parted['bytes_at_freeze'] == 8 * params and not whole['bytes_at_freeze'], 'both moments are gathered once')


def buckets():
    """Messages in buckets of blocks that overlap the kernels of the next blocks: the same bits as in one message, also
    in 16 bits and with `zero 1`; on (stand-in) GPUs equal up to rounding, since a kernel's tiles follow the bucket
    size. Either plan resumes from the other's checkpoints, and both send the same bytes."""
    cut = ('--set', 'plan.zero.overlap=on', '--set', 'plan.zero.bucket=1.5KiB')  # 3, 3, and 2 of 8 blocks
    def trained(plan, n, out, *more, steps=10, go_on=()):
        run(*RUN, 'net.shard', '--plan', plan, '-n', str(n), '-D', 'Hidden=4096', '--set',
            'train.optim.block=1024', '--set', 'train.optim.freeze=5', *more, '--', 'train', '--out', out, '--steps',
            str(steps), '--dump', f'{out}.st', *go_on, cwd=WORK)
        return dump(f'{out}.st')
    for plan, n in ('four', 4), ('two', 2), ('parted', 4), ('tensor', 4), ('nodes', 4), ('bf16s', 4), ('f16s', 4):
        whole = trained(plan, n, f'{plan}.whole')
        check(trained(plan, n, f'{plan}.cut', *cut) == whole, f'{plan}: other bits in buckets')
    check(trained('four', 4, 'four.cut', steps=15, go_on=['--resume']) ==
          trained('four', 4, 'four.whole', *cut, steps=15, go_on=['--resume']), 'other bits from checkpoints')
    gpus = [trained('four', 4, f'four.gpu{len(sets)}', '--emulate', *sets) for sets in ((), cut)]
    far = apart(*gpus)
    check(far < 1e-6, f'stand-in GPUs: {far:.3g} apart in buckets')
    planned = [json.loads(run(SHARDC, 'plan', 'net.shard', '--plan', 'four', '-D', 'Hidden=4096', '--set',
                              'train.optim.block=1024', *sets, '--json', cwd=WORK)[0])['frozen']['communication']
               for sets in ((), cut)]
    sent = [p[0]['bytes_per_step'] for p in planned]
    of_kinds = [{c['kind']: c for c in p[0]['collectives']} for p in planned]
    calls = [{kind: c['calls'] for kind, c in of.items()} for of in of_kinds]
    check(all(c['largest_message_bytes'] <= 1536 for c in of_kinds[1].values()), f'{of_kinds[1]}')
    check(all(calls[1][kind] == 3 * calls[0][kind] for kind in ('all_to_all', 'all_gather')), f'{calls} calls')
    check(sent[0] == sent[1], f'{sent} bytes')
    print('in buckets: the same bits')


def steady():
    """`freeze = auto`: the first step at which two norms of second moments are close; four ranks find the same step,
    and a resumed run gives the same bits."""
    def trained(plan, n, out, sets, *more):
        sets = [x for s in sets for x in ('--set', f'train.optim.{s}')]
        _, said = run(*RUN, 'net.shard', '--plan', plan, '-n', str(n), *sets, '--', 'train', '--out', out,
                      *more, cwd=WORK)
        return re.findall('frozen after (\\d+) steps', said)
    trained('one', 1, 'late', ['freeze=49'])
    norm = {t: sum(checkpoint('late', t)['v']) / (1 - BETA2 ** t) for t in range(5, STEPS, 5)}
    close = {t: min(norm[t], norm[t - 5]) / max(norm[t], norm[t - 5]) for t in range(10, 45, 5)}
    ratio = max(close.values()) - 1e-4
    want = min(t for t in close if close[t] >= ratio)
    sets = ['freeze=auto', 'window=5', f'ratio={ratio:.6f}']
    for plan, n in ('one', 1), ('four', 4), ('parted', 4):
        found = trained(plan, n, f'{plan}.auto', sets)
        check(found == [str(want)], f'plan {plan}: frozen after {found}, {want} wanted of {close}')
    print(f'freeze = auto: {want}, ratios {min(close.values()):.3f} to {max(close.values()):.3f}')
    last = f'step-{STEPS:06d}/rank-00003.safetensors'
    for t in want - 5, want:
        shutil.copytree(f'{WORK}/four.auto/step-{t:06d}', f'{WORK}/auto.{t}/step-{t:06d}')
        trained('four', 4, f'auto.{t}', sets, '--resume')
        check(read(f'{WORK}/auto.{t}/{last}') == read(f'{WORK}/four.auto/{last}'), f'freeze = auto, resumed at {t}')


def other_ranks():
    """Of eight workers on four ranks, errors go to two and to eight ranks; their sums are kept."""
    def trained(plan, n, out, *more):
        run(*RUN, 'net.shard', '--plan', plan, '-n', str(n), '--set', 'train.optim.workers=8', '--', 'train',
            '--out', out, *more, '--save-every', '5', '--dump', f'{out}.st', cwd=WORK)
        return dump(f'{out}.st')
    before = trained('four', 4, 'of.four', '--steps', '20')
    after = trained('four', 4, 'of.four', '--resume', '--steps', '25')
    for plan, n in ('two', 2), ('eight', 8):
        shutil.copytree(f'{WORK}/of.four/step-000020', f'{WORK}/{plan}.on/step-000020')
        have = trained(plan, n, f'{plan}.on', '--resume', '--steps', '25')
        far = apart(have, after)
        check(far < 1e-6 and apart(before, after) > 1e-3, f'{n} ranks go on from four: {far:.3g}')
        print(f'{n} ranks go on from four: {far:.2g}')


def parted(train):
    """`zero 1`: the bits of the same plan without it; each plan resumes from the other's checkpoints, also with other
    ranks, from before, at and after the freeze."""
    for plan, n in ('parted', 4), ('parted2', 2): train(plan, n)
    for t in range(FIRST, STEPS + 1, 5):
        check(differ(checkpoint('parted', t, 4), checkpoint('four', t, 4)) == 0, f'zero 1: other bits at {t}')
    for t in FIRST, FREEZE, FREEZE + 5:
        for a, b, n in ('four', 'parted', 4), ('parted', 'four', 4), ('parted', 'parted2', 2), ('parted2', 'parted', 4):
            out = f'{a}.as.{b}.{t}'
            shutil.copytree(f'{WORK}/{a}/step-{t:06d}', f'{WORK}/{out}/step-{t:06d}')
            train(b, n, '--out', out, '--resume', '--steps', str(t + 5))
            far = differ(checkpoint(out, t + 5, n), checkpoint(a, t + 5, {'parted2': 2}.get(a, 4)))
            check(far == 0 if a != 'parted2' != b else far < 1e-6, f'{a} goes on as {b} from {t}: {far:.3g}')
    train('parted_bf16', 4, '--out', 'parted_bf16', '--steps', '15', '--dump', 'parted_bf16.st')
    train('bf16s', 4, '--out', 'bf16s.all', '--steps', '15', '--dump', 'bf16s.all.st')
    check(apart(dump('parted_bf16.st'), dump('bf16s.all.st')) == 0, 'zero 1 with bf16: other numbers')
    print('zero 1: the same bits, also from checkpoints without it and on other ranks')


def other_freeze(train):
    """A run that resumes from a checkpoint after the freeze cannot leave the freeze, and constant second moments must
    stay constant; one from before the freeze may freeze at once."""
    for i, (t, other, fine) in enumerate([(FREEZE + 5, 'freeze=30', False), (FREEZE + 5, 'renew=4', False),
                                          (FREEZE - 5, 'freeze=3', True)]):
        out = f'other.{i}'
        shutil.copytree(f'{WORK}/one/step-{t:06d}', f'{WORK}/{out}/step-{t:06d}')
        said = run(*RUN, 'net.shard', '--plan', 'one', '--set', f'train.optim.{other}', '--', 'train',
                   '--out', out, '--resume', '--steps', str(t + 5), expect=0 if fine else 4, cwd=WORK)
        check(fine or 'R0503' in said[1], f'{said}')
    check(checkpoint(out, FREEZE)['m'] != checkpoint('one', FREEZE)['m'], 'frozen before')


def renewed(train, bits):
    """Second moments that are renewed after the freeze: the algorithm, checkpoints of frozen steps and of others, and
    the bytes that a run sends."""
    golden(RENEW)
    times = [t for t in range(FREEZE + 5, STEPS, 5)]
    check({t in renewals(RENEW) for t in times} == {True, False}, 'checkpoints behind both kinds of steps')
    for plan, n in ('one', 1), ('parted', 4):
        for t in times[:4]:
            out, last = f'even{RENEW}.{plan}', f'step-{STEPS:06d}/rank-{n - 1:05d}.safetensors'
            shutil.copytree(f'{WORK}/{out}/step-{t:06d}', f'{WORK}/{out}.{t}/step-{t:06d}')
            run(*RUN, f'even{RENEW}.shard', '--plan', plan, '-n', str(n), '--', 'train', '--out', f'{out}.{t}',
                '--resume', cwd=WORK)
            same = read(f'{WORK}/{out}.{t}/{last}') == read(f'{WORK}/{out}/{last}')
            check(same, f'{out}, resumed at {t}: other bits')
    for plan in 'four', 'parted': counts(plan, 1)


def mpi_is_here():
    here = has_mpi()
    if not here: print('MPI is passed over')
    return here


def over_mpi():
    if not mpi_is_here(): return
    run(SHARDC, 'compile', 'net.shard', '--plan', 'four', '--comm', 'mpi', '-o', 'four.mpi', '-q', '--quick', cwd=WORK)
    run('mpirun', '--oversubscribe', '-n', '4', './four.mpi', 'train', '--out', 'mpi', '--steps', '20', cwd=WORK)
    far = max(differ(checkpoint('mpi', t, 4), checkpoint('one', t)) for t in range(FIRST, 21, 5))
    check(far < 1e-6, f'four ranks over MPI: {far:.3g} from one rank')
    print(f'four ranks over MPI: {far:.2g} from one rank')


def narrow(train):
    """From the freeze on, after the same warm-up."""
    for one, four in NARROW:
        train(one, 1, '--out', one, '--steps', str(FREEZE))
        for plan, n in (one, 1), (four, 4):
            again = f'{plan}.frozen'
            shutil.copytree(f'{WORK}/{one}/step-{FREEZE:06d}', f'{WORK}/{again}/step-{FREEZE:06d}')
            train(plan, n, '--out', again, '--resume', '--steps', str(FREEZE + 10), '--dump', f'{plan}.st')
        far = apart(dump(f'{four}.st'), dump(f'{one}.st'))
        check(far < 1e-6, f'plan {four}: {far:.3g} from one rank')
        print(f'plan {four}: {far:.2g} from one rank')


def near_freeze(train, bits):
    """Runs resumed one step before and one step after the freeze."""
    train('one', 1, '--out', 'near', '--steps', str(FREEZE + 1), '--save-every', '1')
    for t in FREEZE - 1, FREEZE + 1:
        shutil.copytree(f'{WORK}/near/step-{t:06d}', f'{WORK}/near.{t}/step-{t:06d}')
        train('one', 1, '--out', f'near.{t}', '--resume')
        check(bits(f'near.{t}', 0) == bits('one', 0), f'plan one, resumed at {t}: other bits')


def main():
    x, y = data()
    open(f'{WORK}/net.shard', 'w').write(MODEL)
    train = lambda plan, n, *more: run(*RUN, 'net.shard', '--plan', plan, '-n', str(n), '--', 'train',
                                       *(more or ('--out', plan)), cwd=WORK)
    train('one', 1)
    s, afresh, worst, far = checkpoint('one', FIRST), checkpoint('one', FIRST), 0, 0
    for t in range(FIRST + 1, STEPS + 1):
        step(s, t, x, y), step(afresh, t, x, y)
        if t % 5 == 0:
            have = checkpoint('one', t)
            far, worst, afresh = max(far, differ(s, have)), max(worst, differ(afresh, have)), have
            # The algorithm in doubles, its states alone rounded to f32 once a step, is 9e-7 away after 45 of them:
            # errors are fed back, and rounding with them, of blocks as uneven as these. golden() has even ones.
            check(worst < 1e-6 and far < 1e-5, f'step {t}: {worst:.3g} from the algorithm in 5 steps, {far:.3g} in all')
    print(f'one rank, {WORKERS} workers: {worst:.2g} from the algorithm in 5 steps, {far:.2g} in {STEPS - FIRST}')
    check(all(m == 0 for m in have['m'][:HIDDEN]), 'what never had a gradient has no momentum')
    sizes = {f"{abs(m) / (math.sqrt(v) / have['root'] + EPS):.4g}" for m, v in zip(have['m'], have['v']) if v > 0}
    check(len(sizes) < COUNT // 6, 'momenta of a block have one size in units of the step')
    for plan, n in ('two', 2), ('four', 4):
        train(plan, n)
        far = max(differ(checkpoint(plan, t, n), checkpoint('one', t)) for t in range(FIRST, STEPS + 1, 5))
        check(far < 3e-6, f'plan {plan}: {far:.3g} from one rank')  # rounding of 50 steps, as above
        print(f'plan {plan}: {far:.2g} from one rank')
    run(*RUN, 'net.shard', '--plan', 'four', '-n', '4', '--emulate', '--', 'train', '--out', 'gpu',
        '--steps', '15', cwd=WORK)
    far = max(differ(checkpoint('gpu', t, 4), checkpoint('one', t)) for t in (5, 10, 15))
    check(far < 1e-6, f'four stand-in GPUs: {far:.3g} from one rank')
    print(f'four stand-in GPUs: {far:.2g} from one rank')
    bits = lambda out, r: read(f'{WORK}/{out}/step-{STEPS:06d}/rank-{r:05d}.safetensors')
    for plan, n, times in ('one', 1, range(FIRST, STEPS, 5)), ('four', 4, (FIRST, FREEZE, FREEZE + 5)):
        for t in times:
            again = f'{plan}.from.{t}'
            shutil.copytree(f'{WORK}/{plan}/step-{t:06d}', f'{WORK}/{again}/step-{t:06d}')
            train(plan, n, '--out', again, '--resume')
            check(all(bits(again, r) == bits(plan, r) for r in range(n)), f'plan {plan}, resumed at {t}: other bits')
    near_freeze(train, bits)
    golden()
    renewed(train, bits)
    refusals()
    parted(train)
    other_freeze(train)
    steady()
    traffic()
    buckets()
    plans(train)
    over_mpi()
    narrow(train)
    other_ranks()
    shutil.rmtree(WORK)


main()
