"""Messages in flight between processes: python3 flights.py SHARDC [KILLS]

A small GPT over four ranks, ZeRO-3, with gathers one and two layers ahead and messages that overlap the computation,
over local and MPI: losses, weights and states equal those without overlap, bit by bit, also if the communicating
threads sleep for random times; the touched bytes equal the prediction, rings included; the sent bytes are the same. An
MPI that allows only one thread is refused. ZeRO-1 and ZeRO-2 that gather parameters in the forward have the bits of the
gather after the update, also if one run continues the other. Then a rank is killed, or stopped and killed, at a random
instant: the others leave, name it, and no message leaves them waiting.
"""
import json, os, random, re, shutil, signal, subprocess, sys, time
from common import MPI, check, has_mpi, read, run, text_file, workdir

SHARDC, KILLS, folder = os.path.abspath(sys.argv[1]), int((sys.argv + ['4'])[2]), workdir()
MODEL = '''use "gpt2"
variant Small of GPT2 { Pos = 16; Vocab = 256; Embed = 32; Heads = 4; Layers = 4 }
train t for Small {
  size  Seq = 16
  batch 8
  steps 2000
  data  "text.txt" format = bytes
  optim adamw lr = 2e-3
  clip  1.0
}
'''
PLANS = {'off': '', 'ahead': ' prefetch = 2', 'on': ' prefetch = 1 overlap = on'}


def plan(name, words):
    return f'plan {name} for Small {{\n  mesh data = 2, tensor = 2\n  micro 2\n  place Batch -> data\n  place Heads, Mlp, Vocab -> tensor\n  zero 3 over data{words}\n}}\n'


def compile_(name, out, *more): run(SHARDC, 'compile', 'm.shard', '--plan', name, '-o', out, '-q', '--quick', *more,
                                    cwd=folder)


def train(exe, before, steps='6', env={}):
    said = ''.join(run(*before, f'./{exe}', *(['--'] if 'run' in before else []), 'train', '--steps', steps,
                       '--threads', '1', '--out', f'out {exe}', '--check-memory', '--profile',
                       cwd=folder, env=env))
    rows = re.findall(r'^(step|eval) +(\d+) +(\d+) +\d+  (\w+)', said, re.M)
    check(rows and all(r[3] == 'exact' for r in rows), f'{exe}: {rows}')
    check(re.search(r'^axis data .* s, \d+\.\d{3} s waited for$', said, re.M), f'{exe}: not told what was waited for')
    flies = re.search(r'^the thread that communicates took \d+\.\d{3} s of a processor: \d+ MB/s$', said, re.M)
    check(bool(flies) == (exe != 'off'), f'{exe}: what the messages take of a processor')
    told = [json.loads(l) for l in open(f'{folder}/out {exe}/metrics.jsonl')]
    check(all(0 <= r['waited_ms'] <= r['ms'] for r in told) and any(r['waited_ms'] > 0 for r in told), f'{exe}: {told}')
    check(all(r['slowest'] in range(4) and r['slower_ms'] >= 0 for r in told[:-1]), f'{exe}: {told}')
    latest = f'{folder}/out {exe}/latest'
    files = {n: read(f'{latest}/{n}') for n in sorted(os.listdir(latest)) if n.endswith('.safetensors')}
    check(len(files) == 4, f'{exe}: {list(files)}')
    return files, re.findall(r'^axis (\w+) +(\d+) calls +(\d+) elements', said, re.M), {r[0]: int(r[1]) for r in rows}


def same_bits():
    found = {}
    for name in PLANS:
        compile_(name, name)
        found[name] = train(name, (SHARDC, 'run', '-n', '4'))
        shutil.rmtree(f'{folder}/out {name}')
    for name in 'ahead', 'on':                                                        # messages that come at any time
        found[f'{name}, resting'] = train(name, (SHARDC, 'run', '-n', '4'), env={'SHARDC_DEBUG': 'rest'})
        shutil.rmtree(f'{folder}/out {name}')
    if has_mpi():
        compile_('on', 'mpi', '--comm', 'mpi')
        found['mpi'] = train('mpi', ('mpirun', '--oversubscribe', '-n', '4'))
        one_thread()
    files, sent, room = found['off']
    for name, (f, s, r) in found.items():
        check(f == files, f'{name}: other bits than without')
        check(s == sent, f'{name} sends {s}, without {sent}')
        check(name == 'off' or r['step'] > room['step'], f'{name}: {r} bytes, without {room}')
    return len(found)


def in_the_forward():
    """Losses, weights and states are equal after six steps, and after three and three with the other plan."""
    n = 0
    rows = ((1, ' prefetch = 2 overlap = on', ''), (2, ' prefetch = 1 overlap = on', 'precision bf16'),
            (2, ' prefetch = 64KiB', 'recompute h[0..1] keep = none'))
    for zero, words, rest in rows:
        names = [f'whole{n}', f'early{n}']
        with open(f'{folder}/m.shard', 'a') as f:
            for name, more in zip(names, ('', words)):
                f.write(f'plan {name} for Small {{ mesh data = 4; place Batch -> data; zero {zero} over data{more}; '
                        f'{rest} }}\n')
        for name in names: compile_(name, name)
        def six(first, second):
            shutil.rmtree(f'{folder}/out early', ignore_errors=True)
            for exe, *more in (first, '--steps', '3'), (second, '--steps', '6', '--resume'):
                said = ''.join(run(SHARDC, 'run', '-n', '4', f'./{exe}', '--', 'train', '--threads', '1', '--out',
                                   'out early', '--valid', '20%', '--eval-every', '2', '--check-memory', '--dump',
                                   'early.st', *more, cwd=folder))
                check(re.search(r'^step .* exact', said, re.M), f'{exe}: {said}')
            told = read(f'{folder}/out early/metrics.jsonl').decode()
            check('"valid_loss":' in told, 'an evaluation')
            return re.findall(r'"(?:loss|valid_loss|grad_norm)":[^,}]+', told), read(f'{folder}/early.st')
        want = six(names[0], names[0])
        for both in (names[1], names[1]), names, names[::-1]:
            check(six(*both) == want, f'zero {zero}{words}, {both}: other bits than after the update')
        n += 1
    return n


def one_thread():
    open(f'{folder}/one.c', 'w').write('''#include <mpi.h>
int MPI_Init_thread(int *n, char ***a, int want, int *have) {
  int r = PMPI_Init_thread(n, a, want, have);
  return *have = MPI_THREAD_SINGLE, r;
}
''')
    run('mpicc', '-shared', '-fPIC', 'one.c', '-o', 'one.so', cwd=folder)
    p = subprocess.run(['mpirun', '--oversubscribe', '-n', '4', './mpi', 'train', '--steps', '2', '--out', 'one'],
                       cwd=folder, capture_output=True, text=True,
                       env=dict(os.environ, **MPI, LD_PRELOAD='./one.so', NO_COLOR='1'))
    check(p.returncode == 3 and 'error[R0101]: ' in p.stderr and 'MPI allows only one thread' in p.stderr, p.stderr)


def start(job):
    e = {k: v for k, v in os.environ.items() if not k.startswith(('RANK', 'WORLD', 'LOCAL', 'OMPI', 'PMI', 'SLURM'))}
    return [subprocess.Popen(['./on', 'train', '--out', f'k{job}', '--threads', '1'], cwd=folder,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env=dict(e, RANK=str(r), WORLD_SIZE='4', LOCAL_RANK=str(r), LOCAL_WORLD_SIZE='4',
                                      SHARDC_JOB=f'{os.getpid()} {job}', NO_COLOR='1'))
            for r in range(4)]


def kill_one(rng, job):
    ps, victim = start(job), rng.randrange(4)
    while not os.path.exists(f'{folder}/k{job}/metrics.jsonl'): time.sleep(0.01)      # steps have begun
    time.sleep(rng.uniform(0, 0.4))
    if job % 2:
        ps[victim].send_signal(signal.SIGSTOP)                                        # the others come to wait for it
        time.sleep(0.3)
    ps[victim].kill()
    for r, p in enumerate(ps):
        try: err = p.communicate(timeout=1200)[1]
        except subprocess.TimeoutExpired:
            for q in ps: q.kill()
            sys.exit(f'failed: rank {victim} was killed, and rank {r} goes on waiting')
        check(r == victim or (p.returncode == 3 or p.returncode == 1) and f'rank {victim} ' in err,
              f'rank {victim} was killed; rank {r}, exit {p.returncode}, says {err}')


open(f'{folder}/m.shard', 'w').write(MODEL + ''.join(plan(n, w) for n, w in PLANS.items()))
text_file(f'{folder}/text.txt')
n = same_bits() + in_the_forward()
for k in range(KILLS): kill_one(random.Random(k), k)
shutil.rmtree(folder)
print(f'{n} runs with the same bits, {KILLS} kills')
