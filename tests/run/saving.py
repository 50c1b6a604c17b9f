"""Saving while training goes on (`save async = on`): python3 saving.py SHARDC FAILING.SO [KILLS]

The files of every checkpoint are, byte for byte, those of synchronous saves by the same executable, under plans of one
to four ranks, on processors and on the stand-in GPU; snapshot and files have exactly the planned bytes. A plan that
does not fit for its snapshot alone is told to save synchronously. A disk that is slow (FAILING.SO) makes saves last for
several steps. Then, while a save is in flight: the process is killed (KILLS times, 8, half of them with four ranks of
which one is killed), the disk fills, a signal comes, the run directory is moved. Every checkpoint with a final name
equals that of the unbroken run, metrics reach at least as far, and the resumed run ends with the same bytes.
"""
import glob, hashlib, json, os, random, shutil, signal, struct, subprocess, sys, time
from common import check, mend, npy, preload, read, run, text_file, workdir

SHARDC, KILLS, D = os.path.abspath(sys.argv[1]), int((sys.argv + ['8'])[3]), workdir()
FAILING, rng = preload(os.path.abspath(sys.argv[2])), random.Random(7)
MODEL = '''use "gpt2"
variant Small of GPT2 { Pos = 16; Vocab = 256; Embed = 32; Heads = 4; Layers = 4 }
train t for Small {
  size  Seq = 16
  batch 8
  steps 24
  data  "text.txt" format = bytes
  %s
  save every = 4 keep = 100 async = on
}
plan p for Small { %s }
'''
ADAM, DATA = 'optim adamw lr = 2e-3; clip 1.0', 'mesh data = 2; place Batch -> data; '
FOUR = 'mesh data = 2, tensor = 2; micro 2; place Batch -> data; place Heads, Mlp, Vocab -> tensor else Seq; '
PIPE = 'mesh data = 2, pipe = 2; micro 1; place Batch -> data; place Layers -> pipe; '
CASES = {  # ranks, train, plan
    'one': (1, ADAM, 'micro 8'),
    'host': (1, ADAM, 'micro 2; offload optimizer, params -> host'),
    'half': (1, ADAM + '; delay after = 2', 'precision bf16; offload optimizer -> host'),
    'scaled': (1, 'optim sgd lr = 1e-2; eval every = 6 batches = 2', 'precision f16'),
    'small': (2, 'optim adamw lr = 2e-3 states = bf16', DATA + 'zero 0 over data'),
    'signs': (2, 'optim onebit_adam lr = 1e-3 freeze = 6 weight_decay = 0', DATA),
    'z1': (2, ADAM, DATA + 'zero 1 over data; precision bf16'),
    'z2': (2, ADAM, DATA + 'zero 2 over data; micro 2; offload optimizer -> host'),
    'heads': (2, ADAM, 'mesh tensor = 2; place Heads, Mlp, Vocab -> tensor else Seq'),
    'z3': (4, ADAM, FOUR + 'zero 3 over data'),
    'stages': (4, ADAM, PIPE + 'pipeline one_f_one_b; zero 1 over data'),
    'frozen': (1, ADAM, ''), 'frozen_z3': (2, ADAM, DATA + 'zero 3 over data'),
    'gpu': (1, ADAM, 'micro 2'), 'gpu_host': (1, ADAM, 'micro 2; offload optimizer, params -> host'),
    'gpu_two': (2, ADAM, DATA + 'zero 2 over data; offload optimizer -> host'),
    'chunks': (4, 'optim sgd lr = 1e-2 momentum = 0.9', PIPE + 'pipeline interleaved; offload optimizer -> host'),
}
# Frozen weights are in files of their own, which later checkpoints link to.
ADAPTERS = '''use "std"
dims { Batch; In = 16; Rank = 4; Layers = 4 }
layer L(x: [Batch, In]) -> [Batch, In] {
  param w [In] ~ normal(0.2) @frozen
  sub down = Linear[In -> Rank]
  sub up = Linear[Rank -> In]
  return x * w + up(down(x)) }
model M { input x, y [Batch, In]
  stack h [Layers] of L
  loss mean[*]((h(x) - y)^2) }
train t for M { batch 8; steps 24; data columns(x = "x.npy", y = "x.npy"); %s; save every = 4 keep = 100 async = on }
plan p for M { %s }
'''


def options(name): return ['--target', 'sm_80'] if 'gpu' in name else []


def go(name, out, *more, expect=0, slow=0, **env):
    command = [f'./{name}', 'train', '--out', out, '--quiet', '--threads', '1', *more]
    if CASES[name][0] > 1 or options(name):
        stand_in = ['--emulate'] if options(name) else []
        command = [SHARDC, 'run', command[0], '-n', str(CASES[name][0]), *stand_in, '--', *command[1:]]
    if slow: env = dict(env, LD_PRELOAD=FAILING, SLOW=str(slow))
    return run(*command, cwd=D, expect=expect, env=env)


def array(path, rows=64, columns=16):
    npy(path, '<f4', (rows, columns), [rng.uniform(-1, 1) for _ in range(rows * columns)])


def steps_of(out): return sorted(os.path.basename(p) for p in glob.glob(f'{D}/{out}/step-*'))


def sums(folder):
    return {os.path.basename(p): hashlib.sha256(read(p)).hexdigest() for p in glob.glob(f'{folder}/*')}


def told(out): return [json.loads(l)['step'] for l in open(f'{D}/{out}/metrics.jsonl') if l.endswith('\n')]


def whole(out, like, what):
    """Each checkpoint equals that of the unbroken run; metrics reach it; one exists if a second was begun."""
    steps = steps_of(out)
    for step in steps: check(sums(f'{D}/{out}/{step}') == sums(f'{D}/{like}/{step}'), f'{what}: {step} differs')
    lines = told(out) if os.path.exists(f'{D}/{out}/metrics.jsonl') else []
    if steps: check(max(lines) >= int(steps[-1][5:]), f'{what}: {steps[-1]}, but metrics end at {max(lines)}')
    if lines and max(lines) > 8: check(steps, f'{what}: {max(lines)} steps and no checkpoint')


def ends_alike(name, out, what):
    go(name, out, '--resume')
    whole(out, name + '.off', what)
    check(steps_of(out)[-1] == 'step-000024', f'{what}: {steps_of(out)}')
    check(not glob.glob(f'{D}/{out}/.new*') and not glob.glob(f'{D}/{out}/.old*'), f'{what}: remains')


def tensor_bytes(path):
    with open(path, 'rb') as f: return os.path.getsize(path) - 8 - struct.unpack('<Q', f.read(8))[0]


def equal(name):
    ranks, train, plan = CASES[name]
    open(f'{D}/m.shard', 'w').write((ADAPTERS if 'frozen' in name else MODEL) % (train, plan))
    run(SHARDC, 'compile', 'm.shard', '--plan', 'p', '-o', name, '--quick', '-q', *options(name), cwd=D)
    said = go(name, name + '.on', '--check-memory', slow=2)[1]
    go(name, name + '.off', '--set', 'train.save.async=off')
    steps = steps_of(name + '.on')
    check(steps == steps_of(name + '.off') and len(steps) == 6, f'{name}: {steps}')
    whole(name + '.on', name + '.off', name)
    rows = [line.split() for line in said.splitlines() if line.startswith('snapshot')]
    planned = run(SHARDC, 'plan', 'm.shard', '--plan', 'p', '--json', *options(name), cwd=D)[0]
    planned = json.loads(planned.splitlines()[0])
    held = sum(tensor_bytes(p) for p in glob.glob(f'{D}/{name}.on/step-000024/rank-*.safetensors'))
    check(held == planned['checkpoint']['bytes'], f'{name}: {held} bytes in files, {planned["checkpoint"]} planned')
    planned = max(c['host']['snapshot'] for c in planned['classes'])
    links = {os.stat(p).st_nlink for p in glob.glob(f'{D}/{name}.on/step-*/frozen-*')}
    check(links == ({6} if 'frozen' in name else set()), f'{name}: links of frozen files: {links}')
    check(len(rows) == 1 and rows[0][-1] == 'exact', f'{name}: {said}')
    check(ranks > 2 or int(rows[0][1]) == planned, f'{name}: {rows} of {planned}')


def started(name, out, **env):
    """Starts the processes of a case, one for each rank, with a slow disk."""
    ranks = CASES[name][0]
    e = {k: v for k, v in os.environ.items() if not k.startswith(('RANK', 'WORLD', 'LOCAL', 'OMPI', 'PMI', 'SLURM'))}
    e.update(LD_PRELOAD=FAILING, SLOW='4', NO_COLOR='1', SHARDC_JOB=f'{os.getpid()} {out}', **env)
    return [subprocess.Popen([f'./{name}', 'train', '--out', out, '--quiet', '--threads', '1'], cwd=D,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                             env=dict(e, RANK=str(r), WORLD_SIZE=str(ranks), LOCAL_RANK=str(r),
                                      LOCAL_WORLD_SIZE=str(ranks)))
            for r in range(ranks)]


def ended(ps): return [(p.communicate(timeout=600)[1].decode(errors='replace'), p.returncode) for p in ps]


def saving(out, ps):
    """Waits until a save after the first is in flight."""
    while not [p for p in glob.glob(f'{D}/{out}/.new-step-*') if not p.endswith('04')]:
        check(ps[0].poll() is None, f'{out}: it ended before a save was seen')
        time.sleep(0.001)


def kills(name, n):
    began = time.time()
    said = ended(started(name, f'span-{name}'))
    check({s for _, s in said} == {0}, f'the unbroken run: {said}')
    span = time.time() - began
    for k in range(n):
        out, ps = f'kill{k}', started(name, f'kill{k}')
        time.sleep(rng.uniform(0, span))
        rng.choice(ps).kill()
        ended(ps)
        whole(out, name + '.off', f'{name}: kill {k}')
        ends_alike(name, out, f'{name}: after kill {k}')
        shutil.rmtree(f'{D}/{out}')
    return span


def full_disk(name, calls):
    for k in calls:
        out = f'full{k}'
        said = ended(started(name, out, FAIL_AT=str(k), FAIL_ALL='1'))
        check(all(s == 1 for _, s in said) and any('R040' in t and 'No space left' in t for t, _ in said),
              f'{name}: call {k} of a full disk: {said}')
        whole(out, name + '.off', f'{name}: call {k} of a full disk')
        ends_alike(name, out, f'{name}: after call {k} of a full disk')


def stopped(name):
    ps = started(name, 'stop')
    saving('stop', ps)
    for p in ps: p.send_signal(signal.SIGTERM)
    check({s for _, s in ended(ps)} == {75}, f'{name}: a signal during a save')
    last = steps_of('stop')[-1]
    check(int(last[5:]) == max(told('stop')), f'{name}: stopped at {max(told("stop"))}, saved {last}')
    go(name, 'stop', '--resume')
    same = sums(f'{D}/stop/step-000024') == sums(f'{D}/{name}.off/step-000024')
    check(same, f'{name}: other bytes after a signal')


def moved(name):
    ps = started(name, 'here')
    saving('here', ps)
    os.rename(f'{D}/here', f'{D}/there')
    check({s for _, s in ended(ps)} == {0} and not os.path.exists(f'{D}/here'), f'{name}: moved')
    whole('there', name + '.off', f'{name}: moved')
    check(len(steps_of('there')) == 6, f'{name}: moved: {steps_of("there")}')


def tight(target, machine, host):
    """A machine whose memory lacks half of the snapshot. The edit makes saves synchronous, and the plan fits."""
    text = MODEL % (ADAM, 'on box; micro 8') + 'machine box { node arch = %s %s }\n'
    words = ['plan', 'm.shard', '--plan', 'p', *([] if host else ['--target', target])]
    open(f'{D}/m.shard', 'w').write(text % (target, machine % '16GiB'))
    plan = json.loads(run(SHARDC, *words, '--json', cwd=D)[0].splitlines()[0])
    bytes_ = plan['classes'][0]
    need = bytes_['host']['total'] + (bytes_['host_pinned']['total'] if host else bytes_['bytes']['total'])
    memory = f'{(need - bytes_["host"]["snapshot"] // 2) // 1024}KiB'
    open(f'{D}/m.shard', 'w').write(text % (target, machine % memory))
    said = run(SHARDC, *words, cwd=D, expect=3)[1]
    check('E0801' in said and '`save async = off` would need' in said, f'{target}: {said}')
    edits = mend(f'{D}/m.shard', SHARDC, *words)
    check([e['text'] for e in edits] == ['off'] and 'async = off' in open(f'{D}/m.shard').read(), f'{target}: {edits}')


text_file(f'{D}/text.txt')
array(f'{D}/x.npy')
tight('x86_64_v3', 'memory = %s', False)
tight('sm_80', 'memory = 40GiB gpus = 1\n  host memory = %s', True)
for case in CASES: equal(case)
spans = [kills('one', KILLS - KILLS // 2), kills('z3', KILLS // 2)]
for case in 'one', 'z3':
    full_disk(case, (60, 100) if case == 'one' else (40,))
    stopped(case)
    moved(case)
    for out in 'stop', 'there': shutil.rmtree(f'{D}/{out}')
    for out in glob.glob(f'{D}/full*'): shutil.rmtree(out)
shutil.rmtree(D)
print(f'{len(CASES)} plans with the same bytes; {KILLS} kills in runs of {spans[0]:.1f} s and {spans[1]:.1f} s, 0 lost')
