"""Settings that bound each other: limits.py SHARDC

Each of two values is right by itself, and both together are not: refused at one of them, in a file and by --set alike,
where the place is in the option; values at the bound are accepted.
"""
import os, re, subprocess, sys, tempfile

SHARDC = os.path.abspath(sys.argv[1])
MODEL = '''use "std"
dims { Batch, Seq; Vocab = 128; Embed = 8 }
model M {
  input tokens, targets [Batch, Seq] of Vocab
  input valid [Batch, Seq] bool
  param w [Vocab, Embed] ~ normal(1)
  x = where(valid, w[Vocab = tokens], 0)
  loss cross_entropy[Vocab](dot[Embed](x, w), targets, ignore = -100)
}
train t for M {
  size  Seq = 8
  batch 4
  steps 40
  data  "a.bin" pack = off, eot = 2, pad_id = 3, mask_id = 0, task = mlm(tokens -> targets, valid = valid%s)%s
  optim %s
  lr    %s
  %s
}
machine box {
  node memory = 1GiB %s
}
plan p for M {
  on box
  micro 4
  %s
}
'''
HOLES = dict(task='', data='', optim='adamw', lr='cosine', train='', node='', plan='')
wrong = []


def dump(folder, holes, *sets):
    source = MODEL % tuple(dict(HOLES, **holes).values())
    open(f'{folder}/m.shard', 'w').write(source)
    sets = [x for s in sets for x in ('--set', s)]
    r = subprocess.run([SHARDC, 'dump', 'm.shard', '--plan', 'p', '--after', 'lower', '-o', 'm.ir', *sets], cwd=folder,
                       capture_output=True, text=True)
    return r, source


def first(said):
    m = re.search(r'(?:error|warning)\[(\w+)\].*?\n +--> (\S+?):(\d+):(\d+)', said)
    return m and (m[1], m[2], int(m[3]), int(m[4]))


def refuses(folder, holes, at, code='E0602'):
    r, source = dump(folder, holes)
    offset = source.index(at)
    place = source.count('\n', 0, offset) + 1, offset - source.rfind('\n', 0, offset)
    if r.returncode != (code[0] == 'E') or first(r.stderr) != (code, 'm.shard', *place):
        wrong.append(f'{holes}: wanted {code} at {place}, found {r.returncode}\n{r.stderr}')


def refuses_set(folder, option, *more, code='E0602', status=1):
    r, _ = dump(folder, {}, *more, option)
    found = first(r.stderr)
    if r.returncode != status or not found or found[:2] != (code, '--set'):
        wrong.append(f'--set {option}: wanted {code} in it, found {r.returncode}\n{r.stderr}')


def accepts(folder, holes, *sets):
    r, _ = dump(folder, holes, *sets)
    if r.returncode or re.search(r'(error|warning)\[', r.stderr): wrong.append(f'{holes} {sets}: {r.stderr}')


with tempfile.TemporaryDirectory() as folder:
    accepts(folder, {})
    refuses(folder, dict(lr='cosine warmup = 41'), '41')
    accepts(folder, dict(lr='cosine warmup = 40'))
    refuses(folder, dict(lr='wsd decay = 2%'), '2%', 'W0504')
    refuses(folder, dict(lr='wsd warmup = 40 decay = 1%'), '1%', 'W0504')
    accepts(folder, dict(lr='wsd decay = 5%')), accepts(folder, dict(lr='wsd decay = 0'))
    refuses(folder, dict(lr='wsd warmup = 21 decay = 50%'), '50%')
    accepts(folder, dict(lr='wsd warmup = 20 decay = 50%'))
    refuses(folder, dict(lr='wsd warmup = 33'), '33')                   # with the decay of every wsd
    accepts(folder, dict(lr='wsd warmup = 32'))
    refuses(folder, dict(lr='constant floor = 0.1'), 'floor', 'E0601')
    refuses(folder, dict(lr='inverse_sqrt floor = 0.1'), 'floor', 'E0601')
    refuses(folder, dict(optim='adamw lr = 1e39'), '1e39')
    refuses(folder, dict(optim='adamw eps = 1e-60'), '1e-60')
    refuses(folder, dict(optim='adamw betas = [0.9, 0.999999999999]'), '[0.9')
    refuses(folder, dict(train='clip 1e-50'), '1e-50')
    refuses(folder, dict(train='delay after = 40'), '40\n}')
    refuses(folder, dict(data=' valid = 100%'), '100%')
    refuses(folder, dict(data=' valid = 0'), '0\n  optim')
    refuses(folder, dict(data=', special = [5, 128]'), '128]')
    refuses(folder, dict(task=', mask = 0.8, random = 0.3'), '0.3)')
    accepts(folder, dict(task=', mask = 0.8, random = 0.2'))
    refuses(folder, dict(node='reserve = 1GiB'), '1GiB\n}')
    refuses(folder, dict(plan='precision f16 min_scale = 65537'), '65537')
    refuses(folder, dict(train='size Seq = 16'), 'Seq = 16', 'E0606')
    for key in ('eot', 'pad_id', 'mask_id', 'special'): refuses_set(folder, f'data.{key}=128')
    refuses_set(folder, 'train.lr.warmup=41')
    refuses_set(folder, 'train.lr.decay=90%', 'train.lr=wsd', 'train.lr.warmup=10')
    refuses_set(folder, 'train.steps=20', 'train.lr=wsd', 'train.lr.decay=50%', 'train.lr.warmup=15')
    refuses_set(folder, 'train.steps=10', 'train.lr.warmup=30', code='W0504', status=0)        # the first of a run
    refuses_set(folder, 'train.steps=4', 'train.lr=wsd', code='W0504', status=0)
    refuses_set(folder, 'train.lr.decay=1%', 'train.lr=wsd', code='W0504', status=0)
    refuses_set(folder, 'train.optim.eps=1e-60')
    refuses_set(folder, 'data.valid=100%')
    refuses_set(folder, 'train.lr.floor=0.1', 'train.lr=constant', code='E0601')
    refuses_set(folder, 'machine.node.reserve=2GiB')
    refuses_set(folder, 'plan.micro=3', code='E0703')
    refuses_set(folder, 'trian.steps=3', code='E0601')
    refuses_set(folder, 'train.steps=')
    for key in ('train.steps', 'plan.micro', 'plan.on.nodes', 'machine.node.cpus'):
        refuses_set(folder, f'{key}={10**15 + 1}')
    for key in ('machine.node.memory', 'machine.node.reserve', 'plan.zero.bucket', 'plan.zero.persist'):
        refuses_set(folder, f'{key}={10**18}')
    for rate in 'f32=0TFLOPS', 'f32=1e13TFLOPS', 'hbm=1e-10GB/s', 'hbm=1e300GB/s':                # of which times
        refuses_set(folder, f'machine.node.{rate}')                                               # would be infinite
    accepts(folder, {}, 'machine.node.disk=0.5KB/s')
    accepts(folder, {}, f'train.steps={10**15}', f'machine.node.memory={10**17}')
    valid = dict(data=' valid = 10%')
    r, _ = dump(folder, dict(valid, train='eval every = 41\n  save every = 50'))
    if r.stderr.count('W0706') != 2: wrong.append(r.stderr)
    accepts(folder, dict(valid, train='eval every = 40\n  save every = 40'))
    accepts(folder, dict(valid, train='eval every = 40'), 'train.steps=3')
print('\n'.join(wrong + [f'{len(wrong)} wrong']))
sys.exit(bool(wrong))
