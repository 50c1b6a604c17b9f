"""Distillation (examples/distill.shard): a GPT-2 is the teacher of a student with half its layers, which begins as its
first layers and learns; the student alone is trained, has states, and is exported as a GPT-2 of its own that goes on
by itself; every plan computes the one-rank program, exactly.

    distill.py SHARDC EXAMPLES
"""
import json, os, random, sys
from common import check, floats, read, run, workdir

SHARDC, EXAMPLES, WORK = os.path.abspath(sys.argv[1]), sys.argv[2], workdir()
os.chdir(WORK)
random.seed(4)
SIZES = 'Vocab = 256; Embed = 32; Heads = 2'
BASE = 'use "gpt2"\nvariant Small of GPT2 { %s; Layers = %d }\n%s'
TRAIN = 'train t for %s { size Seq = 16; batch 4; steps %d; data "tokens.bin" format = bytes; optim adamw lr = 3e-3 }\n'
PLANS = ['mesh data = 2, tensor = 2; place Batch -> data; place Heads, Mlp -> tensor else Seq; zero 3 over data',
         'mesh cp = 2; place Seq -> cp balanced ring; zero 2 over cp; precision bf16; micro 2',
         'mesh data = 2; place Batch -> data; zero 1; micro 1; offload optimizer -> host']


def losses(out): return [json.loads(x)['loss'] for x in open(f'{out}/metrics.jsonl') if '"loss"' in x]


def compiled(name, text, model):
    open(f'{name}.shard', 'w').write(text)
    run(SHARDC, 'compile', f'{name}.shard', '--model', model, '--train', 't', '-o', name, '--quick')


words = [random.choice([b'when', b'there', b'where', b'then']) for _ in range(800)]
open('tokens.bin', 'wb').write(b' '.join(words))
compiled('base', BASE % (SIZES, 4, TRAIN % ('Small', 100)), 'Small')
run('./base', 'train', '--out', 'r0'), run('./base', 'export', '--resume=r0', '--out', 'teacher')
compiled('pupil', 'use "distill"\n' + TRAIN % ('TinyDistill', 60), 'TinyDistill')
run('./pupil', 'train', '--init', 'teacher/model.safetensors', '--out', 'r1')
have = losses('r1')
check(have[-1] < 0.9 * have[0], f'{have}')
own = floats('r1/step-000060/rank-00000.safetensors')
check('student.wte.m' in own and not any(k.startswith('teacher') for k in own), f'{list(own)}')
run('./pupil', 'export', '--resume=r1', '--out', 'student')
want, got = floats('teacher/model.safetensors'), floats('student/model.safetensors')
check(got.keys() == {k for k in want if 'h.2.' not in k and 'h.3.' not in k}, f'{got.keys()}')
check(got['transformer.h.1.mlp.c_fc.weight'] != want['transformer.h.1.mlp.c_fc.weight'], 'the student learns nothing')
config = json.loads(read('student/config.json'))
check(config['n_layer'] == 2 and config['model_type'] == 'gpt2', f'{config}')
compiled('alone', BASE % (SIZES, 2, TRAIN % ('Small', 1)), 'Small')
run('./alone', 'train', '--init', 'student', '--out', 'r2')
check(losses('r2')[0] < losses('r0')[0] / 2, f'{losses("r2")} after {losses("r0")}')
for plan in PLANS:
    text = 'use "distill"\n' + TRAIN % ('TinyDistill', 2)
    open('p.shard', 'w').write(text + f'plan p for TinyDistill {{ {plan} }}\n')
    run(SHARDC, 'equal', 'p.shard', '--model', 'TinyDistill', '--train', 't', '--plan', 'p')
print(f'teacher {losses("r0")[-1]:.3f}, student alone {losses("r2")[0]:.3f}, student with its teacher {have[0]:.3f} to '
      f'{have[-1]:.3f}; {len(PLANS)} plans equal one rank')
