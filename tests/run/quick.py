"""`--quick` changes the time of a program, not its numbers: parameters and states after three steps have the bits of
the optimized program, in f32 by AVX2 and in bf16 as this processor has it.

    quick.py SHARDC
"""
import os, shutil, sys
from common import check, read, run, workdir

SHARDC = os.path.abspath(sys.argv[1])
os.chdir(workdir())
open('x.txt', 'w').write('to be or not to be, that is the question\n' * 400)
open('m.shard', 'w').write('''use "llama"
variant Small of Llama3 { Vocab = 256; Embed = 72; Kv = 3; Group = 2; Head = 12; Mlp = 136; Layers = 1 }
train t for Small { size Seq = 72; batch 3; steps 3; data "x.txt"; optim adamw lr = 1e-3 }
plan f32 for Small { micro 3 }
plan bf16 for Small { micro 3; precision bf16 }
''')


def trained(plan, target, *more):
    named = '--model', 'Small', '--plan', plan, '--target', target
    run(SHARDC, 'compile', 'm.shard', *named, '-o', 'm', '-q', *more)
    shutil.rmtree('r', True)
    run('./m', 'train', '--out', 'r', '--dump', 'd')
    return read('d')


for plan, target in (('f32', 'x86_64_v3'), ('bf16', 'native')):
    check(trained(plan, target) == trained(plan, target, '--quick'), f'{plan}, {target}: --quick has other bits')
