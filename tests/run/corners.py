"""Plans that ended in errors of the compiler's own: python3 corners.py SHARDC

A row is a model of tests/ranks or tests/reference, what is replaced in it, a target, and the lines of a plan that
random plans found: they compile, or with a machine that is too small for them they are E0801. A new row costs a tenth
of a second.
"""
import os, re, sys, tempfile
from common import ROOT, run

SHARDC = os.path.abspath(sys.argv[1])
PATH = os.pathsep.join(os.path.join(ROOT, *p) for p in (['tests', 'ranks'], ['examples'], ['tests', 'reference']))
SIGNS = (r'optim .*', 'optim onebit_adam lr = 1e-3 freeze = 2 workers = 4 block = 64')
ROWS = [
    # saved inputs whose layout differs from what layers read were copied to the host and reordered on it
    ('axial', [], 'sm_80', 'recompute net.* keep = all offload = host'),
    # the first stage sent positions before samples, and the second one waited for samples before positions
    ('deep_ranks', [SIGNS, (r'\n *clip .*', '')], 'x86_64_v3', 'mesh seq = 2, pipe = 2; place Seq -> seq; '
     'place Layers -> pipe; pipeline interleaved; micro 8'),
    # a message between stages counted as one of ZeRO, of a bucket at most
    ('tied_ranks', [], 'sm_80', 'mesh pipe = 2, data = 2; place Batch -> data; place Layers -> pipe; micro 4; '
     'zero 3 over data bucket = 256'),
    # a gather over the axis of the stages started between the message to a stage and the one that it sends on
    ('tied_ranks', [], 'x86_64_v3', 'mesh pipe = 2; place Layers -> pipe; micro 4; pipeline sequential; '
     'zero 3 over pipe overlap = on'),
    # the whole batch does not fit, and micro-batches do not compile: this offload moves no states of a tied table then
    ('deep_ranks', [(r'optim .*', 'optim lamb lr = 1e-3')], 'sm_80', 'on box; offload optimizer -> host; '
     'precision bf16'),
]
BOX = 'machine box { node gpus = 1 arch = sm_80 memory = 2GiB reserve = 2097150KiB }\n'

for model, changes, target, plan in ROWS:
    folder = 'ranks' if model.endswith('_ranks') else 'reference'
    text = open(os.path.join(ROOT, 'tests', folder, f'{model}.shard')).read()
    for old, new in changes: text = re.sub(old, new, text)
    owner = re.search(r'^train \w+ for (\w+)', text, re.M).group(1)
    with tempfile.TemporaryDirectory() as d:
        open(f'{d}/m.shard', 'w').write(text + BOX + f'plan corner for {owner} {{ {plan} }}\n')
        run(SHARDC, 'plan', 'm.shard', '--plan', 'corner', '--target', target, cwd=d, env={'SHARDC_PATH': PATH},
            expect=3 if 'on box' in plan else 0)
print(f'{len(ROWS)} plans')
