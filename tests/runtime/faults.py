"""Every call that writes fails once, fails from then on, or is the last thing the process does; bytes of every file of
a checkpoint are changed. A run goes on bitwise, or is refused by the file's name.

    python3 faults.py TOY FAILING.SO [EVERY [RANDOM]]      every EVERY-th call (7); RANDOM places per file, and random
    kills (6)

By hand 2026-11-20: 140 full disks, 70 kills before a call, 100 at random instants, 400 changed bytes: all good.
"""
import os, random, shutil, subprocess, sys, tempfile, time

TOY, FAILING = (os.path.abspath(x) for x in sys.argv[1:3])
EVERY, RANDOM = (int(x) for x in (sys.argv[3:] + ['7', '6'][len(sys.argv) - 3:]))
D = tempfile.mkdtemp(prefix='shardc faults ')
FAILING = shutil.copy(FAILING, tempfile.mkdtemp(prefix='shardc-failing-'))  # LD_PRELOAD takes no spaces
STEPS = ['--steps', '12', '--save-every', '4', '--eval-every', '4']
rng = random.Random(5)


def go(out, *more, **env):
    return subprocess.run([TOY, 'train', '--data', 'text.txt', '--valid', '10%', '--out', out, *more], cwd=D,
                          capture_output=True,
                          text=True, errors='replace', env=dict(os.environ, NO_COLOR='1', **env))


def check(ok, what, p):
    if not ok: sys.exit(f'failed: {what}: exit {p.returncode}\n{p.stdout}{p.stderr}')


def newest(out):
    step = sorted(x for x in os.listdir(f'{D}/{out}') if x.startswith('step-'))[-1]
    return step, open(f'{D}/{out}/{step}/rank-00000.safetensors', 'rb').read()


def halves(out): return [x for x in os.listdir(f'{D}/{out}') if x.startswith(('.new', '.old')) or x.endswith('.tmp')]


def resumed(steps, want, what):
    p = go('x', '--resume', *steps)
    check(p.returncode == 0 and newest('x') == want and not halves('x'), what, p)


def fresh(out): shutil.rmtree(f'{D}/{out}', ignore_errors=True)


def full_disk(calls, want):
    for k in range(1, calls + 1, EVERY):
        for every in {}, {'FAIL_ALL': '1'}:
            fresh('x')
            p = go('x', *STEPS, LD_PRELOAD=FAILING, FAIL_AT=str(k), **every)
            told = p.returncode == 1 and 'No space left' in p.stderr and 'error[R040' in p.stderr
            check(told or p.returncode == 0, f'call {k}', p)
            check(every or not os.path.exists(f'{D}/x') or not halves('x'), f'call {k}: nothing half-written', p)
            resumed(STEPS, want, f'after call {k} of a full disk')


def kills(calls, want):
    for k in range(1, calls + 1, EVERY):
        fresh('x')
        p = go('x', *STEPS, LD_PRELOAD=FAILING, KILL_AT=str(k))
        check(p.returncode == -9, f'kill in front of call {k}', p)
        resumed(STEPS, want, f'after a kill in front of call {k}')


def random_kills():
    many = ['--steps', '60', '--save-every', '1', '--eval-every', '30']
    start = time.time()
    check(go('many', *many).returncode == 0, 'many', go('many', '--resume', *many))
    span = time.time() - start
    for k in range(RANDOM):
        fresh('x')
        p = subprocess.Popen([TOY, 'train', '--data', 'text.txt', '--valid', '10%', '--out', 'x', *many], cwd=D,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.random() * span)
        p.kill(), p.wait()
        resumed(many, newest('many'), f'random kill {k}')


def damage():
    check(go('d', '--steps', '8', '--save-every', '4').returncode == 0, 'd', go('d'))
    last = f'{D}/d/step-000008'
    for name in sorted(os.listdir(last)):
        good = open(f'{last}/{name}', 'rb').read()
        for k in range(RANDOM):
            bad, at = bytearray(good), rng.randrange(len(good))
            bad[at] ^= 1 << rng.randrange(8)
            open(f'{last}/{name}', 'wb').write(bad)
            fresh('y')
            p = go('y', '--resume=d/step-000008', '--steps', '9')
            check(p.returncode == 4 and name in p.stderr and not os.path.exists(f'{D}/y'), f'{name}: byte {at}', p)
        p = go('y', '--resume=d', '--steps', '8')
        check(p.returncode == 0 and 'resumed at step 4' in p.stderr and 'warning[R0502]' in p.stderr, 'the one before',
              p)
        open(f'{last}/{name}', 'wb').write(good)


def begin(*more, **env):
    return subprocess.Popen([TOY, 'train', '--data', 'text.txt', *more], cwd=D, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True,
                            env=dict(os.environ, NO_COLOR='1', LD_PRELOAD=FAILING, **env))


def until(there):
    while not there(): time.sleep(0.01)


def locks():
    """Where there are no locks, a file keeps others out; a process that is gone does not."""
    until_trains = lambda out: until(lambda: os.path.exists(f'{D}/{out}/metrics.jsonl')
                                     and os.path.getsize(f'{D}/{out}/metrics.jsonl'))
    p = begin('--out', 'held', '--steps', '100000', NO_LOCKS='1', TOY_SLOW='10')
    until_trains('held')
    other = go('held', '--resume', LD_PRELOAD=FAILING, NO_LOCKS='1')
    check(other.returncode == 1 and 'R0404' in other.stderr and f'pid {p.pid} on ' in other.stderr, 'kept out', other)
    p.kill()
    check('this file system has no locks' in p.communicate()[1], 'it is said', other)
    other = go('held', '--resume', '--steps', '3', LD_PRELOAD=FAILING, NO_LOCKS='1')
    check(other.returncode == 0 and not os.path.exists(f'{D}/held/.lock-held'), 'of one that is gone', other)
    open(f'{D}/held/.lock-held', 'w').write('1 another-host\n')
    other = go('held', '--resume', '--steps', '4', LD_PRELOAD=FAILING, NO_LOCKS='1')
    check(other.returncode == 1 and 'pid 1 on another-host' in other.stderr and 'remove .lock-held' in other.stderr,
          'of another host', other)


def between():
    """A run that comes and goes between another's look at a directory and its lock; two runs without a name."""
    p = begin('--out', 'b', '--steps', '5', WAITS=f'{D}/b.go')
    until(lambda: os.path.exists(f'{D}/b.go.here'))
    a = go('b', '--steps', '9')
    check(a.returncode == 0, 'the one between', a)
    want = newest('b'), open(f'{D}/b/metrics.jsonl').read()
    open(f'{D}/b.go', 'w').close()
    err = p.communicate()[1]
    check(p.returncode == 2 and 'R0402' in err and (newest('b'), open(f'{D}/b/metrics.jsonl').read()) == want,
          'looked at again: ' + err, a)
    os.makedirs(f'{D}/runs')
    p = begin('--steps', '5', WAITS=f'{D}/c.go')
    until(lambda: os.path.exists(f'{D}/c.go.here'))
    q = begin('--steps', '5')
    check('runs/Toy-001' in q.communicate()[0], 'the first number', a)
    open(f'{D}/c.go', 'w').close()
    check('runs/Toy-002' in p.communicate()[0] and p.returncode == 0, 'the next number', a)


def moved():
    """A run directory that is moved while a checkpoint is written, before its folder exists: the checkpoint appears at
    the new path."""
    os.makedirs(f'{D}/m')
    p = begin('--out', 'm', '--steps', '5', WAITS=f'{D}/m.go')
    until(lambda: os.path.exists(f'{D}/m.go.here'))
    check(os.path.exists(f'{D}/m/metrics.jsonl'), 'it waits at the checkpoint', p)
    os.rename(f'{D}/m', f'{D}/n'), open(f'{D}/m.go', 'w').close()
    err = p.communicate()[1]
    check(p.returncode == 0 and 'the run directory m is now' in err and newest('n')[0] == 'step-000005'
          and not os.path.exists(f'{D}/m'), err, p)


def replaced():
    """A checkpoint that is written again: exchanged, or one after the other where a file system cannot; where that was
    broken off, the old one is put back."""
    p = go('e', *STEPS)
    want = newest('e')
    for env in {}, dict(LD_PRELOAD=FAILING, NO_EXCHANGE='1'):
        before = os.stat(f'{D}/e/{want[0]}').st_ino
        p = go('e', f'--resume=e/{want[0]}', '--max-time', '0', '--steps', '20', **env)
        check(p.returncode == 0 and newest('e') == want and os.stat(f'{D}/e/{want[0]}').st_ino != before
              and not [x for x in os.listdir(f'{D}/e') if x.startswith('.was')], 'written again', p)
    for k in range(1, 60):
        p = go('e', f'--resume=e/{want[0]}', '--max-time', '0', '--steps', '20', LD_PRELOAD=FAILING, NO_EXCHANGE='1',
               KILL_AT=str(k))
        q = go('e', '--resume', '--steps', want[0][-2:])
        check(q.returncode == 0 and newest('e') == want and not halves('e'), f'killed in front of call {k}', q)
        if p.returncode == 0: break
    os.rename(f'{D}/e/{want[0]}', f'{D}/e/.was-{want[0]}')
    p = go('e', '--resume', '--steps', want[0][-2:])
    check(newest('e') == want and f'{want[0]} is put back' in p.stderr, 'put back', p)


open(f'{D}/text.txt', 'w').write('the quick brown fox jumps over the lazy dog. ' * 900)
p = go('want', *STEPS, LD_PRELOAD=FAILING, COUNT=f'{D}/count')
check(p.returncode == 0, 'without faults', p)
calls = int(open(f'{D}/count').read())
full_disk(calls, newest('want')), kills(calls, newest('want')), random_kills(), damage(), locks(), between(), moved()
replaced()
print(f'{calls} calls, every {EVERY}: full disks and kills; {RANDOM} random kills and changed bytes per file')
shutil.rmtree(D), shutil.rmtree(os.path.dirname(FAILING))
