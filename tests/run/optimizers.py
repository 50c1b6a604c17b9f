"""Optimizers against golden rows: p of 0.5 sin(0.37 i + 0.1), [4, 6], three steps with the gradients
0.1 sin(0.37 i + 1 + t). The norms of p after each step and its first row are those of Lion (arXiv 2302.06675, algorithm
2), of schedule-free AdamW (arXiv 2405.15682, algorithm 1; p is y), of torch.optim.Adafactor, and of torch.optim.Muon
with its iteration in f32 (torch 2.15). And each rule, and moving averages of the parameters (`ema`), under plans of
every zero stage, with tensor and pipeline parallelism and offload: the programs of all ranks compute the model,
exactly.

    optimizers.py SHARDC
"""
import array, itertools, json, math, os, re, sys
from common import check, run, tensors, read, workdir

SHARDC, WORK = os.path.abspath(sys.argv[1]), workdir()
os.chdir(WORK)
GOLDEN = [  # optim line, norms, first row
    ('lion lr = 1e-3 weight_decay = 0.1', [1.767658, 1.768414, 1.77241],
     [0.04690204, 0.2253755, 0.3712102, 0.466668, 0.5008289, 0.4653406]),
    ('schedule_free lr = 1e-3', [1.767835, 1.768979, 1.77124],
     [0.04811173, 0.2249974, 0.3712817, 0.4672513, 0.5000123, 0.4649478]),
    ('adafactor lr = 0.01', [1.759338, 1.764947, 1.782203],
     [0.0409872, 0.2198961, 0.3689285, 0.4679982, 0.5038083, 0.4715563]),
    ('muon lr = 0.02', [1.751155, 1.747635, 1.761971],
     [0.03120224, 0.2087624, 0.3580724, 0.4589141, 0.4976462, 0.4690236]),
    ('muon lr = 0.02 scale = adamw', [1.759281, 1.755631, 1.760697],
     [0.04059606, 0.2170897, 0.3642037, 0.462022, 0.4973089, 0.4652871]),
]
MODEL = '''dims { Batch; Rows = 4; Columns = 6 }
model M {
  input x [Batch, Columns] f32
  input y [Batch, Rows] f32
  param p [Rows, Columns] = 0
  loss sum[*](dot[Columns](p, x) * y)
}
train t for M {
  batch 6; steps 3
  data columns(x = "x.f32", y = "y.f32") shuffle = off
  optim %s
  save every = 1 keep = 9
}
'''


def numbers(step, name):
    data = tensors(read(f'r/step-{step:06d}/rank-00000.safetensors'))
    return list(array.array('f', data[name]))


def floats(name, values): array.array('f', values).tofile(open(name, 'wb'))


def floats_of(path): return {k: list(array.array('f', v)) for k, v in tensors(read(path)).items() if len(v) % 4 == 0}


def start(values):
    """Writes a weights file with the start values of the parameter."""
    head = json.dumps({'p': {'dtype': 'F32', 'shape': [4, 6], 'data_offsets': [0, 96]}}).encode()
    head += b' ' * (-len(head) % 8)
    open('p.safetensors', 'wb').write(len(head).to_bytes(8, 'little') + head + array.array('f', values).tobytes())


def golden():
    first = [0.5 * math.sin(0.37 * i + 0.1) for i in range(24)]
    start(first)
    floats('x.f32', [float(i == k) for t in range(3) for i in range(6) for k in range(6)])
    floats('y.f32', [0.1 * math.sin(0.37 * (6 * r + i) + 1 + t) for t in range(3) for i in range(6) for r in range(4)])
    for optim, norms, row in GOLDEN:
        near = 5e-6 if 'muon' in optim else 1e-6
        open('m.shard', 'w').write(MODEL % optim)
        run(SHARDC, 'compile', 'm.shard', '-o', 'm', '--quick')
        run('rm', '-rf', 'r')
        run('./m', 'train', '--init', 'p.safetensors', '--out', 'r')
        for t, norm in enumerate(norms):
            have = math.sqrt(sum(v * v for v in numbers(t + 1, 'p')))
            check(abs(have - norm) < 2 * near, f'{optim}: norm {have} after step {t + 1}, not {norm}')
        have = numbers(3, 'p')[:6]
        check(max(abs(a - b) for a, b in zip(have, row)) < near, f'{optim}: {have}, not {row}')


LLAMA = '''use "llama"
variant Small of Llama3 { Vocab = 256; Embed = 64; Kv = 2; Group = 2; Head = 16; Mlp = 96; Layers = 2 }
train t for Small {
  size Seq = 32; batch 4; steps 4
  data "x.txt"
  clip 1
  %s
}
plan p for Small { mesh data = 2, %s; place Batch -> data; zero %d over data; micro 1 }
'''
RULES = ['ema 0.9\n  optim muon of layers.*.mlp, layers.*.attn\n  optim adamw', 'ema 0.9\n  optim sgd lr = 0.1',
         'ema 0.9\n  delay after = 1\n  optim adamw',
         'optim lion lr = 1e-3 weight_decay = 0.1', 'optim lion states = bf16',
         'optim adafactor weight_decay = 0.1', 'ema 0.9\n  optim adamw states = int8',
         'delay after = 1\n  optim adamw states = int8\n  optim adamw states = int8 betas = [0.8, 0.9] of layers.*.mlp',
         'optim adamw\n  optim adafactor of layers.*.mlp, embed',
         'optim schedule_free weight_decay = 0.1\n  lr constant warmup = 2',
         'delay after = 1\n  optim schedule_free\n  optim schedule_free lr = 1e-4 of layers.*.mlp',
         'optim adamw\n  optim lion lr = 1e-3 of layers.*.mlp']
MESHES = ['tensor = 2; place Kv, Mlp, Vocab -> tensor else Seq', 'pipe = 2; place Layers -> pipe; pipeline gpipe']


def plans():
    for rule, mesh, zero in itertools.product(range(len(RULES)), range(len(MESHES)), range(4)):
        if (rule + mesh + zero) % 2: continue  # every rule on each mesh, and every rule in each stage
        open('l.shard', 'w').write(LLAMA % (RULES[rule], MESHES[mesh], zero))
        run(SHARDC, 'equal', 'l.shard', '--model', 'Small', '--plan', 'p')


def averages():
    """The state is a mean of the parameters of all steps; `export --ema` and `eval --ema` read it, from any ranks."""
    open('e.shard', 'w').write(LLAMA % ('ema 0.9\n  optim adamw', 'tensor = 2; place Kv, Mlp, Vocab -> tensor', 3))
    text = open('e.shard').read().replace('steps 4', 'steps 4\n  save every = 1 keep = 9')
    open('e.shard', 'w').write(text)
    open('x.txt', 'w').write('Averages of weights. ' * 99)
    run(SHARDC, 'compile', 'e.shard', '--model', 'Small', '-o', 'one', '--quick')
    run(SHARDC, 'compile', 'e.shard', '--model', 'Small', '--plan', 'p', '-o', 'four', '--quick')
    run('./one', 'train', '--out', 'r1', '--steps', '2'), run('./one', 'train', '--out', 'r1', '--resume')
    step = [floats_of(f'r1/step-{t:06d}/rank-00000.safetensors') for t in range(1, 5)]
    names = [k for k in step[0] if k + '.ema' in step[0]]
    check(len(names) == 12, f'averages of {names}')
    for k in names:
        want = step[0][k]
        for t in range(1, 4): want = [0.9 * a + 0.1 * b for a, b in zip(want, step[t][k])]
        check(max(abs(a - b) for a, b in zip(want, step[3][k + '.ema'])) < 1e-6, f'average of {k}')
    run('./one', 'export', '--resume=r1', '--ema', '--out', 'x1'), run('./one', 'export', '--resume=r1', '--out', 'x0')
    run(SHARDC, 'run', './four', '-n', '4', '--', 'train', '--out', 'r4')
    run('./one', 'export', '--resume=r4', '--ema', '--out', 'x4')
    a, b, raw = (floats_of(f'x{i}/model.safetensors') for i in (1, 4, 0))
    check(a['model.norm.weight'] == step[3]['norm.gain.ema'] != raw['model.norm.weight'], 'export --ema')
    check(max(abs(x - y) for k in a for x, y in zip(a[k], b[k])) < 1e-4, 'averages of four ranks')
    ema, same, other = (re.search(r'loss ([0-9.]+)', ''.join(run('./one', 'eval', *w, '--valid', 'x.txt'))).group(1)
                        for w in (('--resume=r1', '--ema'), ('--init', 'x1'), ('--init', 'x0')))
    check(ema == same != other, f'eval --ema: {ema}, {same}, not {other}')
    open('p.shard', 'w').write(text.replace('ema 0.9\n', ''))
    run(SHARDC, 'compile', 'p.shard', '--model', 'Small', '-o', 'plain', '--quick')
    run('./plain', 'train', '--out', 'rp')
    check('has no average of' in run('./plain', 'export', '--resume=rp', '--ema', '--out', 'xp', expect=4)[1], 'no')
    check('--ema reads' in run('./one', 'export', '--init', 'x0', '--ema', '--out', 'xp', expect=2)[1], '--init')


GPUS = '''machine gpus {
  node gpus = 2 arch = sm_80 memory = 40GB bf16 = 312TFLOPS hbm = 1555GB/s
  host memory = 100GB cores = 8 pcie = 25GB/s
  link intra = 300GB/s
}
'''
OFFLOADS = [(2, 'offload optimizer -> host'), (2, 'offload optimizer, grads -> host'), (3, 'offload params -> host')]


def offloads():
    """Averages are states of groups of zero: they are sharded, and go to the host with the other states."""
    rules = 'ema 0.9\n  optim adamw', 'optim schedule_free', 'optim adamw states = int8'
    for (zero, line), rule in itertools.product(OFFLOADS, rules):
        text = LLAMA % (rule, f'pipe = 1; on gpus; {line}', zero)
        open('o.shard', 'w').write(text.replace('clip 1\n', '').replace(', pipe = 1', '') + GPUS)
        said = run(SHARDC, 'equal', 'o.shard', '--model', 'Small', '--plan', 'p')
        check('W0703' not in said[1] and '2 ranks' in said[0], f'{line}: {said}')


for case in golden, averages, plans, offloads:
    case()
    print(case.__name__, 'good', flush=True)
