"""Kernels that need most registers of a thread.   registers.py SHARDC GPU_SPILLS

A model of one layer has widths that end in no tile, heads that are not whole pieces of 16 bytes, biases and caps of
scores, dropout before a residual, and `lamb`, whose update keeps most numbers of a long row. Of its kernels those that
need many registers are built for a GPU: it fails where ptxas keeps registers in memory. Ends with 77 where there is no
ptxas.
"""
import os, re, shutil, subprocess, sys, tempfile

SHARDC, SPILLS = map(os.path.abspath, sys.argv[1:3])
MODEL = '''use "std"
dims {{ Batch; Seq = {seq}; Key like Seq; Embed = {embed}; Heads = 4; Head = {head}; Layers = 1 }}
layer Block(x: [Batch, Seq, Embed]) -> [Batch, Seq, Embed] {{
  param w [Heads, Head, Embed] ~ normal(0.02)
  param o [Embed, Heads, Head] ~ normal(0.02)
  q = dot[Embed](x, w)
  return x + dropout(dot[Heads, Head](attention[Seq -> Key; Head](q, q, q{more}), o), p = 0.1)
}}
model M {{
  input x [Batch, Seq, Embed] f32
  stack h [Layers] of Block
  loss mse(h(x), x)
}}
train t for M {{
  batch 8
  steps 9
  data columns(x = "x.npy")
  optim lamb lr = 1e-3
}}
plan p for M {{ precision bf16 }}
'''
BIAS = ', drop = 0.1, bias = alibi[Seq -> Key](alibi_slopes[Heads]())'
CASES = [('sm_89', (1000, 832, 36, ''), r'\.dot\d+|fwd\.attention\d+|step\.sum\d+'),
         ('sm_90a', (100, 704, 192, BIAS), r'fwd\.dot\d+|bwd\.attention\S*\d'),
         ('sm_90a', (98, 704, 256, ', cap = 30'), r'fwd\.dot\d+|fwd\.attention\d+')]
if not shutil.which('ptxas'):
    print('SKIPPED: no ptxas on PATH, kernels for GPUs are not assembled')
    sys.exit(77)
with tempfile.TemporaryDirectory() as folder:
    for target, (seq, embed, head, more), names in CASES:
        dump = f'{folder}/{target}.ir'
        open(f'{folder}/m.shard', 'w').write(MODEL.format(seq=seq, embed=embed, head=head, more=more))
        subprocess.run([SHARDC, 'compile', f'{folder}/m.shard', '--target', target, '--emit=ir', '-o', dump, '-q'],
                       check=True)
        text = open(dump).read()
        kernels = re.findall(r'^kernel @(?:\S*?)(?:%s)\(.*?^}\n' % names, text, re.M | re.S)
        if len(kernels) < 2: sys.exit(f'{target}: {len(kernels)} kernels')
        open(dump, 'w').write(text[:text.index('\nkernel ') + 1] + ''.join(kernels))
        if subprocess.run([SPILLS, f'{folder}/seen', dump]).returncode: sys.exit(f'{target}: a kernel spills')
