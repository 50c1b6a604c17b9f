"""Many ranks end to end, without the compiler: toy_ranks.c in several shapes (data_tensor_zero). The same run whatever
the shape, checkpoints from any to any, one rank killed at random instants, signals, faults that one rank has.

    python3 ranks.py SHARDC TOY.. [CASE=NAME] [KILLS=30] [CHECKED=address,undefined]

CHECKED: the sanitizers that the runtime is built with.
"""
import fcntl, json, os, random, re, shutil, signal, socket, struct, subprocess, sys, tempfile, time

args = [a for a in sys.argv[1:] if '=' not in a]
knobs = dict(a.split('=') for a in sys.argv[1:] if '=' in a)
SHARDC, TOYS = os.path.abspath(args[0]), {os.path.basename(t)[4:]: os.path.abspath(t) for t in args[1:]}
WORLD = {s: int(s.split('_')[0]) * int(s.split('_')[1]) for s in TOYS}
D = tempfile.mkdtemp(prefix='toy ranks ')
rng = random.Random(11)
job = 0


def check(ok, what):
    if not ok: sys.exit('failed: ' + what)


def path(*p): return os.path.join(D, *p)


def environment(shape, rank, **more):
    e = {k: v for k, v in os.environ.items()
         if not k.startswith(('RANK', 'WORLD', 'LOCAL', 'OMPI', 'PMI', 'SLURM', 'SHARDC'))}
    e.update(NO_COLOR='1', RANK=str(rank), WORLD_SIZE=str(WORLD[shape]), LOCAL_RANK=str(rank),
             LOCAL_WORLD_SIZE=str(WORLD[shape]),
             SHARDC_JOB=f'{os.getpid()} {job}')
    e.update({k: str(v) for k, v in more.items()})
    return e


def start(shape, *a, exe=None, **env):
    """All ranks as processes of their own, as a launcher would."""
    global job
    job += 1
    return [subprocess.Popen([exe[r] if exe else TOYS[shape], *map(str, a)], cwd=D, env=environment(shape, r, **env),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE) for r in range(WORLD[shape])]


def until_trains(out, ps):
    while not os.path.exists(path(out, 'metrics.jsonl')) or not lines(out):
        check(all(p.poll() is None for p in ps), f'{out}: a rank ended before the first step')
        time.sleep(0.01)


def end(ps, seconds=1200):
    """(exit status, stdout, stderr) of every rank."""
    limit, all = time.time() + seconds, []
    for p in ps:
        try: out, err = p.communicate(timeout=max(0.1, limit - time.time()))
        except subprocess.TimeoutExpired:
            for q in ps: q.kill()
            sys.exit(f'failed: a rank does not end')
        all.append((p.returncode, out.decode('latin1'), err.decode('latin1')))
    return all


def run(shape, *a, expect=0, says='', **env):
    all = end(start(shape, *a, **env))
    text = ''.join(o + e for _, o, e in all)
    if any(s != expect for s, _, _ in all) or says not in text:
        sys.exit(f'{shape} {a}: expected {expect} and `{says}`\n'
                 + '\n'.join(f'{i}: {x[0]}\n{x[1]}{x[2]}' for i, x in enumerate(all)))
    return all


def train(shape, out, *a, **kw):
    valid = () if '--valid' in a else ('--valid', '10%')
    return run(shape, 'train', '--data', 'text.txt', *valid, '--out', out, *a, **kw)
def lines(out): return [json.loads(x) for x in open(path(out, 'metrics.jsonl'))]
def losses(out): return [x['loss'] for x in lines(out)]


def close(a, b, tolerance=1e-5):
    return len(a) == len(b) and all(abs(x - y) <= tolerance * max(abs(x), abs(y), 1e-3) for x, y in zip(a, b))


def tensors(file):
    """Of a safetensors file: name -> list of floats."""
    b = open(path(file), 'rb').read()
    n = struct.unpack('<Q', b[:8])[0]
    head = json.loads(b[8:8 + n])
    return {k: struct.unpack(f'<{(v["data_offsets"][1] - v["data_offsets"][0]) // 4}f',
                             b[8 + n + v['data_offsets'][0]:8 + n + v['data_offsets'][1]])
            for k, v in head.items() if k != '__metadata__' and v['dtype'] == 'F32'}


def case_same():
    """Losses, weights and momentum of every shape are those of one rank; one shape twice is the same bits."""
    for s in TOYS:
        all = train(s, 'same_' + s, '--dump', f'same_{s}.st', '--eval-every', '20', '--check-memory')
        check(not any(o for _, o, _ in all[1:]), 'only rank 0 speaks')
        check('validation loss' in all[0][1], 'summary')
        check(close(losses('same_' + s), losses('same_1_1_0')), f'{s}: losses')
        one, many = tensors('same_1_1_0.st'), tensors(f'same_{s}.st')
        check(set(one) == set(many), f'{s}: names')
        for name in ('w', 'w.momentum'): check(close(one[name], many[name], 1e-4), f'{s}: {name}')
    train('2_2_1', 'twice', '--dump', 'twice.st', '--eval-every', '20', '--check-memory')
    check(losses('twice') == losses('same_2_2_1') and open(path('twice.st'),
                                                           'rb').read() == open(path('same_2_2_1.st'), 'rb').read(),
          'same bits')


def case_resume():
    """Saved under any shape, resumed under any other."""
    shapes = list(TOYS)
    for a in shapes: train(a, 'half_' + a, '--steps', '20')
    for i, a in enumerate(shapes):
        for b in sorted({a, shapes[(i + 1) % len(shapes)], shapes[(i + 3) % len(shapes)]}):
            out = f'to_{a}_{b}'
            shutil.copytree(path('half_' + a), path(out))
            train(b, out, '--resume', '--dump', out + '.st')
            check(close(losses(out), losses('same_1_1_0')), f'{a} to {b}: losses')
            one, many = tensors('same_1_1_0.st'), tensors(out + '.st')
            for name in ('w', 'w.momentum'): check(close(one[name], many[name], 1e-4), f'{a} to {b}: {name}')
            if a == b: check(losses(out) == losses('same_' + a), f'{a}: the same bits after resuming')


def case_commands():
    """eval, sample, export and --init of any shape, from the checkpoint of any other."""
    shapes = [s for s in TOYS if s != '1_1_0']
    want = end(start('1_1_0', 'eval', '--out', 'same_1_1_0', '--data', 'text.txt', '--valid', '10%'))[0][1]
    text = end(start('1_1_0', 'sample', '--out', 'same_1_1_0', '--prompt', 'the ', '--tokens', '40'))[0][1]
    end(start('1_1_0', 'export', '--resume=same_1_1_0', '--out', 'weights_one'))
    for i, s in enumerate(shapes):
        out = 'same_' + shapes[i - 1]
        check(run(s, 'eval', '--out', out, '--data', 'text.txt', '--valid', '10%')[0][1] == want, f'{s}: eval')
        check(run(s, 'sample', '--out', out, '--prompt', 'the ', '--tokens', '40')[0][1] == text, f'{s}: sample')
        run(s, 'export', f'--resume={out}', '--out', 'weights_' + s)
        check(close(tensors(f'weights_{s}/model.safetensors')['w'], tensors('weights_one/model.safetensors')['w'],
                    1e-4), f'{s}: export')
        train(s, 'init_' + s, '--init', 'weights_one', '--steps', '5')
    for s in shapes: check(close(losses('init_' + s), losses('init_' + shapes[0])), f'{s}: --init')
    run('2_1_0', 'train', '--data', 'text.txt', '--init', 'nothing', expect=4, says='R0301')


def case_counts():
    """Elements sent per axis, in paper counting: 2 z for all-reduce, z for reduce-scatter and all-gather."""
    for s in ('2_2_0', '2_2_1', '4_1_1'):
        data, tensor, zero = map(int, s.split('_'))
        err = train(s, 'count_' + s, '--steps', '10', '--valid', '0%', '--save-every', '0', '--profile')[0][2]
        sent = {a: float(n) for a, n in re.findall(r'^axis (\w+) +\d+ calls +(\d+) elements', err, re.M)}
        w, rows = 65536 // tensor, 128 // data * 256
        check(sent['data'] == 10 * (2 * w + 2), f'{s}: data {sent}')
        check(sent['tensor'] == (10 * 2 * rows), f'{s}: tensor {sent}')


def case_kill():
    """One rank is killed at a random instant: the others name it and leave; the run resumes with the same losses."""
    shape, world = '2_2_1', 4
    for k in range(int(knobs.get('KILLS', 6))):
        out, victim = f'kill_{k}', rng.randrange(world)
        ps = start(shape, 'train', '--data', 'text.txt', '--valid', '10%', '--out', out, '--save-every', '5', '--keep',
                   '9',
                   TOY_SLOW=20, SHARDC_MEET=20)
        time.sleep(rng.uniform(0.1, 1.6))
        began = time.time()
        ps[victim].kill()
        all = end(ps)
        took = time.time() - began
        done = all[victim][0] == 0
        check(done or all[victim][0] == -9, 'the victim')
        for r, (status, _, err) in enumerate(all):
            if r == victim or done: continue
            named = f'rank {victim} (' in err and 'R0901' in err
            early = 'R0107' in err or 'R0901' in err      # before all had met: rank 0 is the one they know
            check(status in (1, 3) and (named or (status == 3 and early)),
                  f'rank {r} after rank {victim}: {status} {err}')
        train(shape, out, '--resume', '--save-every', '5', '--keep', '9')
        check(losses(out) == losses('same_' + shape), f'kill {k}: the same losses')
        print(f'  rank {victim}: the others left after {took:.2f} s: {all[victim - 1][2].strip().splitlines()[-2:][0][:110] if not done else "it was done"}')
    train('1_2_0', 'kill_0', '--resume', '--steps', '45')
    check(close(losses('kill_0')[:40], losses('same_1_1_0')), 'under another number of ranks')


def case_signals():
    """SIGTERM to one rank saves all; --max-time on many."""
    ps = start('2_2_0', 'train', '--data', 'text.txt', '--valid', '10%', '--out', 'term', TOY_SLOW=400)
    until_trains('term', ps)
    ps[2].send_signal(signal.SIGTERM)
    all = end(ps)
    check([s for s, _, _ in all] == [75] * 4, f'exit 75: {all}')
    check('stopped and saved' in all[0][1], 'stopped and saved')
    train('2_2_0', 'term', '--resume')
    check(losses('term') == losses('same_2_2_0'), 'resumed')
    check('time is up' in train('2_1_0', 'time', '--max-time', '1', TOY_SLOW=50)[0][1], '--max-time')


def case_recorder():
    """Each rank has a recorder while it trains, none with `--flight-recorder off`."""
    for word in 'on', 'off':
        out = f'record_{word}'
        ps = start('2_1_0', 'train', '--data', 'text.txt', '--valid', '10%', '--out', out, '--steps', '100000',
                   '--flight-recorder', word, TOY_SLOW='20')
        until_trains(out, ps)
        found = [os.path.exists(path(out, f'flight-{rank:05d}')) for rank in range(2)]
        ps[0].send_signal(signal.SIGTERM)
        end(ps, 60)
        check(found == [word == 'on'] * 2, f'--flight-recorder {word}: {found}')
    train('2_1_0', 'record_odd', '--flight-recorder', 'never', expect=2, says='takes on or off, not `never`')


def case_data():
    """Ranks that see different files under one name are refused."""
    for r, end_ in enumerate('ab'):
        os.makedirs(path(f'd{r}'), exist_ok=True)
        open(path(f'd{r}', 'text.txt'), 'w').write(open(path('text.txt')).read() + end_)
    global job
    job += 1
    ps = [subprocess.Popen([TOYS['2_1_0'], 'train', '--data', 'text.txt', '--out', path('data')], cwd=path(f'd{r}'),
                           env=environment('2_1_0', r),
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE) for r in range(2)]
    all_ = end(ps)
    check([s for s, _, _ in all_] == [3, 3] and 'R0106' in all_[0][2]
          and 'rank 1 reads other data than rank 0' in all_[0][2], f'{all_}')


def case_squat():
    """Another user's process that listens where the ranks of a job meet is not believed."""
    if os.getuid(): return print('  not root: not tested')
    global job
    job += 1
    names = lambda: set(re.findall(r'@(shardc-0-[0-9a-f]{16})', open('/proc/net/unix').read()))
    before = names()
    p = subprocess.Popen([TOYS['2_1_0'], 'train', '--data', 'text.txt'], cwd=D, env=environment('2_1_0', 0),
                         stderr=subprocess.DEVNULL)
    while not (new := names() - before): time.sleep(0.01)
    p.kill(), p.wait()
    ready, tell = os.pipe()
    if not (q := os.fork()):
        os.setuid(65534)
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.bind('\0' + new.pop()), s.listen(), os.write(tell, b'x')
        kept = [s.accept() for _ in range(10 ** 6)]
        os._exit(len(kept))
    os.read(ready, 1)
    r = subprocess.run([TOYS['2_1_0'], 'train', '--data', 'text.txt'], cwd=D,
                       env=environment('2_1_0', 1, SHARDC_MEET=1), capture_output=True, text=True)
    os.kill(q, signal.SIGKILL), os.waitpid(q, 0)
    check(r.returncode == 3 and "another user's process listens" in r.stderr, f'{r.returncode} {r.stderr}')


def spent(p):
    """Time that the main thread of a process has had a processor."""
    return open(f'/proc/{p.pid}/task/{p.pid}/schedstat').read().split()[0]


def case_pause():
    """A rank that pauses for a while, as in a paused cgroup, does not end the job: ranks of other axes wait in other
    calls meanwhile. This test pauses it until the others wait for it; test_watchdog.c and run/stops.py test
    durations."""
    ps = start('2_2_1', 'train', '--data', 'text.txt', '--out', 'pause', '--steps', '1000000', '--quiet')
    until_trains('pause', ps)
    for victim in 3, 0, 1, 2:
        ps[victim].send_signal(signal.SIGSTOP)
        before = None
        while (now := [spent(p) for p in ps] + [len(lines('pause'))]) != before:
            before = now
            time.sleep(0.3)
        ps[victim].send_signal(signal.SIGCONT)
        n = len(lines('pause'))
        while len(lines('pause')) <= n:
            check(all(p.poll() is None for p in ps), f'rank {victim} went on')
            time.sleep(0.01)
    ps[1].send_signal(signal.SIGTERM)
    all_ = end(ps)
    check([s for s, _, _ in all_] == [75] * 4, f'{all_}')


def case_moved():
    """A run directory that is moved under four ranks: they save where it is now."""
    ps = start('2_2_0', 'train', '--data', 'text.txt', '--out', 'here', '--steps', '100000', TOY_SLOW=10)
    until_trains('here', ps)
    os.rename(path('here'), path('there'))
    ps[3].send_signal(signal.SIGTERM)
    all_ = end(ps)
    check([s for s, _, _ in all_] == [75] * 4 and 'note: the run directory here is now' in all_[0][2], f'{all_}')
    check([x for x in os.listdir(path('there')) if x.startswith('step-')] == [f'step-{len(lines("there")):06d}']
          and not os.path.exists(path('here')), 'saved there')


def case_two_jobs():
    """Two jobs that one shell starts at once are parted by SHARDC_JOB."""
    both = [start('2_1_0', 'train', '--data', 'text.txt', '--valid', '10%', '--out', f'job_{i}') for i in range(2)]
    for i, ps in enumerate(both):
        all_ = end(ps)
        check([s for s, _, _ in all_] == [0, 0] and losses(f'job_{i}') == losses('same_2_1_0'), f'job {i}: {all_}')
    # Two jobs have the same name and only their rank 0 has started: both get an error before they wait for other ranks.
    one_name = dict(SHARDC_JOB=f'same {os.getpid()}', SHARDC_MEET=1000)
    both = [subprocess.Popen([TOYS['2_1_0'], 'train', '--data', 'text.txt', '--out', f'one_{i}'], cwd=D,
                             env=environment('2_1_0', 0, **one_name), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for i in range(2)]
    for s, _, said in end(both):
        check(s == 3 and 'R0106' in said and 'SHARDC_JOB=NAME' in said, f'{s} {said}')


def case_lost_data():
    """A data file that becomes shorter under four ranks: all end with its name, and the steps so far are saved."""
    shutil.copy(path('text.txt'), path('lost.txt'))
    ps = start('2_2_0', 'train', '--data', 'lost.txt', '--out', 'lost', '--steps', '100000', TOY_SLOW=10)
    until_trains('lost', ps)
    os.truncate(path('lost.txt'), 4096)
    all = end(ps)
    check([s for s, _, _ in all] == [4] * 4 and any('R0201' in e and 'lost.txt: byte ' in e for _, _, e in all),
          f'{all}')
    check(any(x.startswith('step-') for x in os.listdir(path('lost'))), 'saved')


def case_faults():
    """What goes wrong, once or on one rank: one message that says which."""
    all = train('2_2_0', 'nan', expect=5, says='R0601', TOY_NAN=7)
    check(sum('R0601' in e for _, _, e in all) == 1, 'rank 0 says it')
    run('2_1_0', 'train', '--data', 'none.txt', expect=4, says='R0201')
    ps = start('2_2_0', 'train', '--data', 'text.txt', '--out', 'die', TOY_DIE='5:3')
    all = end(ps, 30)
    check([s for s, _, _ in all] == [1, 1, 1, -9], f'{all}')
    check(all[0][2].count('rank 3 (') == 1 and 'of w (gradient)' in all[0][2], f'it is named: {all[0][2]}')
    train('2_1_0', 'nan', expect=2, says='R0402')
    global job
    job += 1
    e = environment('2_1_0', 0, WORLD_SIZE=3)
    p = subprocess.run([TOYS['2_1_0'], 'train'], cwd=D, env=e, capture_output=True, text=True)
    check(p.returncode == 3 and 'built for 2 ranks (data = 2, tensor = 1) but was started with 3 (RANK)' in p.stderr,
          p.stderr)
    ps = start('2_1_0', 'train', '--data', 'text.txt', exe=[TOYS['2_1_0'], TOYS['1_2_0']])
    check(all_say(end(ps), 3, 'R0106'), 'another executable')


def all_say(all, status, text): return all and any(s == status and text in e for s, _, e in all)


def shardc(*a, expect=0, says='', **kw):
    e = {k: v for k, v in os.environ.items() if k not in ('RANK', 'WORLD_SIZE')}
    p = subprocess.run([SHARDC, *a], cwd=D, capture_output=True, text=True, timeout=1200,
                       env=dict(e, NO_COLOR='1', **kw))
    if p.returncode != expect or says not in p.stdout + p.stderr:
        sys.exit(f'shardc {a}: {p.returncode}, expected {expect} and `{says}`\n{p.stdout}\n{p.stderr}')
    return p.stdout, p.stderr


def case_run():
    """shardc run with an executable: exit statuses, names in front, signals."""
    some = ['--', 'train', '--data', 'text.txt', '--valid', '10%', '--out']
    out, err = shardc('run', TOYS['2_2_0'], *some, 'by_run')                          # it tells its ranks
    check(losses('by_run') == losses('same_2_2_0') and 'done after 40 steps' in out, 'by_run')
    shardc('run', '-n', '3', TOYS['2_2_0'], *some, 'by_run3', expect=3,
           says='built for 4 ranks (data = 2, tensor = 2) but was started with 3')
    out, err = shardc('run', '-n', '4', TOYS['2_2_0'], *some, 'by_run4', expect=137,
                      says='rank 1 was ended by signal 9', TOY_DIE='5:1')
    check('[rank 2] error[R0901]: rank 1 (' in err or '[rank 3] error[R0901]: rank 1 (' in err, err)
    p = subprocess.Popen([SHARDC, 'run', '-n', '4', TOYS['2_2_0'], *some, 'by_run5'], cwd=D, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE,
                         env=dict(os.environ, TOY_SLOW='400'))
    until_trains('by_run5', [p])
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=1200)
    check(p.returncode == 75 and b'stopped and saved' in out, f'{p.returncode} {out} {err}')
    p = subprocess.Popen([SHARDC, 'run', '-n', '4', TOYS['2_2_0'], *some, 'by_run6', '--steps', '100000'], cwd=D,
                         stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, env=dict(os.environ, TOY_SLOW='20'))
    until_trains('by_run6', [p])
    # until rank 0, which has its pipes, is gone
    p.kill(), p.communicate()
    check([x for x in os.listdir(path('by_run6')) if x.startswith('step-')] == [f'step-{len(lines("by_run6")):06d}'],
          'ranks whose launcher was killed save and leave')
    shardc('run', '-n', '0', TOYS['2_2_0'], expect=2, says='--ranks')


def case_mpi():
    """The same program over MPI: the same losses; `local` also reads the launcher's variables."""
    # what is installed with comm_mpi.c includes nothing else
    installed = os.path.join(os.path.dirname(SHARDC), 'lib', 'shardc')
    headers = subprocess.run(['cc', '-std=gnu17', '-D_GNU_SOURCE', '-fsyntax-only', '-I', installed, '-x', 'c', '-'],
                             input='#include "comm/flight.h"\n#include "comm/reduce_ranks.h"\n', text=True,
                             capture_output=True)
    check(headers.returncode == 0, f'headers for MPI: {headers.stderr}')
    if not shutil.which('mpirun') or not shutil.which('mpicc') or subprocess.run(
            ['mpicc', '-fsyntax-only', '-x', 'c', '-'], input='#include <mpi.h>\n', text=True,
            capture_output=True).returncode: return print('  no Open MPI, or not its headers: not tested')
    if knobs.get('CHECKED') == 'thread':
        return print('  the sanitizer for races reports locks inside of Open MPI: not tested')
    root = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
    lib = os.path.join(os.path.dirname(SHARDC), 'lib', 'shardc')
    e = {k: v for k, v in os.environ.items() if k not in ('RANK', 'WORLD_SIZE')}
    # mpirun kills ranks a second after it was told to end, less than a busy machine may need to save
    e.update(OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1', NO_COLOR='1',
             OMPI_MCA_odls_base_sigkill_timeout='3')
    checked = ['-fsanitize=' + knobs['CHECKED']] if 'CHECKED' in knobs else []
    for source, name in ('toy_ranks.c', 'over_mpi'), ('test_comm.c', 'calls'):
        made = subprocess.run(['mpicc', '-std=gnu17', '-D_GNU_SOURCE', '-O1', '-Wall', '-Wextra', '-Werror', '-I', root,
                               '-I', lib, '-DDATA=2', '-DTENSOR=2', '-DZERO=1', '-DCOMM="mpi"', *checked,
                               os.path.join(root, 'tests/runtime', source), os.path.join(lib, 'comm/comm_mpi.c'),
                               os.path.join(lib, 'libshardrt.a'), '-lm', '-lpthread', '-o', path(name)],
                              capture_output=True, text=True)
        check(made.returncode == 0, made.stderr)
    for n, seed, mesh in (3, 1, 2), (4, 6, 4), (4, 7, 4):   # sums in the order of ranks
        p = subprocess.run(['mpirun', '--oversubscribe', '-n', str(n), path('calls'), 'mpi', str(seed), str(mesh)],
                           env=e, capture_output=True, text=True, timeout=1200)
        check(p.returncode == 0, f'collectives over MPI, {n} ranks, seed {seed}: {p.stdout} {p.stderr}')

    def mpirun(exe, out, expect, *a, **env):
        p = subprocess.run(['mpirun', '--oversubscribe', '-n', '4', exe, 'train', '--data', 'text.txt', '--valid',
                            '10%', '--out', out, *a],
                           cwd=D, env=dict(e, **env), capture_output=True, text=True, timeout=1200)
        check(p.returncode == expect, f'mpirun: {p.returncode} {p.stdout} {p.stderr}')
        return p.stdout + p.stderr
    for debug in ('', 'comm'):
        mpirun(path('over_mpi'), 'mpi' + debug, 0, SHARDC_DEBUG=debug)
        check(close(losses('mpi' + debug), losses('same_1_1_0')), 'losses over MPI')
    check('process rank 2' in mpirun(path('over_mpi'), 'mpi_die', 137, TOY_DIE='5:2'), 'mpirun names the dead')
    mpirun(path('over_mpi'), 'mpi_die', 0, '--resume')
    usr1, term, hang_up, interrupt, kill = signal.SIGUSR1, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL
    for numbers in [usr1], [term], [hang_up], [term, term], [interrupt, interrupt], [kill]:
        # MPI's own threads do not take them
        out = 'mpi_' + '_'.join(n.name for n in numbers)
        p = subprocess.Popen(['mpirun', '--oversubscribe', '-n', '4', path('over_mpi'), 'train', '--data', 'text.txt',
                              '--valid', '10%', '--out', out, '--steps', '100000'],
                             cwd=D, env=dict(e, TOY_SLOW='20'), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until_trains(out, [p])
        for n in numbers:
            p.send_signal(n)                                             # mpirun may be gone before its ranks are
        check(p.wait(60), f'{numbers}: {p.returncode}')
        with open(path(out, '.lock')) as lock: fcntl.flock(lock, fcntl.LOCK_EX)
        saved = [int(x[5:]) for x in os.listdir(path(out)) if x.startswith('step-')]
        check(saved and saved[0] == len(lines(out)), f'{numbers}: saved over MPI: {saved} of {len(lines(out))}')
        if len(numbers) > 1 or saved[0] > 40: continue
        mpirun(path('over_mpi'), out, 0, '--resume')
        check(close(losses(out), losses('same_1_1_0')), 'resumed over MPI')
    mpirun(TOYS['2_2_1'], 'mpi_local', 0)
    check(losses('mpi_local') == losses('same_2_2_1'), 'local under mpirun')


words = [''.join(rng.choice('etaoinshrdlu') for _ in range(rng.randint(2, 7))) for _ in range(60)]
open(path('text.txt'), 'w').write(' '.join(rng.choice(words) for _ in range(8000))[:42000])
for name, case in [(n[5:], f) for n, f in list(globals().items()) if n.startswith('case_')]:
    if knobs.get('CASE', name) not in (name,) and name != 'same': continue
    began = time.time()
    case()
    print(f'{name}: good, {time.time() - began:.1f} s', flush=True)
shutil.rmtree(D)
