"""Tokens of pass `streams` in compiled models: python3 tokens.py SHARDC TEST_TOKENS

Compiles small models with states, gradients, parameters and activations on the host up to pass `streams`, and has
test_tokens.c check the dumps; small ones are also run.
"""
import os, subprocess, sys, tempfile

SHARDC, TEST = sys.argv[1:]
ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
MODEL = '''use "gpt2"
variant Small of GPT2 { Pos = 16; Vocab = 256; Embed = 32; Heads = 4; Layers = 12 }
train t for Small { size Seq = 16; batch 8; steps 3; data "none.bin" format = u16; optim %s }
machine box {
  node gpus = %d arch = sm_80 memory = 40GiB f32 = 20TFLOPS
  link intra = 300GB/s
  host memory = 1GiB pcie = 12GB/s cores = 2 dram = 20GB/s
}
plan p for Small { on box; %s }
'''
ADAM, LAMB, SGD = 'adamw; clip 1.0', 'lamb; clip 1.0', 'sgd; clip 1.0'
FREE, LATE = 'adamw; on_nan off', 'adamw; clip 1.0; delay after = 1'
ONE, TWO = 'mesh data = 1; place Batch -> data', 'mesh data = 2; place Batch -> data'
PARAMS, KEPT = 'offload params -> host', 'recompute h keep = input offload = host'
UPDATE = 'offload optimizer, grads -> host'
PROGRAMS = [(1, f'{ONE}; micro 2; {KEPT}', SGD),
            (2, f'{TWO}; zero 1 over data overlap = on bucket = 4KiB; {PARAMS}; {KEPT}', ADAM),
            (2, f'{TWO}; zero 2 over data bucket = 4KiB; micro 1; precision bf16; {UPDATE}', LAMB),
            (1, f'{ONE}; zero 2 over data; micro 2; precision f16; {UPDATE}', ADAM),
            (1, f'{ONE}; zero 0 over data; {UPDATE}; {PARAMS}; {KEPT}', 'sgd momentum = 0.9; clip 1.0'),
            (2, f'{TWO}; zero 3 over data; precision f16; micro 1; {UPDATE}; {PARAMS}; {KEPT}', ADAM),
            (2, f'{TWO}; zero 2 over data; precision bf16; {UPDATE}', FREE),
            (1, f'{ONE}; zero 2 over data; precision bf16; micro 4; {UPDATE}', LATE),
            (1, f'{ONE}; zero 2 over data bucket = 4KiB; precision bf16; micro 2; {UPDATE}; {KEPT}', LATE)]

SMALL = 'Pos=4 Vocab=16 Embed=8 Heads=2 Layers=5 Seq=4'.split()


def dump(folder, name, gpus, plan, optim, *options):
    open(f'{folder}/m.shard', 'w').write(MODEL % (optim, gpus, plan))
    p = subprocess.run([SHARDC, 'dump', 'm.shard', '--plan', 'p', '--target', 'sm_80', '--after', 'streams', *options],
                       cwd=folder, capture_output=True, text=True,
                       env=dict(os.environ, SHARDC_PATH=f'{ROOT}/examples', NO_COLOR='1'))
    assert p.returncode == 0, f'{plan}: {p.stderr}'
    open(f'{folder}/{name}', 'w').write(p.stdout)
    return name


with tempfile.TemporaryDirectory() as folder:
    dumps, small = [], []
    for i, program in enumerate(PROGRAMS):
        dumps.append(dump(folder, f'{i}.ir', *program))
        small.append(dump(folder, f'small{i}.ir', *program, *[word for dim in SMALL for word in ('-D', dim)]))
    sys.exit(subprocess.run([os.path.abspath(TEST), *dumps, '--', *small], cwd=folder).returncode)
