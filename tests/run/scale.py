"""Training in f16 finds its loss scale: python3 scale.py SHARDC

A small GPT, from a scale at which the first steps overflow. Skipped steps change neither weights nor states; the scale
falls until gradients fit, rises after `growth_interval` good steps, and is shown. A killed run resumes bit by bit, with
scale and counters. Ranks (data, ZeRO 0 to 3, tensor) skip steps together and train alike, also with micro-batches. A
gradient that is not finite at the smallest scale, or a loss, ends the run as in other types, whatever `on_nan` says.
"""
import json, os, random, re, shutil, subprocess, sys, time
from common import check, read, run, tensors, text_file, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
MODEL = '''use "gpt2"
variant Small of GPT2 { Pos = 16; Vocab = 256; Embed = 32; Heads = 4; Layers = 2 }
train t for Small {
  size  Seq = 16
  batch 8
  steps 40
  data  "text.txt" format = bytes
  optim adamw lr = 2e-3
  clip  1.0
  MORE
}
'''
PLANS = {'wide': 'precision f32', 'one': 'precision HALF', 'parts': 'micro 2; precision HALF',
         **{f'zero{z}': f'mesh data = 2; place Batch -> data; zero {z} over data; precision HALF' for z in range(4)},
         'four': 'mesh data = 2, tensor = 2; micro 2; place Batch -> data; place Heads, Mlp, Vocab -> tensor else Seq; zero 3 over data; precision HALF'}
RANKS = {'four': 4, **{f'zero{z}': 2 for z in range(4)}}


def compiled(plan, half='f16', more='', name=None):
    name = name or plan
    open(f'{folder}/{name}.shard', 'w').write(MODEL.replace('MORE', more)
                                              + f'plan p for Small {{ {PLANS[plan].replace("HALF", half)} }}\n')
    run(SHARDC, 'compile', f'{name}.shard', '--plan', 'p', '-o', name, '--quick', '-q', cwd=folder)


def command(exe, out, *more):
    n = RANKS.get(exe, 1)
    start = (f'./{exe}',) if n == 1 else (SHARDC, 'run', f'./{exe}', '-n', str(n), '--')
    return (*start, 'train', '--out', f'{out}.run', '--threads', '1', *more)


def train(exe, out, *more, expect=0): return run(*command(exe, out, *more), cwd=folder, expect=expect)[1]
def lines(out): return [json.loads(x) for x in open(f'{folder}/{out}.run/metrics.jsonl')]
def without_time(out):
    return [{k: v for k, v in x.items() if not k.endswith('ms') and k != 'slowest'} for x in lines(out)]


def checkpoint(out, step):
    return read(f'{folder}/{out}.run/step-{step:06d}/rank-00000.safetensors')


def parameters_and_moments(path):
    """name: bytes, of all that an update writes"""
    return {k: v for k, v in tensors(read(path)).items() if '.of.' not in k}


def worst(a, b): return max(abs(x['loss'] - y['loss']) for x, y in zip(lines(a), lines(b), strict=True))


LARGE = 'f16 init_scale = 1e8 growth_interval = 6'
text_file(f'{folder}/text.txt')
for plan in PLANS: compiled(plan, LARGE)
compiled('one', name='plain'), compiled('parts', name='plain_parts')
train('wide', 'wide', '--steps', '20'), train('plain', 'plain', '--steps', '20'), train('plain_parts', 'plain_parts',
                                                                                        '--steps', '20')
for out in 'plain', 'plain_parts':
    check(0 < worst('wide', out) <= 2e-2, f'{out}: {worst("wide", out)} away from f32')
    check(all(x['scale'] == 65536 and 'skipped' not in x for x in lines(out)), 'nothing overflows at 65536')

# ---- steps skipped, then a scale found ----
said = train('one', 'one', '--save-every', '1', '--keep', '99', '--log-every', '1')
rows = lines('one')
first = next(i for i, x in enumerate(rows) if 'skipped' not in x)
check(first >= 4 and all('skipped' in x for x in rows[:first]), f'{first} steps are left out at first')
for a, b in zip(rows, rows[1:]):
    check(b['scale'] == a['scale'] / 2 or 'skipped' not in a and b['scale'] in (a['scale'], 2 * a['scale']), f'{a} {b}')
check(rows[first + 6]['scale'] == 2 * rows[first]['scale'] or any('skipped' in x for x in rows[first:first + 6]),
      'six good steps double it')
check(rows[-1]['loss'] < rows[first]['loss'] - 0.3, 'and it trains')
check(re.search(rf'step 4/40 .*scale 1.25e\+07  left out 4', said), said[:600])
check('norm inf' not in said and 'norm nan' not in said, 'a norm that is none is not shown')
check(': all were left out, nothing is trained' in run(*command('one', 'none', '--steps', '1'), cwd=folder)[0],
      'said at the end')
peak = {x: train('one', f'peak_{x}', '--steps', '1', '--set', f'machine.node.{x}=1e12') for x in ('f16', 'f32')}
check('MFU n/a' in peak['f32'] and 'MFU n/a' not in peak['f16'], 'MFU is of the peak of f16')
start = parameters_and_moments(f'{folder}/none.run/step-000001/rank-00000.safetensors')
check(start == parameters_and_moments(f'{folder}/one.run/step-{first:06d}/rank-00000.safetensors'),
      'steps left out change nothing')
check(start != parameters_and_moments(f'{folder}/one.run/step-{first + 1:06d}/rank-00000.safetensors'),
      'the next one does')

# ---- killed and resumed ----
rng = random.Random(11)
for k in range(3):
    p = subprocess.Popen(command('one', f'k{k}', '--save-every', '2', '--quiet'), cwd=folder, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
    while not os.path.isdir(f'{folder}/k{k}.run/step-000002') and p.poll() is None: time.sleep(0.001)
    time.sleep(rng.uniform(0, 0.05))
    p.kill(), p.wait()
    train('one', f'k{k}', '--resume')
    check(without_time(f'k{k}') == without_time('one') and checkpoint(f'k{k}', 40) == checkpoint('one', 40),
          'a resumed run has other bits')

# ---- many ranks and parts ----
for plan in list(RANKS) + ['parts']:
    train(plan, plan)
    check(all(a['scale'] == b['scale'] for a, b in zip(rows[:4], lines(plan))),
          f'{plan}: {[x["scale"] for x in lines(plan)]}')
    check(all(abs(a['loss'] - b['loss']) < 2e-3 for a, b in zip(rows[:4], lines(plan))),
          f'{plan}: before the first update')
    check(abs(lines(plan)[-1]['loss'] - rows[-1]['loss']) < 0.15, f'{plan}: {lines(plan)[-1]} {rows[-1]}')
same = [[x['loss'] for x in lines(f'zero{z}')] for z in range(4)]
check(same[1] == same[0] and same[2] == same[1] and same[3] == same[2], 'ZeRO gives the same losses')
train('zero2', 'broken', '--steps', '13'), train('zero2', 'broken', '--resume')
check(without_time('broken') == without_time('zero2'), 'a resumed run of two ranks differs')

# ---- faults are faults ----
for policy in 'on_nan stop', 'on_nan off':
    compiled('one', 'f16 init_scale = 1e8 min_scale = 5e7', policy, name='stuck')
    said = train('stuck', 'stuck_' + policy[-3:], expect=5)
    check('R0601' in said and 'step 2: a gradient is not finite' in said, said)
print(f'{first} steps left out at first; 20 steps at 65536 are {worst("wide", "plain"):.1e} from f32; killed runs, ranks and parts agree')
shutil.rmtree(folder)
