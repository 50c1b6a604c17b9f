"""Signals and pauses lose no work: a run that any signal asks to stop has a checkpoint when it has ended; a run whose
ranks pause for a while continues. A soak: the short forms are in runtime/e2e.py and runtime/ranks.py.

    python3 stops.py SHARDC [--count 200] [--pauses 40] [--seconds 15]

Ways: each signal to one rank, under `shardc run` (four ranks) and under Open MPI (four ranks); two of them at once;
timeout(1), which signals the process and its group; whoever started the ranks may be gone before they are. Pauses: 1 to
--seconds of one to four ranks at random.
"""
import fcntl, os, random, shutil, signal, subprocess, sys, time
from common import EXAMPLES, MPI, check, has_mpi, run, text_file, workdir

SHARDC, WORK = os.path.abspath(sys.argv[1]), workdir()
knob = lambda name, otherwise: type(otherwise)(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else otherwise
COUNT, PAUSES, SECONDS = knob('--count', 200), knob('--pauses', 40), knob('--seconds', 15.0)
rng = random.Random(knob('--seed', 1))
MODEL = open(os.path.join(EXAMPLES, 'tiny.shard')).read().replace('Embed = 96;  Heads = 3', 'Embed = 32;  Heads = 2')
ENV = {k: v for k, v in os.environ.items()
       if not k.startswith(('RANK', 'WORLD', 'LOCAL', 'OMPI', 'PMI', 'SLURM', 'MASTER'))}
ENV.update(MPI, SHARDC_PATH=EXAMPLES, NO_COLOR='1')
PLAN = 'plan four for Tiny {\n  mesh data = 2, tensor = 2\n  place Batch -> data\n  zero 3\n}\n'
path = lambda *p: os.path.join(WORK, *p)


def compiled():
    open(path('one.shard'), 'w').write(MODEL), open(path('four.shard'), 'w').write(MODEL + PLAN)
    run(SHARDC, 'compile', 'one.shard', '-o', 'one', '-q', cwd=WORK)
    run(SHARDC, 'compile', 'four.shard', '--plan', 'four', '-o', 'four', '-q', cwd=WORK)
    if has_mpi():
        run(SHARDC, 'compile', 'four.shard', '--plan', 'four', '--comm', 'mpi', '-o', 'mpi', '-q', cwd=WORK)


def command(how):
    train = ['train', '--data', 'text.txt', '--steps', '1000000', '--out', 'out', '--quiet']
    return {'one': ['./one', *train], 'run': [SHARDC, 'run', './four', '-n', '4', '--', *train],
            'mpi': ['mpirun', '--oversubscribe', '--mca', 'odls_base_sigkill_timeout', '2', '-n', '4', './mpi',
                    *train]}[how]


def trains():
    try: return os.path.getsize(path('out', 'metrics.jsonl')) > 0
    except OSError: return False


def stopped(how, way):
    """Starts, waits until a step is done and a moment more, stops it; was it saved?"""
    shutil.rmtree(path('out'), ignore_errors=True)
    wait, number = rng.random(), None
    if way == 'timeout':
        p = subprocess.Popen(['timeout', '-s', 'CONT', '1000', *command(how)], cwd=WORK, env=ENV,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             start_new_session=True)
    else:
        p = subprocess.Popen(command(how), cwd=WORK, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             start_new_session=True)
    while p.poll() is None and not trains(): time.sleep(0.01)
    time.sleep(wait)
    if way == 'timeout':
        # what timeout does when its time is up: the process, then the group
        child = int(open(f'/proc/{p.pid}/task/{p.pid}/children').read().split()[0])
        os.kill(child, signal.SIGTERM), os.killpg(p.pid, signal.SIGTERM)
    elif way == 'double':
        p.send_signal(first := rng.choice((signal.SIGTERM, signal.SIGINT, signal.SIGHUP)))
        time.sleep(rng.choice((0, 0.001, 0.02, 0.3)))
        p.send_signal(rng.choice((first, signal.SIGTERM)))
    elif way == 'group': p.send_signal(signal.SIGTERM), os.killpg(p.pid, signal.SIGTERM)
    else: p.send_signal(getattr(signal, way))
    try: p.wait(120)
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        return False
    with open(path('out', '.lock')) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)   # mpirun may be gone before its ranks are
    return any(x.startswith('step-') and os.path.exists(path('out', x, 'state.json')) for x in os.listdir(path('out')))


def soak_signals():
    ways = [('one', w) for w in ('SIGTERM', 'SIGINT', 'SIGUSR1', 'SIGHUP', 'double', 'group', 'timeout')]
    ways += [('run', w) for w in ('SIGTERM', 'SIGINT', 'SIGUSR1', 'SIGHUP', 'double', 'group', 'timeout')]
    if os.path.exists(path('mpi')):
        ways += [('mpi', w) for w in ('SIGUSR1', 'SIGTERM', 'SIGINT', 'SIGHUP', 'double', 'group', 'timeout')]
    lost, done = [], {}
    for i in range(COUNT):
        how = ways[i % len(ways)]
        began = time.time()
        if not stopped(*how): lost.append(how)
        if '-v' in sys.argv: print(i, *how, f'{time.time() - began:.1f} s', flush=True)
        done[how[0]] = done.get(how[0], 0) + 1
    print(f'{COUNT} stops ({", ".join(f"{n} {k}" for k, n in done.items())}): {len(lost)} lost {lost}', flush=True)
    return not lost


def soak_pauses():
    if not PAUSES: return True
    shutil.rmtree(path('out'), ignore_errors=True)
    env = [dict(ENV, RANK=str(r), WORLD_SIZE='4', LOCAL_RANK=str(r), LOCAL_WORLD_SIZE='4',
                SHARDC_JOB=f'stops {os.getpid()}') for r in range(4)]
    ps = [subprocess.Popen(['./four', 'train', '--data', 'text.txt', '--steps', '10000000', '--out', 'out', '--quiet'],
                           cwd=WORK, env=e,
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for e in env]
    while not trains(): time.sleep(0.01)
    for i in range(PAUSES):
        some = rng.sample(range(4), rng.choice((1, 1, 2, 3, 4)))
        for r in some: ps[r].send_signal(signal.SIGSTOP)
        time.sleep(rng.uniform(1, SECONDS))
        for r in some: ps[r].send_signal(signal.SIGCONT)
        time.sleep(rng.random())
        if any(p.poll() is not None for p in ps):
            print(f'pause {i + 1} of ranks {some} ended the job:', [p.communicate()[1].decode()[-300:] for p in ps])
            return False
    ps[0].send_signal(signal.SIGTERM)
    ok = all(p.wait(120) == 75 for p in ps)
    print(f'{PAUSES} pauses of 1 to {SECONDS:.0f} s of one to four ranks: {"0 ended" if ok else "not saved"}',
          flush=True)
    return ok


# as children inherit it; under nohup it would be ignored
signal.signal(signal.SIGHUP, signal.SIG_DFL)
compiled(), text_file(path('text.txt'))
good = [soak_signals(), soak_pauses()]
shutil.rmtree(WORK)
check(all(good), 'something was lost')
