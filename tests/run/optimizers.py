"""Optimizers against golden rows: p of 0.5 sin(0.37 i + 0.1), [4, 6], three steps with the gradients
0.1 sin(0.37 i + 1 + t). The norms of p after each step and its first row are those of Lion (arXiv 2302.06675, algorithm
2). And each rule under plans of every zero stage, with tensor and pipeline parallelism: the programs of all ranks
compute the model, exactly.

    optimizers.py SHARDC
"""
import array, itertools, json, math, os, sys
from common import check, run, tensors, read, workdir

SHARDC, WORK = os.path.abspath(sys.argv[1]), workdir()
os.chdir(WORK)
GOLDEN = [  # optim line, norms, first row
    ('lion lr = 1e-3 weight_decay = 0.1', [1.767658, 1.768414, 1.77241],
     [0.04690204, 0.2253755, 0.3712102, 0.466668, 0.5008289, 0.4653406]),
]
MODEL = '''dims { Batch; Rows = 4; Columns = 6 }
model M {
  input x [Batch, Rows, Columns] f32
  param p [Rows, Columns] = 0
  loss sum[*](p * x)
}
train t for M {
  batch 1; steps 3
  data columns(x = "x.f32") shuffle = off
  optim %s
  save every = 1 keep = 9
}
'''


def numbers(step, name):
    data = tensors(read(f'r/step-{step:06d}/rank-00000.safetensors'))
    return list(array.array('f', data[name]))


def floats(name, values): array.array('f', values).tofile(open(name, 'wb'))


def start(values):
    """The parameter as a weights file."""
    head = json.dumps({'p': {'dtype': 'F32', 'shape': [4, 6], 'data_offsets': [0, 96]}}).encode()
    head += b' ' * (-len(head) % 8)
    open('p.safetensors', 'wb').write(len(head).to_bytes(8, 'little') + head + array.array('f', values).tobytes())


def golden():
    first = [0.5 * math.sin(0.37 * i + 0.1) for i in range(24)]
    start(first)
    floats('x.f32', [0.1 * math.sin(0.37 * i + 1 + t) for t in range(3) for i in range(24)])
    for optim, norms, row in GOLDEN:
        open('m.shard', 'w').write(MODEL % optim)
        run(SHARDC, 'compile', 'm.shard', '-o', 'm', '--quick')
        run('rm', '-rf', 'r')
        run('./m', 'train', '--init', 'p.safetensors', '--out', 'r')
        for t, norm in enumerate(norms):
            have = math.sqrt(sum(v * v for v in numbers(t + 1, 'p')))
            check(abs(have - norm) < 2e-6, f'{optim}: norm {have} after step {t + 1}, not {norm}')
        have = numbers(3, 'p')[:6]
        check(max(abs(a - b) for a, b in zip(have, row)) < 1e-6, f'{optim}: {have}, not {row}')


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
RULES = ['optim lion lr = 1e-3 weight_decay = 0.1', 'optim lion states = bf16',
         'optim adamw\n  optim lion lr = 1e-3 of layers.*.mlp']
MESHES = ['tensor = 2; place Kv, Mlp, Vocab -> tensor else Seq', 'pipe = 2; place Layers -> pipe; pipeline gpipe']


def plans():
    for i, (mesh, zero) in enumerate(itertools.product(MESHES, range(4))):
        open('l.shard', 'w').write(LLAMA % (RULES[i % len(RULES)], mesh, zero))
        run(SHARDC, 'equal', 'l.shard', '--model', 'Small', '--plan', 'p')


for case in golden, plans:
    case()
    print(case.__name__, 'good', flush=True)
