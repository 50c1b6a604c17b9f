"""Adapters with frozen weights: every plan trains as one rank does, in f32 to rounding, and the frozen weights keep
their bits. In bf16 they are stored, checkpointed and exported in 16 bits, rounded as weights files and checkpoints in
f32 are. A rank of `zero 3` keeps only its part, and no plan needs more memory than with all parameters trained. The
test also checks that whole gradients of plans with W0703 are counted as whole.

    python3 frozen.py SHARDC
"""
import glob, json, os, random, shutil, signal, subprocess, sys, time
from common import bf16, check, npy, numbers, read, run, workdir

SHARDC, WORK = os.path.abspath(sys.argv[1]), workdir()
BATCH, SEQ, STEPS, STOP, WORDS = 8, 8, 4, 2, 32
MODEL = f'''use "std"
dims {{ Batch, Seq; Key like Seq; Vocab = {WORDS}; Embed = 16; Heads = 4; Head = 8; Mlp = 32; Rank = 4; Layers = 4 }}
layer Lora[In -> Out](x: [*, In]) -> [*, Out] {{
  param w [In, Out] ~ normal(0.2) @frozen
  param a [In, Rank] ~ normal(0.2)
  param b [Rank, Out] ~ normal(0.2)
  return dot[In](x, w) + 2 * dot[Rank](dot[In](x, a), b)
}}
layer Block(x: [Batch, Seq, Embed]) -> [Batch, Seq, Embed] {{
  param gain [Embed] ~ normal(0.1, mean = 1) @frozen
  param up [Embed, Mlp] ~ normal(0.2) @frozen
  param down [Mlp, Embed] ~ normal(0.2) @frozen
  sub q = Lora[Embed -> Heads, Head]
  sub k = Lora[Embed -> Heads, Head]
  sub v = Lora[Embed -> Heads, Head]
  sub o = Lora[Heads, Head -> Embed]
  n = x * rsqrt(mean[Embed](x^2) + 1e-5) * gain
  x = x + o(attention[Seq -> Key; Head](q(n), k(n), v(n), mask = causal))
  return x + dot[Mlp](silu(dot[Embed](x, up)), down)
}}
model Net {{
  input tokens, labels [Batch, Seq] of Vocab
  param wte [Vocab, Embed] ~ normal(0.5) @frozen
  param head [Embed, Vocab] ~ normal(0.3) @frozen @f32
  stack h [Layers] of Block
  logits = dot[Embed](h(wte[Vocab = tokens]), head)
  output logits
  loss cross_entropy[Vocab](logits, labels, ignore = -100)
}}
train t for Net {{
  size  Seq = {SEQ}
  batch {BATCH}
  steps {STEPS}
  data  columns(tokens = "tokens.npy", labels = "labels.npy") shuffle = off
  optim adamw lr = 1e-2
  clip  1.0
  save  every = {STOP} keep = 20
}}
'''
DATA, MORE = 'place Batch -> data', 'mesh data = 2; place Batch -> data; '
PLANS = {  # name: ranks, lines
    'one': (1, ''),
    'parts': (1, 'micro 2; recompute h.* keep = input; offload optimizer, params -> host'),
    'layers': (1, 'offload params of h[1..2] -> host'),
    'z0': (2, MORE + 'zero 0 over data'), 'z1': (2, MORE + 'zero 1 over data'),
    'z2': (2, MORE + 'zero 2 over data; micro 2'),
    'z3': (2, MORE + 'zero 3 over data; micro 2; recompute h.* keep = input'),
    'buckets': (2, MORE + 'zero 3 over data bucket = 1KiB keep_root = off'),
    'gathered': (2, MORE + 'zero 3 over data keep_gathered = on'),
    'small': (2, MORE + 'zero 3 over data persist = 1KiB'),
    'ahead': (2, MORE + 'zero 3 over data prefetch = 1 overlap = on'),
    'host': (2, MORE + 'zero 3 over data; offload optimizer, grads, params -> host'),
    'tensor': (4, 'mesh data = 2, tensor = 2; place Batch -> data; place Heads, Mlp, Vocab -> tensor; '
               'zero 3 over data'),
    'pipe': (4, 'mesh data = 2, pipe = 2; place Batch -> data; place Layers -> pipe; micro 1; pipeline one_f_one_b; '
             'zero 3 over data'),
    'uneven': (3, 'mesh pipe = 3; place Layers -> pipe; micro 2; pipeline gpipe uneven = on; '
               'offload params of h[0..1] -> host'),
}
WIDE, NARROW = {'h.*.gain', 'head'}, {'wte', 'h.*.up', 'h.*.down'} | {f'h.*.{n}.w' for n in 'qkvo'}


def write(precision='', frozen=' @frozen'):
    text = MODEL.replace(' @frozen', frozen)
    for name, (_, lines) in PLANS.items():
        lines = lines.replace('; ', '\n  ')
        text += f'plan {name} for Net {{\n  {lines}\n  {precision}\n}}\n'
    open(f'{WORK}/m.shard', 'w').write(text)


def data():
    r = random.Random(5)
    for name in 'tokens', 'labels':
        npy(f'{WORK}/{name}.npy', '<i4', (STEPS * BATCH, SEQ), [r.randrange(WORDS) for _ in range(STEPS * BATCH * SEQ)])


def tensors(path): return numbers(path, 'F32', 'BF16')


def compiled(name): run(SHARDC, 'compile', 'm.shard', '--plan', name, '-o', name, '-q', '--quick', cwd=WORK)


def train(name, *more, out=None):
    """Losses and tensors at the end, and the output."""
    out, ranks = out or f'out.{name}', PLANS[name][0]
    if '--resume' not in more: shutil.rmtree(f'{WORK}/{out}', ignore_errors=True)
    command = [SHARDC, 'run', *(['-n', str(ranks)] if ranks > 1 else []), f'./{name}', '--', 'train', '--out', out]
    said = run(*command, '--dump', f'{name}.st', '--threads', '1', *more, cwd=WORK)[1]
    told = [l for l in map(json.loads, open(f'{WORK}/{out}/metrics.jsonl')) if 'loss' in l]
    return [l['loss'] for l in told], tensors(f'{WORK}/{name}.st'), said


def far(a, b): return max(abs(x - y) for x, y in zip(a, b, strict=True))


def bytes_of(name):
    said = json.loads(run(SHARDC, 'plan', 'm.shard', '--plan', name, '--json', cwd=WORK)[0])
    return max(sum(c['bytes'][k] + c['host'].get(k, 0) for k in ('weights', 'gradients', 'optimizer'))
               for c in said['classes']), max(c['bytes']['weights'] for c in said['classes'])


def alike():
    """f32: all plans train as one rank does; frozen weights are unchanged, bit by bit."""
    write()
    compiled('one')
    _, first, _ = train('one', '--steps', '0')
    want, one, _ = train('one')
    check(all(one[n] == first[n] for n in WIDE | NARROW) and one['h.*.q.a'] != first['h.*.q.a'], 'one: what moved')
    for name in list(PLANS)[1:]:
        compiled(name)
        got, held, _ = train(name)
        check(far(got, want) < 1e-6 * want[0], f'{name}: losses {got}, of one rank {want}')
        for n in WIDE | NARROW: check(held[n] == first[n], f'{name}: {n} is frozen and has other bits')
        for n in set(first) - WIDE - NARROW:
            if n.count('.') <= 3 and n in held and n.startswith('h.') and n[-2:] in ('.a', '.b'):
                check(far(held[n][1], one[n][1]) < 1e-4, f'{name}: {n} by {far(held[n][1], one[n][1])}')
    return first


def narrow(first):
    """bf16: 16 bits in memory and files, except where something reads f32."""
    write('precision bf16')
    compiled('one')
    want, one, _ = train('one')
    for n in WIDE: check(one[n] == first[n], f'bf16: {n} is {one[n][0]} and should be as in f32')
    for n in NARROW:
        check(one[n][0] == 'BF16' and one[n][1] == tuple(map(bf16, first[n][1])), f'bf16: {n} is not rounded once')
    for name in list(PLANS)[1:]:
        compiled(name)
        got, held, _ = train(name)
        check(far(got, want) < 2e-2 * want[0], f'{name}, bf16: losses {got}, of one rank {want}')
        for n in WIDE | NARROW: check(held[n] == one[n], f'{name}, bf16: {n} is frozen and has other bits')


def written_once(name):
    """Files of frozen parameters are one file under several names, but a resumed process writes its own."""
    train(name, '--save-every', '1', '--steps', '3')
    train(name, '--resume', '--save-every', '1', '--keep', '1')
    step, = glob.glob(f'{WORK}/out.{name}/step-*')
    train(name, '--save-every', '1', out='each')
    for rank in range(PLANS[name][0]):
        of = lambda folder, kind: f'{folder}/{kind}-{rank:05d}.safetensors'
        steps = sorted(glob.glob(f'{WORK}/each/step-*'))
        check(len(steps) == STEPS and len({os.stat(of(s, 'frozen')).st_ino for s in steps}) == 1, f'{name}: copies')
        check(len({os.stat(of(s, 'rank')).st_ino for s in steps}) == STEPS, f'{name}: trained tensors in linked files')
        check(read(of(step, 'frozen')) == read(of(steps[0], 'frozen')), f'{name}: other bits after a resume')
        for s in steps: check(not (WIDE | NARROW) & {n.split(':')[0] for n in tensors(of(s, 'rank'))}, f'{name}: both')
    files = [f['name'] for f in json.loads(read(f'{step}/state.json'))['files']]
    check(sorted(files) == sorted(os.path.basename(f) for f in glob.glob(f'{step}/*.safetensors')), f'{name}: {files}')


def replaced(name):
    """While a run is stopped, somebody replaces the frozen parameters of its newest checkpoint: later ones have the
    bytes that their sums are of."""
    out = f'{WORK}/long'
    job = subprocess.Popen(['./' + name, 'train', '--out', out, '--save-every', '1', '--keep', '9', '--steps', '99999',
                            '--threads', '1'], cwd=WORK, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    newest = lambda: max([0] + [int(s[-6:]) for s in glob.glob(f'{out}/step-*')])
    frozen = lambda step: f'{out}/step-{step:06d}/frozen-00000.safetensors'
    while newest() < 2 and job.poll() is None: time.sleep(0.001)
    os.kill(job.pid, signal.SIGSTOP)
    os.waitpid(job.pid, os.WUNTRACED)
    last = newest()
    whole = read(frozen(last))
    open(f'{WORK}/other', 'wb').write(whole[:-1] + bytes([whole[-1] ^ 1]))
    os.replace(f'{WORK}/other', frozen(last))
    os.kill(job.pid, signal.SIGCONT)
    while newest() < last + 3 and job.poll() is None: time.sleep(0.001)
    job.terminate()
    check(job.wait() == 75 and newest() >= last + 3, f'{job.returncode} at {newest()} after {last}')
    later = [n for n in range(last + 1, newest() + 1) if os.path.exists(frozen(n))]
    check(later and all(read(frozen(n)) == whole for n in later), f'{later}: other bytes')


def files(first):
    """Checkpoints of either precision, and weights files."""
    for name in 'one', 'z3':  # bf16, compiled above: a resumed run has the bits of one that went on
        _, whole, _ = train(name)
        train(name, '--steps', str(STOP))
        check(train(name, '--resume')[1] == whole, f'{name}: other bits after a resume')
        saved = glob.glob(f'{WORK}/out.{name}/step-*/*.safetensors')
        check(all(tensors(f)[n][0] == 'BF16' for f in saved for n in NARROW & set(tensors(f))), f'{name}: in f32')
        written_once(name)
    run('./one', 'export', '--resume=out.one', '--out', 'exported', cwd=WORK)
    exported = {k: v for f in glob.glob(f'{WORK}/exported/*.safetensors') for k, v in tensors(f).items()}
    check(exported['wte'][0] == 'BF16' and exported['head'][0] == 'F32', f'exported {exported.keys()}')
    train('z3', '--steps', str(STOP), out='out.wide')
    write()
    for name in 'one', 'z3': compiled(name)
    _, held, said = train('one', '--resume', out='out.wide')
    check('keep the 16 bits' in said and all(held[n][0] == 'F32' and held[n][1] == tuple(map(bf16, first[n][1]))
                                             for n in NARROW), f'from bf16: {said}')
    ask = 'eval', '--data', 'tokens=tokens.npy,labels=labels.npy', '--valid', '50%', '--json'
    for out in 'out.wide', 'out.one':  # of three runs, in f32 and bf16: parameters alone, from any of their folders
        step = max(glob.glob(f'{WORK}/{out}/step-*'))
        for name in 'one', 'z3':
            ranks = [SHARDC, 'run', *(['-n', '2'] if name == 'z3' else []), f'./{name}', '--']
            found = [json.loads(run(*ranks, *ask, *more, cwd=WORK)[0])['loss']
                     for more in ([f'--resume={step}'], ['--init', step], ['--init', out])]
            check(found[0] == found[1] == found[2], f'{name}, --init from {out}: {found}')
    _, said = run('./one', 'train', '--init', f'{step}/rank-00000.safetensors', '--out', 'none', cwd=WORK, expect=4)
    check('R0303' in said and f'one file of a checkpoint: --init {step} reads' in said, said)
    replaced('one')
    train('one', '--steps', str(STOP), out='out.narrow')
    run('./one', 'export', '--resume=out.narrow', '--out', 'wide', cwd=WORK)
    write('precision bf16')
    for name in 'one', 'z3': compiled(name)
    for more in ['--resume'], ['--init', 'wide']:
        if more[0] == '--init': shutil.rmtree(f'{WORK}/out.narrow')
        _, held, said = train('z3', *more, out='out.narrow')
        check('16 bits' not in said and all(held[n][0] == 'BF16' and held[n][1] == tuple(map(bf16, first[n][1]))
                                            for n in NARROW), f'from f32, {more}: {said}')


def whole():
    """What `zero` leaves whole, as W0703 says, has its gradients among the gradients and not among the buffers."""
    write('', '')
    said, err = run(SHARDC, 'plan', 'm.shard', '--plan', 'z3', '--json', '--set', 'debug.gradients=on', cwd=WORK)
    kinds = json.loads(said)['classes'][0]['bytes']
    check('W0703' in err and kinds['gradients'] == kinds['weights'] and kinds['buffers'] < kinds['weights'] / 100,
          f'{kinds}: {err}')


RULED = """use "std"
dims { Batch; Embed = 8; Out = 4 }
model M {
  input x [Batch, Embed] f32
  input y [Batch] of Out
  param average [Embed, Out] = 0
  param count [Out] = 0
  param w [Embed, Out] ~ normal(0.5)
  update average = 0.99 * average + 0.01 * w
  update count = count + 1
  loss cross_entropy[Out](dot[Embed](x, w), y)
}
train t for M { batch 8; steps 2; data columns(x = "x.npy", y = "y.npy"); optim sgd lr = 0.1 momentum = 0.9 }
plan p for M { mesh data = 2; place Batch -> data; zero 3 }
"""


def ruled():
    """W0703 names a state with a rule that has the size of a parameter, and no smaller one."""
    open(f'{WORK}/r.shard', 'w').write(RULED)
    err = run(SHARDC, 'plan', 'r.shard', cwd=WORK)[1]
    check('W0703' in err and '`average`' in err and 'r.shard:6:9' in err and 'more' not in err, err)


def counted():
    """Weights of a rank, compared with those of a model whose parameters are all trained."""
    for precision in '', 'precision bf16':
        write(precision)
        frozen = {name: bytes_of(name) for name in PLANS}
        check(frozen['z3'][1] < 0.55 * frozen['one'][1], f'{precision}: {frozen["z3"]}, one rank {frozen["one"]}')
        said = run(SHARDC, 'check', 'm.shard', cwd=WORK)[1]
        check('W0703' not in said, said)
        write(precision, '')
        for name in PLANS:
            trained = bytes_of(name)
            check(frozen[name][0] < trained[0], f'{precision} {name}: {frozen[name]}, all trained {trained}')


data()
counted()
whole()
ruled()
first = alike()
narrow(first)
files(first)
shutil.rmtree(WORK)
print(f'{len(PLANS)} plans with frozen weights, in f32 and in bf16, as one rank')
