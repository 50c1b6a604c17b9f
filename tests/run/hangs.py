"""Ranks that die, stop or become slow: a soak.

    python3 hangs.py SHARDC [--kills 40] [--stops 20] [--over local,mpi,nccl]

A small GPT on four ranks over each transport: shared memory, Open MPI if it is installed, NCCL on the stand-in for a
GPU. In turn a rank is killed, or stopped (SIGSTOP), or made slow (stopped three quarters of the time), while the job
trains. A dead rank must be named by the others, a stopped one as stopped, a slow one not at all; a job whose rank goes
on continues. After each, `shardc report` must name the rank and the message it is in. Prints how long it took until the
rank was named.
"""
import os, random, re, shutil, signal, struct, subprocess, sys, time
from common import EXAMPLES, MPI, check, has_mpi, run, text_file, workdir

SHARDC, WORK = os.path.abspath(sys.argv[1]), workdir()
knob = lambda name, otherwise: type(otherwise)(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else otherwise
rng = random.Random(knob('--seed', 1))
RANKS, PATIENCE, SLOW = 4, 60, 8             # seconds
MODEL = open(os.path.join(EXAMPLES, 'tiny.shard')).read().replace('Embed = 96;  Heads = 3', 'Embed = 32;  Heads = 2')
PLAN = '''plan four for Tiny {
  mesh data = 2, tensor = 2
  place Batch -> data
  place Mlp -> tensor
  zero 3 over data
}
'''
COMPILE = {'local': [], 'mpi': ['--comm', 'mpi'], 'nccl': ['--target', 'sm_80', '-D', 'Seq=8']}
TRAIN = ['train', '--data', 'text.txt', '--steps', '10000000', '--out', 'out', '--quiet', '--threads', '1']
ENV = {k: v for k, v in os.environ.items()
       if not k.startswith(('RANK', 'WORLD', 'LOCAL', 'OMPI', 'PMI', 'SLURM', 'MASTER'))}
ENV.update(MPI, SHARDC_PATH=EXAMPLES, NO_COLOR='1')
path = lambda *p: os.path.join(WORK, *p)


def started(way):
    """The launcher of a job that trains, in a group of its own; its output is in the file `said`."""
    shutil.rmtree(path('out'), ignore_errors=True)
    said = open(path('said'), 'w')
    launch = {'local': [SHARDC, 'run', './local', '-n', str(RANKS), '--'],
              'nccl': [SHARDC, 'run', './nccl', '-n', str(RANKS), '--emulate', '--'],
              'mpi': ['mpirun', '--oversubscribe', '-n', str(RANKS), './mpi']}[way]
    p = subprocess.Popen([*launch, *TRAIN], cwd=WORK, env=ENV, stdout=said, stderr=said, process_group=0)
    wait_for(lambda: steps() > 1 and all(map(pid_of, range(RANKS))), 10 * PATIENCE, f'{way}: the job does not train')
    return p


def steps():
    try: return open(path('out', 'metrics.jsonl')).read().count('"loss"')
    except OSError: return 0


def pid_of(rank):
    """The process of a rank by its flight recorder; 0: there is none yet."""
    try: head = open(path('out', f'flight-{rank:05}'), 'rb').read(24)
    except OSError: return 0
    return struct.unpack('<8siiq', head)[3] if len(head) == 24 else 0


def wait_for(what, seconds, otherwise=''):
    """The seconds until what() holds; None: it does not within `seconds`."""
    began = time.time()
    while time.time() - began < seconds:
        if what(): return time.time() - began
        time.sleep(0.01)
    check(not otherwise, f'{otherwise}\n{open(path("said")).read()[-2000:]}')
    return None


def says(pattern): return re.search(pattern, open(path('said'), errors='replace').read())


def reported(rank):
    """Does the report name the rank, and the message that it is in or was in last?"""
    p = subprocess.run([SHARDC, 'report', 'out', '-o', 'page.html'], cwd=WORK, env=ENV, capture_output=True, text=True)
    line = re.search(rf'^  rank {rank} .*(waits in|after) (.*)<--$', p.stdout, re.M)
    return bool(line and re.search(r'#\d+|step|kernel', line[2])), p.stdout + p.stderr


def ended(p, how):
    pids = list(filter(None, map(pid_of, range(RANKS))))
    if how: p.send_signal(how)
    if wait_for(lambda: p.poll() is not None, PATIENCE) is not None: return True
    for pid in [*pids, p.pid]:
        try: os.kill(pid, signal.SIGKILL)
        except OSError: pass
    p.wait()
    return False


def killed(p, rank):
    os.kill(pid_of(rank), signal.SIGKILL)
    took = wait_for(lambda: says(rf'rank {rank} \(.*died|process rank {rank} with PID'), PATIENCE)
    over = ended(p, None)
    return took, reported(rank), over


def stopped(p, rank):
    pid = pid_of(rank)
    os.kill(pid, signal.SIGSTOP)
    took = wait_for(lambda: says(rf'rank {rank} \(.*is stopped'), PATIENCE / 3)
    report = reported(rank)
    os.kill(pid, signal.SIGCONT)
    before = steps()
    on = wait_for(lambda: steps() > before + 1, PATIENCE) is not None
    return took, report, ended(p, signal.SIGTERM) and on and not says('died')


def slowed(p, rank):
    pid, began = pid_of(rank), time.time()
    while time.time() - began < SLOW:
        for how, seconds in (signal.SIGSTOP, 0.15), (signal.SIGCONT, 0.05): os.kill(pid, how), time.sleep(seconds)
    before = steps()
    on = wait_for(lambda: steps() > before + 1, PATIENCE) is not None
    return 0, (True, ''), ended(p, signal.SIGTERM) and on and not says(rf'died|rank {rank} \(.*is stopped')


def main():
    open(path('four.shard'), 'w').write(MODEL + PLAN)
    text_file(path('text.txt'))
    ways = [w for w in knob('--over', 'local,mpi,nccl').split(',') if w != 'mpi' or has_mpi()]
    for way in ways: run(SHARDC, 'compile', 'four.shard', '--plan', 'four', *COMPILE[way], '-o', way, '-q', cwd=WORK)
    cases = [killed] * knob('--kills', 40) + ([stopped] * 3 + [slowed]) * (knob('--stops', 20) // 4)
    wrong, times = [], {}
    for n, how in enumerate(cases):
        way, rank = ways[n % len(ways)] if how is killed else ways[n // 4 % len(ways)], rng.randrange(RANKS)
        p = started(way)
        time.sleep(rng.random())
        took, (named, text), fine = how(p, rank)
        if took is not None: times.setdefault((how.__name__, way), []).append(took)
        if took is None or not named or not fine:
            wrong.append((how.__name__, way))
            print(f'{how.__name__} {way} rank {rank}: took {took}, report {named}, went as it should {fine}\n{text}\n',
                  open(path('said'), errors='replace').read()[-1500:], flush=True)
    for (how, way), t in sorted(times.items()):
        print(f'{how:8} {way:6} {len(t):3}: named after {sorted(t)[len(t) // 2]:.2f} s, at most {max(t):.2f} s')
    check(not wrong, f'{len(wrong)} of {len(cases)}: {wrong}')
    print(f'{len(cases)} ranks were killed, stopped or slowed, and told apart')


if __name__ == '__main__': main()
