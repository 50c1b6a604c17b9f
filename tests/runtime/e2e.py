"""The runtime end to end, without the compiler: toy.c is a hand-written program. Learning, resuming, killing, full
disks, damaged files, signals, wrong use.

    python3 e2e.py TOY TOY_COUNTING|- [CASE ..]
"""
import fcntl, json, os, pty, random, re, resource, shutil, signal, struct, subprocess, sys, termios, time
import xml.dom.minidom
from toys import D, TOY, check, path, toy, train
from xxh64 import xxh64

COUNTING = sys.argv[2]
TEXT = os.path.join(D, 'text.txt')
rng = random.Random(7)


def write_text():
    words = [''.join(rng.choice('etaoinshrdlu') for _ in range(rng.randint(2, 7))) for _ in range(60)]
    open(TEXT, 'w').write(' '.join(rng.choice(words) for _ in range(8000))[:42000])


def newest(run): return sorted(x for x in os.listdir(path(run)) if x.startswith('step-'))[-1]
def tensors(run): return open(path(run, newest(run), 'rank-00000.safetensors'), 'rb').read()
def lines(run): return [json.loads(x) for x in open(path(run, 'metrics.jsonl'))]
def losses(run): return [(x['step'], x['loss'], x.get('valid_loss')) for x in lines(run)]


def case_learns():
    out = train('--out', 'a', '--eval-every', '40', '--save-every', '50')
    check('validation loss' in out and 'run directory: a' in out, 'summary')
    m = lines('a')
    check([x['step'] for x in m] == list(range(1, 201)), 'one object per step')
    check(all(x['schema'] == 1 for x in m) and m[-1]['loss'] < 3 < m[0]['loss'], 'the loss falls')
    check(sorted(x for x in os.listdir(path('a')) if x.startswith('step')) == ['step-000150', 'step-000200'],
          'keep = 2')
    check(os.readlink(path('a', 'latest')) == 'step-000200', 'latest')
    xml.dom.minidom.parse(path('a', 'loss.svg'))
    check('validation loss' in toy('eval', '--out', 'a', '--data', 'text.txt'), 'eval')
    e = json.loads(toy('eval', '--out', 'a', '--data', 'text.txt', '--json'))
    check(e['step'] == 200 and e['loss'] < 3, 'eval --json')
    check(toy('sample', '--out', 'a', '--prompt', 'the ', '--tokens', '50', '--top-k', '5').startswith('the '),
          'sample')
    with open('/dev/full', 'w') as full:
        for words in ('sample', '--out', 'a', '--tokens', '9'), ('--help',):
            p = subprocess.run([TOY, *words], cwd=D, stdout=full, stderr=subprocess.PIPE, text=True)
            check(p.returncode == 1 and 'R0403' in p.stderr, f'{words} to a full disk: {p.returncode}, {p.stderr}')
    check(toy('sample', '--out', 'a', '--seed', '3') == toy('sample', '--out', 'a', '--seed', '3'),
          'same seed, same sample')
    info = json.loads(toy('info', '--json'))
    check(info['parameters'] == 65536 and info['entries'][1]['work_bytes'] == 131584, 'info')
    check('written by hand' in toy('info', '--source'), 'info --source')
    for two in ('--all', '--json'), ('--all', '--source'), ('--json', '--source'):
        toy('info', *two, expect=2, says='R0104')
    check('--max-time' in toy('--help'), 'help')


def case_threads():
    for n in '1', '2', '4': train('--out', 't' + n, '--threads', n, '--steps', '60')
    check(tensors('t1') == tensors('t2') == tensors('t4') and losses('t1') == losses('t4'), 'threads change nothing')
    train('--out', 't9', '--threads', '9', expect=2, says='R0103')


def case_resume():
    for args in [], ['--shuffle', 'off']:
        shutil.rmtree(path('b1'), True), shutil.rmtree(path('b2'), True)
        train('--out', 'b1', '--steps', '120', '--eval-every', '30', *args)
        train('--out', 'b2', '--steps', '70', '--eval-every', '30', *args)
        train('--out', 'b2', '--resume', '--steps', '120', '--eval-every', '30', *args, says='resumed at step 70')
        check(tensors('b1') == tensors('b2'), 'resumed tensors')
        check([x[:2] for x in losses('b1')] == [x[:2] for x in losses('b2')], 'resumed losses')
    train('--out', 'b2', expect=2, says='R0402')
    train('--out', 'b2', '--resume', '--seed', '99', expect=2, says='R0104')
    train('--out', 'b3', '--resume=auto', '--steps', '5', says='note: no checkpoint in b3: begins at step 1')
    train('--out', 'b5', '--steps', '7', '--save-every', '0')
    before = open(path('b5', 'metrics.jsonl')).read()
    train('--out', 'b5', '--resume', '--steps', '2', says='metrics.jsonl is now metrics-001.jsonl')
    check(open(path('b5', 'metrics-001.jsonl')).read() == before and len(lines('b5')) == 2, 'nothing is replaced')
    open(path('other.txt'), 'w').write(open(TEXT).read().upper())
    note = 'note: the resumed run read other data, or in another order'
    check(note not in train('--out', 'b3', '--resume', '--steps', '6'), 'the same data')
    train('--out', 'b3', '--resume', '--steps', '7', '--shuffle', 'off', says=note)
    toy('train', '--data', 'other.txt', '--out', 'b3', '--resume', '--steps', '8', '--shuffle', 'off', says=note)
    state = path('b3', 'step-000008', 'state.json')
    check(re.search(r'"data":"[0-9a-f]{16}","optimizer":', open(state).read()), 'it is kept')
    text = open(state).read().rsplit(',"check"', 1)[0]
    for word, other, says in ('train.batch', 'lamb', 'train.batch was lamb in the resumed run, it is 8 now'), \
            ('model', 'Other', 'is of model Other, this is'):
        changed = re.sub('"program":"[^"]*"', '"program":"0"', re.sub(f'"{word}":"[^"]*"', f'"{word}":"{other}"', text))
        open(state, 'w').write(changed + ',"check":"' + xxh64(changed.encode()) + '"}\n')
        train('--out', 'b6', '--resume=b3/step-000008', '--steps', '9', '--shuffle', 'off', says=says)
        shutil.rmtree(path('b6'))
    train('--out', 'b4', '--resume=b1', '--steps', '125')                             # from another run's directory
    check(not os.path.exists(path('b4', 'step-000120')) and newest('b4') == 'step-000125', 'goes on elsewhere')
    train('--resume=b1/step-000120', '--steps', '130', says='resumed at step 120')
    check(newest('b1') == 'step-000130', 'goes on in the folder of the checkpoint')
    toy('sample', '--out', 'nowhere', expect=4, says='R0501')


def case_saves_nothing():
    for i, args in enumerate((['--save-every', '0'], ['--keep', '0', '--save-every', '5'])):
        train('--out', f'n{i}', '--steps', '12', *args)
        check(not [x for x in os.listdir(path(f'n{i}')) if x.startswith('step') or x == 'latest'], 'no checkpoint')
        check(len(lines(f'n{i}')) == 12, 'but metrics')


def case_trace():
    out = train('--out', 'p', '--steps', '9', '--threads', '2', '--profile', '--trace', 'p.json:3..5',
                says='9 steps took')
    rows = {x.split()[0]: x.split() for x in out.splitlines() if 'toy.shard:' in x}
    check(int(rows['forward'][1]) > int(rows['update'][1]) == 9 and rows['update'][-1] == 'toy.shard:9',
          'calls, source')
    check(re.fullmatch(r'[\d.]+', rows['forward'][5]), 'FLOP/s')       # 0.0 where each call takes long
    events = json.load(open(path('p.json')))['traceEvents']
    steps = [e for e in events if e.get('cat') == 'step']
    kernels = [e for e in events if e.get('cat') == 'kernel']
    check([e['name'] for e in steps] == ['step 3', 'step 4', 'step 5'], 'the steps asked for')
    begin, end = steps[0]['ts'], steps[-1]['ts'] + steps[-1]['dur']
    check(all(begin <= e['ts'] <= e['ts'] + e['dur'] <= end + 0.01 for e in kernels), 'kernels lie within')
    data = [e for e in events if e.get('cat') == 'data']
    # A batch that a thread has read has an event with its name; the test cannot know when the thread ran.
    check([e['name'] for e in data] == ['data of step 4', 'data of step 5', 'data of step 6'], 'read beside the steps')
    told = r'^  data: [\d.]+ ms of reading during the steps, [\d.]+ ms waited for(; \S+ tokens/s)?$'
    check(re.search(told, out, re.M), 'how long')
    for name, phase, chunks in ('forward', 0, 8), ('forward', 1, 1), ('update', 0, 16):
        n = sum(e['args']['chunks'] for e in kernels if e['name'] == name and e['args']['phase'] == phase)
        check(n == 3 * chunks, f'{name}: {n} chunks')
    train('--out', 'p1', '--steps', '9', '--threads', '2')
    check(tensors('p') == tensors('p1'), 'watching changes nothing')
    train('--out', 'p2', '--trace', 'x:0..2', expect=2, says='R0103')
    if COUNTING != '-': train('--out', 'p3', '--steps', '9', '--profile', '--trace', 'p3.json', exe=COUNTING)


def on_terminal(columns, *a):
    """The progress line as a terminal of the given width shows it, each time it is written."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack('4H', 24, columns, 0, 0))
    p = subprocess.Popen([TOY, 'train', '--data', 'text.txt', *a], cwd=D, stdout=subprocess.DEVNULL, stderr=slave,
                         env=dict(os.environ, TERM='xterm'))
    os.close(slave)
    said = b''
    try:
        while part := os.read(master, 4096): said += part
    except OSError: pass                                      # the other end is closed
    os.close(master)
    check(p.wait() == 0, 'trains on a terminal')
    return [re.sub(r'\x1b\[K|\n', '', x) for x in said.decode().split('\r') if x.startswith('step ')]


def case_width():
    """One line, whatever the width: the least important fields go first. All take 95 columns or more at any speed."""
    for columns in 30, 45, 80, 90, 200, 0:
        shown = on_terminal(columns, '--out', f'wide{columns}', '--steps', '40', '--eval-every', '10')
        check(shown and max(map(len, shown)) < (columns or 80), f'{columns}: {shown}')
        check('step 40/40' in shown[-1] and ('loss ' in shown[-1] or columns == 30), f'{columns}: {shown[-1]}')
        check(('MFU' in shown[-1]) == (columns == 200) and ('tok/s' in shown[-1]) == (columns not in (30,)),
              f'{columns}: {shown[-1]}')


def case_habits():
    """An option of another trainer gets a message that names the equivalent setting or option."""
    for a, says in (('--optim', 'sgd'), '--set train.optim=sgd,'), (('--batch-size=64',), '--set train.batch=64,'), \
            (('--learning_rate', '1'), 'did you mean --lr?'), \
                   (('--optimizer', '--quiet'), '--set train.optim=VALUE,'), (('--dat', 'x'), 'did you mean --data?'), \
                   (('--max-steps=3',), 'did you mean --steps?'), \
                   (('--zzz',), '--help lists all options'):
        check('R0102' in train(*a, expect=2, says=says), f'{a}')
    check(' of ' in train('--out', 'hab', '--steps', '5', '--eval-batches',
                          '1').split('validation loss ')[1].split('\n')[0], 'what the loss covers')


def case_set():
    out = train('--out', 'q', '--set', 'train.steps=7', '--set', 'train.eval.every=3', '--set', 'machine.node.f32=1e12')
    check([x['step'] for x in lines('q') if 'valid_loss' in x] == [3, 6, 7], 'set: steps, evaluations')
    check('MFU ' in out and 'MFU n/a' not in out, 'the peak is known')
    train('--out', 'q1', '--steps', '3', says='MFU n/a')
    for text, says in (('train.batch=9', 'is compiled in'), ('train.step=9', 'did you mean train.steps?'),
                       ('train.steps=x', 'R0103'),
                       ('train.steps', 'KEY=VALUE'), ('data.shuffle=maybe', 'on or off')):
        train('--out', 'q2', '--set', text, expect=2, says=says)


def case_overfit():
    train('--out', 'o', '--overfit-batch', '--steps', '150')
    train('--out', 'o1', '--steps', '150')
    check(losses('o')[-1][1] < losses('o1')[-1][1] - 0.3, 'one batch is learned by heart')


def case_sampling():
    train('--out', 'smp', '--steps', '60')
    ask = lambda *a: toy('sample', '--out', 'smp', '--prompt', 'the ', '--tokens', '60', *a)
    best = ask('--temperature', '0')
    check(ask('--top-k', '1') == best == ask('--top-p', '0') == ask('--top-p', '0.0001'), 'the likeliest')
    check(ask('--top-p', '1') == ask() != ask('--top-p', '0.5'), 'the nucleus')
    check(ask('--top-k', '5', '--top-p', '0.9') == ask('--top-k', '5', '--top-p', '0.9'), 'both')


def case_own_names():
    """A program without a map: its own names."""
    train('--out', 'own', '--steps', '30')
    toy('export', '--out', 'o hf', '--resume=own', says='no weights block')
    check(os.listdir(path('o hf')) == ['model.safetensors'], 'no config.json')
    toy('export', expect=2, says='R0103')
    toy('export', '--out', 'own', '--resume=own', expect=2, says='not of an earlier export')
    ask = ['--prompt', 'the ', '--tokens', '20']
    check(toy('sample', '--init', 'o hf', *ask) == toy('sample', '--out', 'own', *ask), 'the same parameters')
    toy('sample', '--init', 'nowhere', expect=4, says='R0301')
    os.makedirs(path('o two'))
    for i in range(2): shutil.copy(path('o hf', 'model.safetensors'), path('o two', f'{i}.safetensors'))
    toy('sample', '--init', 'o two', expect=4, says='no index')
    index = path('o two', 'model.safetensors.index.json')
    for text, says in (('{"weight_map": {"w": "../o hf/model.safetensors"}}', 'plain file name'),
                       ('{"a": 1}', 'no weight_map'),
                       ('{"weight_map": ', 'R0302'), ('{"weight_map": {"w": "0.safetensors", "v": "1.safetensors"}}',
                                                      'in two files')):
        open(index, 'w').write(text)
        toy('sample', '--init', 'o two', expect=4, says=says)


def case_kill():
    args = ['--steps', '60', '--save-every', '5', '--eval-every', '10']
    start = time.time()
    train('--out', 'k0', *args, env={'TOY_SLOW': '5'})
    span = time.time() - start
    for k in range(20):
        shutil.rmtree(path('k1'), True)
        p = subprocess.Popen([TOY, 'train', '--data', 'text.txt', '--out', 'k1', *args], cwd=D,
                             env=dict(os.environ, TOY_SLOW='5'), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.random() * span)
        p.kill(), p.wait()
        train('--out', 'k1', '--resume=auto', *args)
        check(tensors('k1') == tensors('k0') and losses('k1') == losses('k0'), f'kill {k}')
        check(not [x for x in os.listdir(path('k1')) if x.startswith(('.new', '.old'))], 'nothing half-written stays')


def until(there, p, what):
    """Waits for what a running process does."""
    while not there():
        check(p.poll() is None, f'{what}: it ended with {p.returncode}')
        time.sleep(0.01)


def begun(*args, front=(), data='text.txt', **env):
    """A run that has done a step of 100000."""
    p = subprocess.Popen([*front, TOY, 'train', '--data', data, '--steps', '100000', *args], cwd=D,
                         env=dict(os.environ, **{'TOY_SLOW': '10', **env}),
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    metrics = path(args[args.index('--out') + 1], 'metrics.jsonl')
    until(lambda: os.path.exists(metrics) and os.path.getsize(metrics), p, 'a step')
    return p


def saved(p, out, status=75):
    """Waits for its end; returns its output."""
    err = p.communicate(timeout=1200)[1]
    check(p.returncode == status and newest_step(out) > 0, f'{out}: {p.returncode} {err}')
    return err


def newest_step(run): return max([int(x[5:]) for x in os.listdir(path(run)) if x.startswith('step-')], default=0)


def case_signals():
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP:
        shutil.rmtree(path('s'), True)
        p = begun('--out', 's')
        p.send_signal(number), saved(p, 's')
    for second in signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP:
        # as timeout does: process and group
        shutil.rmtree(path('s'), True)
        p = begun('--out', 's', SHARDC_GRACE='1000')
        p.send_signal(signal.SIGTERM), p.send_signal(second), p.send_signal(second), saved(p, 's')
    step = newest_step('s')
    train('--out', 's', '--resume', '--steps', str(step + 20))
    train('--out', 's2', '--steps', str(step + 20))
    check(tensors('s') == tensors('s2'), 'goes on as if never stopped')
    p = subprocess.Popen([TOY, 'train', '--data', 'text.txt', '--out', 's3'], cwd=D, stdout=subprocess.DEVNULL,
                         stderr=subprocess.PIPE, text=True,
                         env=dict(os.environ, TOY_SLOW='1000000', TOY_MARK=path('s3.mark'), SHARDC_GRACE='1e-9'))
    until(lambda: os.path.exists(path('s3.mark')), p, 'its first step, which never ends')
    p.send_signal(signal.SIGTERM)
    next(x for x in p.stderr if x.startswith('stopping after this step'))
    p.send_signal(signal.SIGTERM), p.communicate(timeout=1200)
    check(p.returncode == 128 + signal.SIGTERM, f'a second signal after the grace leaves at once: {p.returncode}')
    p = begun('--out', 's6', front=['nohup'])
    p.send_signal(signal.SIGHUP)
    n = len(lines('s6'))
    until(lambda: len(lines('s6')) > n + 5, p, 'it goes on, under nohup')
    p.send_signal(signal.SIGTERM), saved(p, 's6')


def case_max_time():
    check('time is up' in train('--out', 's4', '--steps', '100000', '--max-time', '1s', env={'TOY_SLOW': '10'}),
          'max-time')
    check(sum(x['ms'] for x in lines('s4')[:-1]) < 1000, 'no step begins behind it')
    for seconds in 0.5, 2, 8, 32:
        # until the first step comes in time
        shutil.rmtree(path('s5'), True)
        train('--out', 's5', '--max-time', f'{seconds}s', '--eval-every', '1', '--eval-batches', '1',
              env={'TOY_SLOW_EVAL': str(int(1600 * seconds))})
        if newest_step('s5') or lines('s5'): break
    check(newest_step('s5') == 1, 'what was trained is saved when time runs out in an evaluation')


def case_moved():
    """A run directory that is moved or removed while it is trained into: checkpoints go to its present path, no data is
    lost, and other runs' files are not touched."""
    def stopped(p, out, says):
        p.send_signal(signal.SIGTERM)
        check(says in (err := saved(p, out)), err)
        n = newest_step(out)
        check([x['step'] for x in lines(out)] == list(range(1, n + 1))
              and os.readlink(path(out, 'latest')) == newest(out), f'{out}: all of {n} steps')
        return n
    p = begun('--out', 'mv/a', '--save-every', '5')
    os.makedirs(path('other')), os.rename(path('mv'), path('other/mv')), os.makedirs(path('mv/a'))
    n = len(lines('other/mv/a'))
    until(lambda: newest_step('other/mv/a') > n, p, 'a save in the moved directory')
    train('--out', 'other/mv/a', '--resume', expect=1, says='R0404')                  # still locked
    n = stopped(p, 'other/mv/a', f"note: the run directory mv/a is now {os.path.realpath(path('other/mv/a'))}")
    check(not os.listdir(path('mv/a')), 'what has the old name is left alone')
    train('--out', 'other/mv/a', '--resume', '--steps', str(n + 5)), train('--out', 'mv1', '--steps', str(n + 5))
    check(tensors('other/mv/a') == tensors('mv1'), 'the same bits')
    p = begun('--out', 'rm')
    shutil.rmtree(path('rm'))
    stopped(p, 'rm', 'note: the run directory rm is gone: the run continues in rm\n')
    p = begun('--out', 'rn')
    shutil.rmtree(path('rn')), open(path('rn'), 'w').close()
    stopped(p, 'rn-001', 'note: the run directory rn is gone: the run continues in rn-001\n')


def case_lost_data():
    """A data file that becomes shorter, while training or evaluating, ends the run with its name; the steps so far are
    saved."""
    for out, more in ('l1', ['--shuffle', 'off']), ('l2', ['--valid', 'v.txt', '--eval-every', '5', '--eval-batches',
                                                           '1']):
        for name in 'l.txt', 'v.txt': shutil.copy(TEXT, path(name))
        p = begun('--out', out, *more, data='l.txt')
        lost = 'v.txt' if out == 'l2' else 'l.txt'
        os.truncate(path(lost), 0)
        err = p.communicate(timeout=1200)[1]
        check(p.returncode == 4 and 'R0201' in err and f'--> {lost}: byte ' in err
              and 'the last good checkpoint is' in err, f'{p.returncode} {err}')
        n = int(newest(out)[5:])
        check([x['step'] for x in lines(out)] == list(range(1, n + 1)), 'metrics up to what is saved')
    train('--out', 'l1', '--resume', '--shuffle', 'off', '--steps', str(int(newest('l1')[5:]) + 5))


def limited_files(): resource.setrlimit(resource.RLIMIT_FSIZE, (200000, 200000))


def case_file_limit():
    """SIGXFSZ is no end without words."""
    toy('train', '--data', 'text.txt', '--out', 'limit', '--steps', '3', preexec_fn=limited_files, expect=1,
        says='R0403')
    check(not [f for f in os.listdir(path('limit')) if f.startswith('.new')], 'nothing half-written')


def case_damage():
    train('--out', 'd', '--steps', '20', '--save-every', '10')
    last = path('d', 'step-000020')
    good = {n: open(os.path.join(last, n), 'rb').read() for n in os.listdir(last)}
    older = tensors('d')
    for k in range(60):
        name = rng.choice(sorted(good))
        data = bytearray(good[name])
        at = rng.choice([rng.randrange(min(700, len(data))), rng.randrange(len(data))])
        data[at] ^= 1 << rng.randrange(8)
        if k % 6 == 5: data = data[:at]
        open(os.path.join(last, name), 'wb').write(data)
        toy('train', '--data', 'text.txt', '--out', 'd9', '--resume=d/step-000020', '--steps', '22', expect=4,
            says=name)
        check(not os.path.exists(path('d9')), 'nothing is made')
        open(os.path.join(last, name), 'wb').write(good[name])
    open(os.path.join(last, 'rank-00000.safetensors'), 'wb').write(b'')
    out = train('--out', 'd', '--resume=auto', '--steps', '20', says='resumed at step 10')
    check('warning[R0502]' in out and tensors('d') == older, 'the older one is taken, the result is the same')
    for s in 'step-000010', 'step-000020': os.remove(path('d', s, 'state.json'))
    train('--out', 'd', '--resume=auto', expect=4, says='R0502')


def limited(*args, limit, **kw):
    def pre():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    return toy('train', '--data', 'text.txt', *args, preexec_fn=pre, **kw)


def case_full_disk():
    train('--out', 'f', '--steps', '10')
    before = tensors('f')
    for limit in 2000, 100000, 400000:
        limited('--out', 'f', '--resume', '--steps', '12', limit=limit, expect=1, says='R0403')
        check(tensors('f') == before and newest('f') == 'step-000010', 'the old checkpoint stays')
        check(not [x for x in os.listdir(path('f')) if 'new-' in x or x.endswith('.tmp')], 'nothing half-written')
    train('--out', 'f', '--resume', '--steps', '12')
    train('--out', 'f2', '--steps', '12')
    check(tensors('f') == tensors('f2'), 'goes on once there is room')
    limited('--out', 'f3', '--steps', '2', limit=0, expect=1, says='R0403')
    small = subprocess.run(['unshare', '-rm', 'sh', '-c',
                            f'mkdir -p "{D}/tiny" && mount -t tmpfs -o size=600k none "{D}/tiny" && cd "{D}" '
        f'&& "{TOY}" train --data text.txt --out tiny/r --steps 40 --save-every 10; s=$?; ls -A tiny/r; exit $s'],
                           capture_output=True, text=True)
    if 'mount' in small.stderr or 'unshare' in small.stderr: print('full tmpfs: not permitted here')
    else:
        check(small.returncode == 1 and 'No space left' in small.stderr and '.new' not in small.stdout
              and 'step-000010' in small.stdout, 'full tmpfs: ' + small.stdout + small.stderr)


def case_folders():
    open(path('plain'), 'w').close()
    train('--out', 'plain/x', expect=1, says='R0401')
    train('--out', 'plain', expect=1, says='R0401')
    train('--out', '', expect=2, says='R0103')
    if os.getuid():
        os.mkdir(path('closed'), 0o500)
        train('--out', 'closed/x', expect=1, says='R0401'), train('--out', 'closed', expect=1, says='R0401')
    p = begun('--out', 'held')
    train('--out', 'held', '--resume', expect=1, says='R0404')
    p.kill(), p.communicate()
    train('--steps', '2', says='runs/Toy-001'), train('--steps', '2', says='runs/Toy-002')
    train('--steps', '4', '--resume', says='resumed at step 2')
    check(newest('runs/Toy-002') == 'step-000004', 'the newest run goes on')


def case_data():
    open(path('empty'), 'w').close()
    open(path('short'), 'w').write('tiny')
    open(path('odd.u32'), 'w').write('abcde')
    open(path('bad.npy'), 'wb').write(b'\x93NUMPY\1\0\x10\0' + b'{garbage}       ')
    toy('train', expect=4, says='R0205')
    for name, code, what in [('none', 4, 'R0201'), ('.', 4, 'R0201'), ('empty', 4, 'R0203'), ('short', 4, 'R0203'),
                             ('odd.u32', 4, 'R0202'), ('bad.npy', 4, 'R0202')]:
        out = toy('train', '--data', name, '--out', 'x', expect=code, says=what)
        check(name in out, f'{name} is named')
    open(path('one'), 'w').write('one sample, alone')                                # 17 bytes: a window
    for valid, says in ('50%', '50 % of it is validation data'), ('0%', 'done after 2 steps'):
        toy('train', '--data', 'one', '--valid', valid, '--out', 'one run', '--steps', '2', expect=0 if valid == '0%'
            else 4, says=says)
    check('number' in train('--format', 'u16', '--out', 'x', expect=4, says='R0204'),
          'position of an index that is too large')
    shutil.rmtree(path('x'), True)
    train('--format', 'nonsense', expect=2, says='R0103')
    train('--valid', '100%', expect=2, says='R0103')
    check(not os.path.exists(path('x')), 'nothing is made when the data is wrong')
    toy('eval', '--data', 'text.txt', '--valid', '0%', expect=4, says='R0203')
    data = open(TEXT, 'rb').read()
    half = len(data) // 2
    open(path('part1.txt'), 'wb').write(data[:half]), open(path('part2.txt'), 'wb').write(data[half:])
    header = struct.pack('<3i', 20240520, 1, len(data)) + bytes(1012)
    wide = b''.join(struct.pack('<H', b) for b in data)
    open(path('llm.bin'), 'wb').write(header + wide), open(path('bare.bin'), 'wb').write(wide)
    npy = b"{'descr': '<i8', 'fortran_order': False, 'shape': (%d,), }\n" % len(data)
    open(path('t.npy'), 'wb').write(b'\x93NUMPY\1\0' + struct.pack('<H', len(npy)) + npy
                                    + b''.join(struct.pack('<q', b) for b in data))
    train('--out', 'y0', '--steps', '30')
    for i, name in enumerate(['llm.bin', 'bare.bin', 't.npy']):
        toy('train', '--data', name, '--out', f'y{i + 1}', '--steps', '30')
        check(losses(f'y{i + 1}') == losses('y0'), f'{name}: same losses')
    toy('train', '--data', 'part?.txt', '--out', 'yy', '--steps', '30', says='training')
    toy('train', '--data', 'part1.txt', '--valid', 'part2.txt', '--out', 'yz', '--steps', '30', says='validation loss')


def case_usage():
    toy('trian', expect=2, says='did you mean `train`')
    toy('train', '--step', '3', expect=2, says='did you mean --steps')
    toy('train', '--steps', 'many', expect=2, says='R0103')
    toy('train', '--steps', expect=2, says='needs a value')
    toy('info', '--steps', '3', expect=2, says='R0104')
    toy('train', 'again', 'x', expect=2, says='R0102')
    train(expect=3, says='R0101', env={'WORLD_SIZE': '8'})
    for command in 'train', 'eval', 'sample', 'export':
        toy(command, '--resume=r', '--init', 'x', expect=2, says='R0104')
    train('--set', '', expect=2, says='--set takes KEY=VALUE')
    for word in ('--kernels', 'k'), ('--no-graph',): train('--out', 'nogpu', *word, expect=2, says='is about GPUs')


def case_documents():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
    page = open(os.path.join(root, 'docs', 'executable.md')).read()
    for option in re.findall(r'^  (--[a-z-]+)', toy('--help'), re.M): check(option in page, f'{option} is documented')
    for row in re.findall(r'RT_ERROR\((\d+), (\d+), "(.*)"\)',
                          open(os.path.join(root, 'runtime/base/errors.def')).read()):
        check(f'| R{int(row[0]):04d} | {row[1]} | {row[2]} |' in page, f'R{row[0]} is documented')


def case_weights():
    train('--out', 'w', '--steps', '30')
    w = f'w/{newest("w")}/rank-00000.safetensors'
    train('--init', w, '--steps', '0', '--out', 'w0', '--dump', 'dump.safetensors')
    head, data = read_safetensors(path('dump.safetensors'))
    whead, wdata = read_safetensors(path(w))
    cut = lambda h, b, n: b[slice(*h[n]['data_offsets'])]
    check(cut(head, data, 'w') == cut(whead, wdata, 'w'), 'parameters are taken over')
    check(not any(cut(head, data, 'w.momentum')), 'states are not')
    check('loss' not in head, 'what no step has computed is not dumped')
    check(whead['__metadata__']['place.w'] == '0:256/256,0:256/256', 'places')
    raw = open(path(w), 'rb').read()
    open(path('cut.safetensors'), 'wb').write(raw[:-5])
    open(path('lie.safetensors'), 'wb').write(struct.pack('<Q', 1 << 60) + raw[8:])
    write_safetensors('other.safetensors', 'v', [256, 256]), write_safetensors('shape.safetensors', 'w', [256, 255])
    for name, what in [('none', 'R0301'), ('cut.safetensors', 'R0302'), ('lie.safetensors', 'R0302'),
                       ('text.txt', 'R0302'),
                       ('other.safetensors', 'R0303'), ('shape.safetensors', 'R0303')]:
        train('--init', name, '--out', 'w1', expect=4, says=what)
    check(not os.path.exists(path('w1')), 'nothing is made')


def read_safetensors(p):
    raw = open(p, 'rb').read()
    n, = struct.unpack('<Q', raw[:8])
    return json.loads(raw[8:8 + n]), raw[8 + n:]


def write_safetensors(name, tensor, shape):
    n = 4 * shape[0] * shape[1]
    head = json.dumps({tensor: {'dtype': 'F32', 'shape': shape, 'data_offsets': [0, n]}}).encode()
    open(path(name), 'wb').write(struct.pack('<Q', len(head)) + head + bytes(n))


def write_slices(folder, state, ranks):
    """A checkpoint of several files: each a list of (name, [(begin, end) per dim], bytes)."""
    os.makedirs(path(folder))
    files = []
    for k, slices in enumerate(ranks):
        head, at = {'__metadata__': {}}, 0
        for name, box, data in slices:
            head['__metadata__']['place.' + name] = ','.join(f'{a}:{b}/256' for a, b in box)
            head[name] = {'dtype': 'F32', 'shape': [b - a for a, b in box], 'data_offsets': [at, at + len(data)]}
            at += len(data)
        head = json.dumps(head).encode()
        raw = struct.pack('<Q', len(head)) + head + b''.join(x[2] for x in slices)
        files.append({'name': f'rank-{k:05d}.safetensors', 'bytes': len(raw), 'xxh64': xxh64(raw)})
        open(path(folder, files[-1]['name']), 'wb').write(raw)
    text = json.dumps({**{k: v for k, v in state.items() if k != 'check'}, 'files': files})[:-1]
    open(path(folder, 'state.json'), 'w').write(text + ',"check":"' + xxh64(text.encode()) + '"}\n')


def case_slices():
    """Files written by three ranks: w cut by rows, its momentum by columns."""
    train('--out', 'v', '--steps', '20'), train('--out', 'v1', '--steps', '40')
    head, data = read_safetensors(path('v', newest('v'), 'rank-00000.safetensors'))
    cut = lambda n: data[slice(*head[n]['data_offsets'])]
    w, m = cut('w'), cut('w.momentum')
    rows = lambda a, b: ('w', [(a, b), (0, 256)], w[a * 1024:b * 1024])
    columns = lambda a, b: ('w.momentum', [(0, 256), (a, b)],
                            b''.join(m[r * 1024 + a * 4:r * 1024 + b * 4] for r in range(256)))
    state = json.load(open(path('v', newest('v'), 'state.json')))
    write_slices('v2/step-000020', state, [[rows(0, 100), columns(0, 7)], [rows(100, 256)], [columns(7, 256)]])
    train('--out', 'v2', '--resume', '--steps', '40', says='resumed at step 20')
    check(tensors('v1') == tensors('v2'), 'slices make the whole')
    write_slices('v3/step-000020', state, [[rows(0, 100), columns(0, 7)], [rows(101, 256), columns(7, 256)]])
    train('--out', 'v3', '--resume', expect=4, says='is incomplete')
    write_slices('v4/step-000020', state, [[rows(0, 156), columns(0, 256)], [rows(100, 200)]])
    train('--out', 'v4', '--resume', expect=4, says='overlap')


def case_guard():
    out = train('--out', 'n', '--save-every', '10', expect=5, says='R0601', env={'TOY_NAN': '24'})
    check('w.momentum (1)' in out and 'clean: w' in out and 'step-000020' in out,
          'names what is not finite, and the checkpoint')
    check(newest('n') == 'step-000020', 'the last good checkpoint stays')
    train('--out', 'n', '--resume', '--steps', '30', says='resumed at step 20')


def case_memory():
    out = train('--out', 'm', '--steps', '20', '--eval-every', '5', '--check-memory')
    rows = {x.split()[0]: x.split()[1:] for x in out.splitlines() if x.startswith(('step ', 'eval '))
            and x.split()[1].isdigit()}
    check(rows['step'] == ['131584'] * 3 + ['exact'] and rows['eval'] == ['131584'] * 3 + ['exact'],
          f'touched = predicted: {rows}')
    train('--out', 'm0', '--steps', '20', '--eval-every', '5')
    check(tensors('m') == tensors('m0'), 'poison changes nothing')
    train('--out', 'm1', '--check-memory', expect=1, says='R0702', env={'TOY_OVERRUN': '1'})
    train('--out', 'm2', expect=1, says='R0702', env={'TOY_STRAY': '1', 'SHARDC_DEBUG': 'arena'})
    if COUNTING == '-': return
    train('--out', 'm3', '--steps', '30', exe=COUNTING)
    train('--out', 'm4', exe=COUNTING, expect=1, says='R0703', env={'TOY_ALLOC': '1'})


write_text()
cases = sys.argv[3:] or [x[5:] for x in globals().copy() if x.startswith('case_')]
for name in cases:
    start = time.time()
    globals()['case_' + name]()
    print(f'{name}: good, {time.time() - start:.1f} s', flush=True)
shutil.rmtree(D)
