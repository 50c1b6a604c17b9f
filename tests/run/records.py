"""Tuning records in the forecast: python3 records.py SHARDC

A processor's records are measured once, their times then replaced by known ones: kernels of their shapes take these
times, `plan` and `info` name the source of each part and its error, other shapes follow the nearest record, ranks that
share a node take longer in proportion, and shapes that are too far away keep the arch's rates. The same for a GPU, with
a file made by hand, which needs no GPU. Records without a shape (older files) and broken shapes change no forecast.
"""
import json, os, shutil, subprocess, sys
from common import EXAMPLES, check, run, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
MODEL = '''use "gpt2"
variant M of GPT2 { Pos = 32; Vocab = 256; Embed = 64; Heads = 2; Layers = 2 }
train t for M { size Seq = 32; batch 8; steps 8; data "t.bin" format = u16; optim adamw lr = 1e-4 }
machine box { node cores = 2 arch = x86_64_v3 memory = 8GiB f32 = 2TFLOPS hbm = 200GB/s
  link intra = 50GB/s
  reached memory = 40GB/s launch = 9us }
machine gpu { node gpus = 1 arch = sm_90a memory = 8GiB }
plan p for M { on box; micro 8; precision f32 }
plan g for M { on gpu; micro 8; precision f32 }
plan half for M { on box; micro 2; precision f32 }
plan pair for M { on box; mesh data = 2; place Batch -> data; micro 2; precision f32 }
'''
KEY, TARGET, WORKERS, DEVICE, CUT, NS, SHAPE = 1, 2, 3, 4, 6, 7, 11
open(f'{folder}/m.shard', 'w').write(MODEL)


def write(rows): open(f'{folder}/a.tune', 'w').write(''.join('\t'.join(r) + '\n' for r in rows))


def plan(name, *options, rows=None):
    """The forecast as JSON (with an option, the text of `plan`), and stderr."""
    if rows is not None: write(rows)
    with_records = ['--tune-db', 'a.tune'] if rows is not None else []
    told, said = run(SHARDC, 'plan', 'm.shard', '--plan', name, *with_records, *(options or ['--json']), cwd=folder)
    return told if options else json.loads(told)['forecast'], said


def sources(forecast): return {s['source']: (set(s['parts'].split(', ')), s['error']) for s in forecast['sources']}
def near(a, b, words): check(abs(a - b) <= 2e-3 * abs(b), f'{words}: {a}, not {b}')


run(SHARDC, 'tune', 'm.shard', '--plan', 'p', '--candidates', '1', '--rounds', '1', '-o', 'a.tune', '-q', cwd=folder)
measured = [line.rstrip('\n').split('\t') for line in open(f'{folder}/a.tune') if not line.startswith('#')]
check(all(len(r) == SHAPE + 1 for r in measured), f'a record without a shape: {measured}')
timed = lambda ns, family='': [r[:NS] + [str(ns) if r[0].startswith(family) else '1000'] + r[NS + 1:] for r in measured]

# of the same shapes: all products take a known time
plain = plan('p')[0]
one, two = (plan('p', rows=timed(ns, 'contract'))[0] for ns in (1000, 3000))
near(two['seconds']['products'], 3 * one['seconds']['products'], 'products')
check(one['seconds']['attention'] == two['seconds']['attention'], f'{one} {two}')
check(sources(one)['record'] == ({'products', 'attention'}, 0.05), str(one['sources']))
check(sources(one)['machine'] == ({'memory', 'launches'}, 0.1), str(one['sources']))
check(sources(plain) == {'machine': ({'memory', 'launches'}, 0.1), 'guess': ({'products', 'attention'}, 0.5)},
      str(plain))
check(0.05 < one['error'] < 0.1 < plain['error'] < 0.5, f'{one["error"]}, {plain["error"]}')
said = plan('p', '--no-verify', rows=timed(1000))[0]
check('\n  tuning records, error about 5 %: products, attention\n' in said, said)

# other shapes follow the nearest record; each of two ranks that share the node takes twice as long for half as many
half, pair = (plan(name, rows=timed(1000))[0] for name in ('half', 'pair'))
check(sources(half)['nearest'][0] == {'products', 'attention'}, str(half))
near(pair['seconds']['products'], half['seconds']['products'], 'products of two ranks')
near(pair['seconds']['attention'], half['seconds']['attention'], 'attention of two ranks')
check(0.05 <= sources(half)['nearest'][1], str(half['sources']))

# a record that is far away says nothing of times; its cut, which was the fastest of two, may deal chunks out otherwise
far = [r[:SHAPE] + [' '.join(str(int(n) * 10 ** 6) if i in (5,) else n for i, n in enumerate(r[SHAPE].split()))]
       for r in timed(1000)]
about = lambda f: 0.7 < f['seconds']['products'] / plain['seconds']['products'] < 1.3
check(about(plan('p', rows=far)[0]), 'a far record')

# other workers, other targets, no shape, broken shapes: the forecast without times of records
for at, value in (WORKERS, '3'), (TARGET, 'x86_64_v4'), (SHAPE, None):
    rows = [r[:at] + [value] * (value is not None) + r[at + 1:] for r in timed(1000)]
    f, said = plan('p', rows=rows)
    check((about(f) if at == SHAPE else f == plain) and 'W1206' not in said, f'field {at}: {said}')
    check(('W1209' in said) == (value is not None), f'records of others are named: {said}')
    if at == WORKERS: check('with 3 workers' in said and 'none is of as many workers' in said, said)
    if at == TARGET: check('x86_64_v4 with ' in said and 'none is of this target' in said, said)
f, said = plan('p', rows=[])
check(f == plain and 'W1209' in said and 'it has none' in said, f'an empty file: {said}')
broken = ['f32', 'f32 1 2 3 4 5', 'f32 1 2 3 4 5 6 7', 'u7 1 2 3 4 5 6', 'f32 1 2 3 4 5 -6', 'f32 1 2 0 4 5 6', ' ']
f, said = plan('p', rows=[r[:SHAPE] + [shape] for r, shape in zip(timed(1000), broken * 9)])
check(about(f) and f'{len(measured)} lines of `a.tune` are ignored' in said, f'broken shapes: {said}')

# a GPU's records, made by hand: the shapes are those of any target
numbers = next(n for n in range(5, 13) if 'W1206' not in plan('g', rows=[
    ['contract', 'hand-made', 'sm_90a', '1', 'H100', 'by hand', ' '.join(['1'] * n), '1', '1', '1', '2026-01-01']])[1])
by_hand = [[r[0], f'hand-made-{i}', 'sm_90a', '1', 'H100', 'by hand', ' '.join(['1'] * numbers), '2000', '2000', '9',
            '2026-01-01', r[SHAPE]] for i, r in enumerate(measured) if r[0] == 'contract']
plain = plan('g')[0]
(gpu, said), text = plan('g', rows=by_hand), plan('g', '--no-verify', rows=by_hand)[0]
check(sources(plain) == {'arch': ({'products', 'attention', 'memory', 'launches'}, 0.15)}, str(plain['sources']))
check('products' in sources(gpu)['record'][0] and sources(gpu)['arch'][0] == {'attention', 'memory', 'launches'}, text)
check('tuning records of this target' in text and gpu['tuning_records'] == len(by_hand), text)
check(plain['tuning_records'] == 0, str(plain))
check('W12' not in said and gpu['seconds']['attention'] == plain['seconds']['attention'], said)
twice = plan('g', rows=[r[:NS] + ['4000'] + r[NS + 1:] for r in by_hand])[0]
near(twice['seconds']['products'], 2 * gpu['seconds']['products'], 'products of the GPU')
check('table of sm_90a (H100 SXM), checked by GPT-2 on one H100, error about 15 %: attention, memory' in text, text)

# the executable says it as well, and holds no times of records; the search and records are refused together
write(timed(1000))
run(SHARDC, 'compile', 'm.shard', '--plan', 'p', '--tune-db', 'a.tune', '-o', 'm', '-q', '--dump-ir', 'ir', cwd=folder)
said = run('./m', 'info', '--all', cwd=folder)[0]
check('made.forecast.record = products, attention: error about 5 %' in said and 'tune.time' not in said, said)
check('made.forecast.machine = memory, launches: error about 10 %' in said, said)
last = sorted(os.listdir(f'{folder}/ir'))[-1]
again = json.loads(run(SHARDC, 'plan', f'ir/{last}', '--json', cwd=folder)[0])['forecast']
check(sources(again)['record'][0] == {'products', 'attention'}, str(again['sources']))
p = subprocess.run([SHARDC, 'plan', 'm.shard', '--search', '--tune-db', 'a.tune'], cwd=folder, capture_output=True,
                   text=True, env=dict(os.environ, SHARDC_PATH=EXAMPLES))
check(p.returncode == 2 and 'no tuning records' in p.stderr, p.stderr)
print(f'{len(measured)} records')
shutil.rmtree(folder)
