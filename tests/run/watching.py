"""Metrics in the formats of other tools: python3 watching.py SHARDC

`--log-as csv,tensorboard` and `--metrics HOST:PORT` have the figures of metrics.jsonl, also after a resume from an
earlier step. Event files are read by their definition (TFRecord with CRC-32C, protobuf), and by TensorBoard's own
reader where it is installed; the page for Prometheus also by prometheus_client. The recipes of docs/clusters.md for
Weights & Biases and MLflow run where these are installed.
"""
import csv, glob, json, os, re, shutil, signal, socket, struct, subprocess, sys, time, urllib.request
from common import EXAMPLES, ROOT, check, run, text_file, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
MODEL = '''use "gpt2"
variant Small of GPT2 { Pos = 8; Vocab = 257 pad 8; Embed = 16; Heads = 2; Layers = 1 }
train t for Small { size Seq = 8; batch 4; steps 12; data "text.txt" format = bytes valid = 10%
  eval every = 4 batches = 2; save every = 4; optim adamw lr = 2e-3; clip 1.0 }
plan two for Small { mesh dp = 2
 place Batch -> dp }
machine box { node cpus = 1 arch = x86_64_v3 memory = 16GiB f32 = 0.1TFLOPS hbm = 20GB/s }
plan boxed for Small { on box }
'''
TAGS = {'loss': 'loss/train', 'valid_loss': 'loss/validation', 'lr': 'optimizer/lr', 'grad_norm': 'optimizer/grad_norm',
        'samples': 'progress/samples', 'tokens': 'progress/tokens', 'ms': 'time/step_ms', 'waited_ms': 'time/waited_ms',
        'slowest': 'time/slowest_rank', 'slower_ms': 'time/slower_ms'}


def records(path):
    """The payloads of a TFRecord file, each with correct checksums."""
    def masked(data):
        crc = 0xffffffff
        for b in data:
            crc ^= b
            for _ in range(8): crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
        crc ^= 0xffffffff
        return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff
    data, at = open(path, 'rb').read(), 0
    while at < len(data):
        n, = struct.unpack_from('<Q', data, at)
        check(struct.unpack_from('<I', data, at + 8)[0] == masked(data[at:at + 8]), 'checksum of a length')
        payload = data[at + 12:at + 12 + n]
        check(struct.unpack_from('<I', data, at + 12 + n)[0] == masked(payload), 'checksum of a record')
        at += 16 + n
        yield payload


def fields(data):
    """(field, value) of a message of protobuf."""
    at = 0
    def varint():
        nonlocal at
        v = shift = 0
        while True:
            b = data[at]; at += 1
            v |= (b & 127) << shift; shift += 7
            if b < 128: return v
    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0: value = varint()
        elif kind == 1: value, at = struct.unpack_from('<d', data, at)[0], at + 8
        elif kind == 5: value, at = struct.unpack_from('<f', data, at)[0], at + 4
        else:
            n = varint()
            value, at = data[at:at + n], at + n
        yield key >> 3, value


def events(out):
    """{tag: {step: value}} of all event files, later files in place of earlier ones from their first step on."""
    held = {}
    for path in sorted(glob.glob(f'{folder}/{out}/events.out.tfevents.*')):
        for payload in records(path):
            event = dict(fields(payload))
            if 7 in event:
                for t in held.values():
                    for s in [s for s in t if s >= event[2]]: del t[s]
            for _, value in fields(event.get(5, b'')):
                value = dict(fields(value))
                held.setdefault(value[1].decode(), {})[event[2]] = value[2]
    return held


def lines(out): return [json.loads(x) for x in open(f'{folder}/{out}/metrics.jsonl')]


def same(out):
    want, rows, seen = lines(out), list(csv.DictReader(open(f'{folder}/{out}/metrics.csv'))), events(out)
    check([int(r['step']) for r in rows] == [w['step'] for w in want], f'{out}: rows of metrics.csv')
    for w, row in zip(want, rows):
        for key, tag in TAGS.items():
            has = key in w
            check(has == (row[key] != '') == (w['step'] in seen.get(tag, {})), f'{out}: {key} of step {w["step"]}')
            if key in w:
                check(abs(float(row[key]) - w[key]) <= 1e-6 * abs(w[key]), f'{out}: {key}')
                check(abs(seen[tag][w['step']] - w[key]) <= 1e-6 * abs(w[key]), f'{out}: {tag}')
    try: from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError: return 'by definition'
    reader = EventAccumulator(f'{folder}/{out}')
    reader.Reload()
    check([e.step for e in reader.Scalars('loss/train')] == [w['step'] for w in want], f'{out}: steps in TensorBoard')
    check(all(abs(e.value - w['loss']) < 1e-5 for e, w in zip(reader.Scalars('loss/train'), want)), 'losses')
    return 'TensorBoard'


def train(*words, expect=0): return run('./one', 'train', '--quiet', *words, cwd=folder, expect=expect)


def page(port):
    with urllib.request.urlopen(f'http://127.0.0.1:{port}/metrics', timeout=20) as answer:
        check(answer.headers['Content-Type'].startswith('text/plain; version=0.0.4'), 'type of the page')
        return answer.read().decode()


def case_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        port = s.getsockname()[1]
    p = subprocess.Popen(['./one', 'train', '--steps', '1000000', '--eval-every', '5', '--out', 'port', '--quiet',
                          '--metrics', f'127.0.0.1:{port}'], cwd=folder, stdout=subprocess.DEVNULL)
    try:
        while not os.path.exists(f'{folder}/port/metrics.jsonl') or len(lines('port')[:9]) < 9: time.sleep(0.05)
        with socket.create_connection(('127.0.0.1', port)): pass          # a visitor that says nothing
        text = page(port)
        figures = dict(re.findall(r'^shardc_(\w+) (\S+)$', text, re.M))
        check(float(figures['step']) >= 9 and float(figures['steps']) == 1000000, text)
        check(float(figures['loss']) > 0 and float(figures['valid_loss']) > 0, text)
        check('model="Small",ranks="1"' in text, text)
        later = page(port).split('\nshardc_samples_total ')[1].split()[0]
        check(float(later) >= float(figures['samples_total']), 'grows')
        busy = run('./one', 'train', '--out', 'busy', '--metrics', f'127.0.0.1:{port}', cwd=folder, expect=4)[1]
        check('R0110' in busy and 'in use' in busy, busy)
        try:
            from prometheus_client.parser import text_string_to_metric_families
            names = {f.name for f in text_string_to_metric_families(text)}
            check({'shardc_loss', 'shardc_samples', 'shardc_run'} <= names, f'{names}')
        except ImportError: pass
    finally:
        p.terminate()
        check(p.wait(60) == 75, 'ends with the run')


def case_rank_logs():
    """What ranks print is in their files, and on stderr as before; the starts of a run follow each other."""
    words = './two', 'train', '--nnodes', '1', '--out', 'logs', '--rank-logs', '--log-every', '4'
    for resume in (), ('--resume', '--steps', '16'): said = run(*words, *resume, cwd=folder)[1]
    log = open(f'{folder}/logs/rank-0.log').read()
    check(os.path.exists(f'{folder}/logs/rank-1.log') and 'step 16/16' in said, said)
    check([log.count(f'step {n}/') for n in (4, 12, 16)] == [1, 1, 1], log)
    run('./two', 'train', '--nnodes', '1', '--out', 'none', '--quiet', cwd=folder)
    check(not glob.glob(f'{folder}/none/rank-*.log'), 'only on request')


def case_forecast():
    """The progress line has the forecast of `plan`, where the plan has a machine."""
    run(SHARDC, 'compile', 'm.shard', '--plan', 'boxed', '-o', 'boxed', '-q', '--quick', cwd=folder)
    plan = json.loads(run(SHARDC, 'plan', 'm.shard', '--plan', 'boxed', '--json', cwd=folder)[0])
    said = run('./boxed', 'train', '--out', 'boxed.run', '--steps', '2', cwd=folder)[1]
    shown = re.search(r' ms \(forecast ([\d.e+-]+)\)', said)
    check(shown and abs(float(shown[1]) / 1e3 / plan['forecast']['seconds_per_step'] - 1) < 0.01, f'{said}\n{plan}')


def case_follow():
    """The page of `report --follow` shows steps that come later, and after Ctrl-C no longer reloads."""
    page = lambda: open(f'{folder}/f.html').read() if os.path.exists(f'{folder}/f.html') else ''
    p = subprocess.Popen([SHARDC, 'report', '--follow', 'plain', '-o', 'f.html'], cwd=folder)
    while 'http-equiv="refresh"' not in page(): time.sleep(0.1)
    before = page()
    train('--out', 'plain', '--resume', '--steps', '16')
    while page() == before: time.sleep(0.1)
    p.send_signal(signal.SIGINT)
    check(p.wait() == 0 and 'http-equiv="refresh"' not in page() and '<td>16</td>' in page(), page())


def case_refused():
    for text in 'csv,tensorbord', '', 'csv,', 'json':
        check('R0103' in train('--out', 'no', '--log-as', text, expect=2)[1], text)
    bad = '127.0.0.1', '127.0.0.1:0', '127.0.0.1:x', ':9400', '127.0.0.1:65536', 'nowhere.invalid:9400'
    for i, text in enumerate(bad):
        check('R0110' in train('--out', f'no{i}', '--metrics', text, expect=4)[1], text)


def case_recipes():
    """The blocks of Python of docs/clusters.md, where their packages are installed."""
    text = open(f'{ROOT}/docs/clusters.md').read()
    for code in re.findall(r'```python\n(.*?)```', text, re.S):
        name = re.search(r'import .*?(wandb|mlflow)', code)[1]
        try: __import__(name)
        except ImportError: continue
        env = {**os.environ, 'WANDB_MODE': 'offline', 'WANDB_SILENT': 'true',
               'MLFLOW_TRACKING_URI': f'file:{folder}/mlruns', 'MLFLOW_ALLOW_FILE_STORE': 'true'}
        p = subprocess.run([sys.executable, '-c', code, 'both'], cwd=folder, env=env, capture_output=True, text=True)
        check(p.returncode == 0, f'{name}: {p.stderr}')
        print('recipe of', name)


try:
    open(f'{folder}/m.shard', 'w').write(MODEL)
    text_file(f'{folder}/text.txt', 8000)
    run(SHARDC, 'compile', '--quick', 'm.shard', '-o', 'one', '-q', cwd=folder)
    run(SHARDC, 'compile', '--quick', 'm.shard', '--plan', 'two', '-o', 'two', '-q', cwd=folder)
    train('--out', 'both', '--log-as', 'csv,tensorboard')
    print('read by', same('both'))
    shutil.rmtree(f'{folder}/both/step-000012')
    train('--out', 'both', '--resume=auto', '--steps', '14', '--log-as', 'csv,tensorboard')   # from step 8
    same('both')
    train('--out', 'plain', '--steps', '4')
    train('--out', 'plain', '--resume', '--log-as', 'csv')                                    # asked for later
    check(len(list(csv.DictReader(open(f'{folder}/plain/metrics.csv')))) == 12, 'rows of before')
    run('./two', 'train', '--nnodes', '1', '--out', 'ranks', '--quiet', '--log-as', 'tensorboard,csv', cwd=folder)
    same('ranks')
    case_port(), case_rank_logs(), case_forecast(), case_follow(), case_refused(), case_recipes()
finally:
    shutil.rmtree(folder)
