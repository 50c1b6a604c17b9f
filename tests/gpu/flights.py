"""Messages in flight between GPUs: python3 flights.py SHARDC [STEPS]

Three models over two ranks, ZeRO-3 and one of them under ZeRO-2, with gathers one layer ahead and messages that
overlap the computation, on the stand-in: losses, norms, weights and states equal those of the plan without overlap,
bit by bit, after STEPS (8) steps in every tried order of graphs and streams. They also stay equal with timed waits of
kernels (SHARDC_DEBUG=waited), which are printed. Then the test removes each wait of the generated program in turn: some
order must show a difference. Finally a rank is killed at a random instant: the other one ends and names it.
"""
import json, os, random, re, shutil, signal, subprocess, sys, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'run'))
from common import check, read, workdir
from many import PATH, Bench, plan_text, variant

SHARDC, STEPS, folder = os.path.abspath(sys.argv[1]), int((sys.argv + ['8'])[2]), workdir()
bench = Bench(SHARDC, folder, STEPS)
LATE = {'SHARDC_EMULATE_LATE': '1'}


def call(*command, env=None):
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, errors='replace', timeout=1200,
                          env={**os.environ, 'SHARDC_PATH': PATH, **(env or {})})


def compile_(model, name, flight, zero, env=None):
    row = {'model': model, 'zero': zero, 'data': 2, 'tensor': 1, 'seq': 0, 'parts': 1, 'recompute': 0,
           'precision': 'f32', 'clip': 1, 'bucket': '1KiB', 'flight': flight}
    open(f'{folder}/{name}.shard', 'w').write(variant(model) + plan_text(row, 'p'))
    return call(SHARDC, 'compile', f'{name}.shard', '--plan', 'p', '--target', 'sm_80', '-q', '-o', name, env=env)


def train(exe, steps, order=None, graph=True):
    """What metrics and tensors are after that; None: it failed."""
    env = {} if order is None else {'SHARDC_EMULATE_ORDER': str(order), **({} if graph else LATE)}
    shutil.rmtree(f'{folder}/out', ignore_errors=True)
    p = call(SHARDC, 'run', '-n', '2', '--emulate', f'./{exe}', '--', 'train', '--steps', str(steps), '--out', 'out',
             '--save-every', '0',
             '--dump', 'out.st', *([] if graph else ['--no-graph']), env=env)
    if p.returncode: return None
    rows = [re.findall(r'"(step|loss|grad_norm)":([^,}]+)', l) for l in open(f'{folder}/out/metrics.jsonl')]
    return rows, read(f'{folder}/out.st')


def timed(name, want):
    """In graphs, whose events every run records anew, and call by call."""
    for flight in 0, 1:
        for graph in True, False:
            os.environ['SHARDC_DEBUG'] = 'waited'
            found = train(f'{name}{flight}', STEPS, 0, graph)
            del os.environ['SHARDC_DEBUG']
            check(found == want, f'{name}{flight}, timed: other bits')
            rows = [json.loads(l) for l in open(f'{folder}/out/metrics.jsonl')]
            check(len(rows) == STEPS and all(0 < r['waited_ms'] < r['ms'] for r in rows), f'{name}{flight}: {rows}')
    check(train(f'{name}1', 2) and 'waited_ms' not in open(f'{folder}/out/metrics.jsonl').read(), 'timed unasked')


def same_bits(model, some, zero=3):
    name = f'{model}_zero{zero}_'
    for flight in 0, 1: check(compile_(model, f'{name}{flight}', flight, zero).returncode == 0, f'{model} is compiled')
    want, n = train(f'{name}0', STEPS), 1
    check(want, f'{model} trains without flights')
    for order, graph in some:
        check(train(f'{name}1', STEPS, order, graph) == want,
              f'{model}, zero {zero}, order {order}{"" if graph else ", no graph"}: other bits than without')
        n += 1
    if model == 'bert': timed(name, want)
    return n


CC = '''#!/usr/bin/env python3
import os, re, sys
n = int(os.environ['LEAVE_OUT'])
if 'host.c' in sys.argv:
    text = open('host.c').read()
    of = lambda m: re.findall(r'^static void (\\w+)', text[:m.start()], re.M)[-1]
    waits = [m for m in re.finditer(r'^ *rt_wait\\(.*', text, re.M) if '_fwd' in of(m) or '_bwd' in of(m)]
    open(os.environ['FOUND'], 'w').write(str(len(waits)))
    m = waits[n]
    open('host.c', 'w').write(text[:m.start()] + text[m.end():])
os.execv('/usr/bin/cc', ['/usr/bin/cc', *sys.argv[1:]])
'''


def without_waits(zero, least):
    """Each wait of the layers for their weights. (Those of a step are for messages before these or before a collective
    that the kernels wait for: one stream has all messages, so a later wait includes an earlier one.)"""
    os.makedirs(f'{folder}/bin', exist_ok=True)
    open(f'{folder}/bin/cc', 'w').write(CC)
    os.chmod(f'{folder}/bin/cc', 0o755)
    env = {'PATH': f'{folder}/bin:' + os.environ['PATH'], 'FOUND': f'{folder}/found'}
    want, n, found = train(f'gpt2_zero{zero}_1', 3), 0, 1
    while n < found:
        p = compile_('gpt2', 'less', 1, zero, {**env, 'LEAVE_OUT': str(n)})
        check(p.returncode == 0, f'compiled without wait {n}: {p.stderr}')
        found = int(open(f'{folder}/found').read())
        check(train('less', 3, 0, False) != want, f'nobody notices that wait {n} of {found} is left out')
        n += 1
    check(n >= least, f'zero {zero}: {n} waits in layers')
    return n


def kill_one(rng, job):
    emulate = os.path.join(os.path.dirname(SHARDC), 'lib', 'shardc', 'emulate')
    e = {k: v for k, v in os.environ.items() if not k.startswith(('RANK', 'WORLD', 'LOCAL', 'OMPI', 'PMI', 'SLURM'))}
    e.update(SHARDC_LIBCUDA=f'{emulate}/libcuda.so.1', SHARDC_LIBNCCL=f'{emulate}/libnccl.so.2',
             SHARDC_EMULATE_DEVICES='2', NO_COLOR='1',
             WORLD_SIZE='2', LOCAL_WORLD_SIZE='2', SHARDC_JOB=f'{os.getpid()} {job}')
    ps = [subprocess.Popen(['./gpt2_zero3_1', 'train', '--steps', '20000', '--out', f'k{job}'], cwd=folder,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           text=True, env=dict(e, RANK=str(r), LOCAL_RANK=str(r))) for r in range(2)]
    victim = rng.randrange(2)
    while not os.path.exists(f'{folder}/k{job}/metrics.jsonl'): time.sleep(0.01)      # steps have begun
    time.sleep(rng.uniform(0, 0.3))
    ps[victim].kill()
    try: err = ps[1 - victim].communicate(timeout=1200)[1]
    except subprocess.TimeoutExpired:
        ps[1 - victim].kill()
        sys.exit(f'failed: rank {victim} was killed, and the other one goes on waiting')
    ps[victim].communicate()
    check(ps[1 - victim].returncode == 1 and f'rank {victim} ' in err,
          f'rank {victim} was killed; the other one, exit {ps[1 - victim].returncode}, says {err}')


began = time.time()
n = same_bits('gpt2', [(0, True), (1, True), (2, True), (0, False), (1, False), (3, False)])
n += same_bits('gpt2', [(6, True), (7, True), (6, False), (8, False)], zero=2)
for model in 'llama', 'bert': n += same_bits(model, [(4, True), (5, False)])
print(f'{n} runs of {STEPS} steps with the same bits, {time.time() - began:.0f} s', flush=True)
n = without_waits(3, 4) + without_waits(2, 2)
print(f'{n} waits left out, each noticed, {time.time() - began:.0f} s', flush=True)
for k in range(4): kill_one(random.Random(k), k)
shutil.rmtree(folder)
print(f'4 ranks killed, {time.time() - began:.0f} s')
