"""Ranks of several machines, simulated by processes with the environment of several machines. An executable that uses
the stand-in's NCCL meets over TCP and by a file, started as by torchrun, mpirun and srun and by hand, and has the same
losses as one processor. A wrong launch is reported with the status of docs/executable.md and never hangs; a killed rank
is named and ends all others.

    python3 meet.py SHARDC [CASE ..]
"""
import concurrent.futures, json, os, random, shutil, socket, struct, subprocess, sys, tempfile, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'run'))
from common import check, npy

SHARDC = os.path.abspath(sys.argv[1])
HERE = os.path.dirname(os.path.abspath(__file__))
EMULATE = os.path.join(os.path.dirname(SHARDC), 'lib', 'shardc', 'emulate')
OTHERS = ('RANK', 'WORLD', 'LOCAL', 'OMPI', 'PMI', 'SLURM', 'SHARDC', 'MASTER', 'TORCHELASTIC')
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(OTHERS)}
CLEAN.update(NO_COLOR='1', SHARDC_LIBCUDA=f'{EMULATE}/libcuda.so.1', SHARDC_LIBNCCL=f'{EMULATE}/libnccl.so.2',
             SHARDC_EMULATE_DEVICES='4')
D = tempfile.mkdtemp(prefix='gpu meet ')
rng = random.Random(9)
MEET = 6          # seconds: the ranks of one case may start far apart on a busy machine


def free_port():
    """A port that no process uses now, low enough to leave room for the ports after it."""
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return min(s.getsockname()[1], 65000)


def by_hand(r, port, **more):
    """Rank r of four, two on each machine, as torchrun tells it."""
    return {'RANK': r, 'WORLD_SIZE': 4, 'LOCAL_RANK': r % 2, 'LOCAL_WORLD_SIZE': 2, 'MASTER_ADDR': '127.0.0.1',
            'MASTER_PORT': port, **more}


def start(environments, *a, exe='four'):
    exes = exe if isinstance(exe, list) else [exe] * len(environments)
    return [subprocess.Popen([f'./{x}', 'train', *a], cwd=D, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env={**CLEAN, **{k: str(v) for k, v in e.items()}}) for x, e in zip(exes, environments)]


def end(ps, seconds=1200):
    """(exit status, output) of every rank."""
    limit, all = time.time() + seconds, []
    for p in ps:
        try: out, err = p.communicate(timeout=max(0.1, limit - time.time()))
        except subprocess.TimeoutExpired:
            for q in ps: q.kill()
            sys.exit(f'failed: a rank does not end')
        all.append((p.returncode, out + err))
    return all


def losses(out): return [json.loads(x)['loss'] for x in open(os.path.join(D, out, 'metrics.jsonl'))]


def good(all, out):
    check(all and not any(s for s, _ in all), f'{out}: {all}')
    check('4 ranks' in all[0][1], all[0][1])
    a, b = losses(out), losses('one')
    check(len(a) == len(b) and all_close(a, b), f'{out}: {a} {b}')


def all_close(a, b): return max(abs(x - y) for x, y in zip(a, b)) < 1e-4


def all_say(ranks, status, text): return all(s == status and text in words for s, words in ranks)


def bad(environments, status, *texts, seconds=1200, args=(), every=True, **kw):
    """All ranks (or at least one) end with the status, and say it."""
    kw = {'exe': 'four', **kw}
    environments = [{'SHARDC_MEET': MEET, **e} for e in environments]
    began, all = time.time(), end(start(environments, *args, '--out', 'none', exe=kw['exe']), seconds)
    ok = [s == status and any(t in words for t in texts) for s, words in all]
    check(sum(ok) == len(all) if every else any(ok) and not any(s == 0 for s, _ in all), f'{texts}: {all}')
    print(f'  {time.time() - began:.1f} s: {next(w for (s, w), o in zip(all, ok) if o).strip().splitlines()[0][:150]}')


def case_tcp():
    port = free_port()
    good(end(start([by_hand(r, port) for r in range(4)], '--out', 'tcp')), 'tcp')
    good(end(start([by_hand(r, 1, MASTER_ADDR='nowhere.invalid') for r in range(4)], '--out', 'option', '--meet',
                   f'localhost:{port}')), 'option')
    several = [{k: v for k, v in by_hand(r, port).items() if not k.startswith('LOCAL')} for r in range(4)]
    good(end(start(several, '--out', 'uncounted')), 'uncounted')
    slurm = [{'SLURM_JOB_ID': 7, 'SLURM_STEP_ID': os.getpid() % 10000, 'SLURM_PROCID': r, 'SLURM_STEP_NUM_TASKS': 4,
              'SLURM_LOCALID': r % 2, 'SLURM_NODEID': r // 2,
              'SLURM_STEP_TASKS_PER_NODE': '2(x2)', 'SLURM_STEP_NODELIST': 'localhost,other[1-3]'} for r in range(4)]
    good(end(start(slurm, '--out', 'slurm')), 'slurm')


def case_file():
    file, apart = os.path.join(D, 'meet'), [by_hand(r, 1, MASTER_ADDR='') for r in range(4)]
    for old in ('', f'shardc {free_port()} 123\n127.0.0.1\n', 'nonsense'):
        if old: open(file, 'w').write(old)
        ps = start(apart[1:], '--out', f'file{len(old)}', '--meet', file)     # rank 0 comes last
        time.sleep(0.3)
        good(end(start(apart[:1], '--out', f'file{len(old)}', '--meet', file) + ps), f'file{len(old)}')
        check(not os.path.exists(file), 'the file goes when all have come')


def case_launchers():
    """The lines of docs/executable.md, with the program's name."""
    def line(command, out, env=None):
        shutil.rmtree(os.path.join(D, out), ignore_errors=True)
        p = subprocess.run(['bash', '-c', command], cwd=D, capture_output=True, text=True, timeout=1200, env={
            **CLEAN, 'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1',
             'OMPI_MCA_rmaps_base_oversubscribe': '1', **(env or {})})
        good([(p.returncode, p.stdout + p.stderr)], out)
        print(f'  ran: {command[:120]}')
    if shutil.which('mpirun'):
        line('mpirun -n 4 ./four train --out a', 'a')
        line('mpirun -n 4 ./four train --out a --meet ./meet', 'a')
    else: print('  no mpirun: not tested')
    if shutil.which('torchrun'):
        line('torchrun --no-python --nproc-per-node 4 ./four train --out b', 'b')
        port = free_port()
        one = f'torchrun --no-python --nnodes 2 --node-rank %d --nproc-per-node 2 --master-addr 127.0.0.1 --master-port {port} ./four train --out b'
        line(f'{one % 1} & {one % 0} && wait $!', 'b')
    else: print('  no torchrun: not tested')


def case_bad():
    """Most cases wait for a time limit: they run concurrently, each at its own port."""
    held = [socket.socket() for _ in range(20)]                            # so that all ports differ
    for s in held: s.bind(('127.0.0.1', 0))
    ports = iter([min(s.getsockname()[1], 65000) for s in held])
    for s in held: s.close()
    later = []

    def wrong(ranks, *a, **kw): later.append((kw.pop('of', bad), ranks, a, kw))

    def four(**more):
        port = next(ports)
        return [by_hand(r, port, **more) for r in range(4)]
    taken = socket.socket()
    taken.bind(('127.0.0.1', 0)), taken.listen()
    wrong([by_hand(0, taken.getsockname()[1])], 3, 'R0108')
    wrong([by_hand(1, taken.getsockname()[1])], 3, 'is not rank 0 of this job')
    wrong(four(MASTER_ADDR='nowhere.invalid'), 3, 'the address of rank 0 cannot be found: `nowhere.invalid`')
    wrong(four(MASTER_ADDR=''), 3, 'nothing says where they meet')
    wrong(four(), 3, '--meet: `here` is no place where ranks can meet', args=['--meet', 'here'])
    for port in 'x', 99999: wrong([by_hand(r, port) for r in range(4)], 3, 'is no place where ranks can meet')
    wrong(four()[:1], 3, 'R0108', args=['--meet', '/nowhere/meet'])
    wrong(four()[:2], 3, f'2 of 4 ranks did not come within {MEET} s: rank 2, 3')
    wrong(four()[1:2], 3, f'rank 0 did not come within {MEET} s to 127.0.0.1:')
    f = four()
    wrong([f[0], f[1], f[1], f[3]], 3, 'two processes say that they are rank 1', 'rank 0 did not come',
          'ended before', every=False)
    f = four()
    wrong(f[:3] + [{**f[3], 'WORLD_SIZE': 5}], 3, 'built for 4 ranks', every=False)
    f = four()
    wrong(f[:3] + [{**f[3], 'RANK': 9, 'LOCAL_RANK': 1}], 3, 'RANK is 9, but WORLD_SIZE is 4', every=False)
    wrong(four(), 3, 'rank 3 (', 'another executable than rank 0', exe=['four', 'four', 'four', 'other'])
    wrong([{**e, 'SHARDC_LIBNCCL': '/nowhere'} for e in four()], 4, 'NCCL cannot be loaded', every=False)
    wrong(four(), of=one_after_the_other)
    wrong(four(), 3, 'communicator local joins', exe='cpu')
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        done = [pool.submit(check_, ranks, *a, **kw) for check_, ranks, a, kw in later]
        for d in done: d.result()
    taken.close()


def one_after_the_other(four):
    """A refused rank takes the place of no other rank."""
    ps = []
    for r, exe in (0, 'four'), (3, 'other'), (1, 'four'), (2, 'four'):
        ps += start([{**four[r], 'SHARDC_MEET': MEET}], '--out', 'none', exe=exe)
        time.sleep(0.5)
    said = end(ps, 20)
    check(all_say(said, 3, 'another executable than rank 0'), f'one after the other: {said}')


def connected(port):
    """A connection that rank 0 has greeted."""
    while True:
        try: s = socket.create_connection(('127.0.0.1', port), 1)
        except OSError: time.sleep(0.01)
        else: return s, s.recv(24, socket.MSG_WAITALL)


def hello(rank, host):
    """Of a rank of another program, well formed, with a guess for a proof."""
    return struct.pack('<8s4iq3Q64s16s32s', b'shardc\3', rank, 4, 5, 0, 77, 1, 2, 3, host, rng.randbytes(16),
                       rng.randbytes(32))


def case_strangers():
    """A peer without the secret ends no job and delays no rank: silent peers, garbage, hellos of a wrong program."""
    port = free_port()
    four = [by_hand(r, port, SHARDC_SECRET='of this job', SHARDC_MEET=40) for r in range(4)]
    ps = start(four[:1], '--out', 'strangers')
    open_ = [connected(port)[0] for _ in range(100)]                       # more than there is room for
    check(connected(port)[1].startswith(b'shardc'), 'it greets')
    for text in (rng.randbytes(500), b'GET / HTTP/1.0\r\n\r\n' * 20, hello(1, b'\x1b[31mred'),
                 hello(-1, b'x') + bytes(5000000), hello(9, b'x')):
        s, greeting = connected(port)
        s.settimeout(10)
        try:
            s.sendall(text)
            while s.recv(4096): check(False, 'nothing is told to strangers')
        except OSError: pass
    began = time.time()
    good(end(ps[:1] + start(four[1:], '--out', 'strangers')), 'strangers')
    print(f'  the ranks met and trained in {time.time() - began:.1f} s')
    other = [by_hand(0, port, SHARDC_SECRET='of this job'), by_hand(1, port, SHARDC_SECRET='of another')]
    bad(other, 3, '3 of 4 ranks did not come', 'SHARDC_SECRET is not the same')
    bad(other[:1] + [by_hand(1, port)], 3, 'has every rank the same SHARDC_SECRET?', 'is not rank 0 of this job')


def case_kill():
    """Two that are killed while they train, one before all have met."""
    port = free_port()
    for k, victim in enumerate((2, 0, 3)):
        ps = start([by_hand(r, port, SHARDC_MEET=8 if k == 0 else 60) for r in range(4)], '--out', f'kill{k}',
                   '--steps', '200000', '--save-every', '0', '--max-time', '20')
        metrics = os.path.join(D, f'kill{k}', 'metrics.jsonl')
        while k and not (os.path.exists(metrics) and os.path.getsize(metrics)):
            check(not any(p.poll() is not None for p in ps), f"kill {k}: a rank ended before the first step")
            time.sleep(0.01)
        began = time.time()
        ps[victim].kill()
        all = end(ps)
        for r, (status, words) in enumerate(all):
            named = f'rank {victim} (' in words and 'R0901' in words
            early = 'R0107' in words and not k
            check(r == victim or status in (1, 3) and (named or early),
                  f'rank {r} after rank {victim}: {status} {words}')
        print(f'  rank {victim}: the others left after {time.time() - began:.2f} s: {all[victim - 1][1].strip().splitlines()[-2][:110]}')


cases = {k[5:]: v for k, v in list(globals().items()) if k.startswith('case_')}
try:
    x, w = [rng.gauss(0, 1) for _ in range(640 * 16)], [rng.gauss(0, 1) for _ in range(16 * 8)]
    npy(f'{D}/x.npy', '<f4', (640, 16), x)
    y = [sum(x[i * 16 + k] * w[k * 8 + o] for k in range(16)) for i in range(640) for o in range(8)]
    npy(f'{D}/y.npy', '<f4', (640, 8), y)
    model = open(os.path.join(HERE, 'linear.shard')).read()
    open(f'{D}/m.shard', 'w').write(model + 'plan four for Linear_ {\n  mesh data = 4\n  place Batch -> data\n}\n')
    open(f'{D}/n.shard', 'w').write(model.replace('0.01', '0.02')
                                    + 'plan four for Linear_ {\n  mesh data = 4\n  place Batch -> data\n}\n')
    for out, file, *a in (('one', 'm', '--target', 'x86'), ('four', 'm', '--plan', 'four', '--target', 'sm_80'),
                          ('other', 'n', '--plan', 'four', '--target', 'sm_80'),
                          ('cpu', 'm', '--plan', 'four', '--target', 'x86')):
        p = subprocess.run([SHARDC, 'compile', f'{file}.shard', '-o', f'{out}.exe' if out == 'one' else out, '-q', *a],
                           cwd=D, capture_output=True, text=True,
                           env={**CLEAN, 'PATH': '/usr/bin:/bin',
                                'SHARDC_PATH': os.path.join(HERE, '..', '..', 'examples')})
        check(p.returncode == 0, p.stderr)
    check(subprocess.run(['./one.exe', 'train', '--out', 'one'], cwd=D, env=CLEAN, capture_output=True).returncode == 0,
          'one processor')
    for name in sys.argv[2:] or cases:
        began = time.time()
        cases[name]()
        print(f'{name}: good, {time.time() - began:.1f} s', flush=True)
finally:
    shutil.rmtree(D)
