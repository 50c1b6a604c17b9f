"""Kernels that need most registers of a thread.   registers.py SHARDC GPU_SPILLS

A model of three layers has widths that end in no tile, heads that are not whole pieces of 16 bytes, biases and caps of
scores, dropout of scores and before a residual, a convolution added to a product, few tiles to sum, norms of norms, and
`lamb`, whose update keeps most numbers of a long row, of many vectors at once. Of its kernels those that need many
registers are built for a GPU: it fails where ptxas keeps registers in memory. Ends with 77 where there is no ptxas.
"""
import os, re, shutil, subprocess, sys, tempfile

SHARDC, SPILLS = map(os.path.abspath, sys.argv[1:3])
MODEL = '''use "std"
dims {{ Batch; Seq = {seq}; Key like Seq; Embed = {embed}; Heads = 4; Head = {head}; Layers = 3; Vocab = 256 }}
layout near [Seq, Key] = blocks(32) & (window(3) | global(1)) & causal
layer Block(x: [Batch, Seq, Embed]) -> [Batch, Seq, Embed] {{
  param w [Heads, Head, Embed] ~ normal(0.02)
  param o [Heads, Head, Embed] ~ normal(0.02)
  q = dot[Embed](x, w)
  y = dot[Heads, Head](attention[Seq -> Key; Head](q, q, q{more}), o)
{result}
}}
model M {{
  input x [Batch, Seq, Embed] f32
  input label [Batch, Seq] of Vocab
  stack h [Layers] of Block
  param out [Vocab, Embed] ~ normal(0.02)
  logits = dot[Embed](h(x), out)
  output logits
  loss cross_entropy[Vocab](logits, label)
}}
train t for M {{
  batch 8
  steps 9
  data columns(x = "x.npy", label = "label.npy")
  optim lamb lr = 1e-3
  on_nan skip
  clip 1
}}
plan bf16 for M {{ precision bf16 }}
plan f32 for M {{}}
plan f16 for M {{ precision f16 }}
'''
KEPT = ', mask = near, drop = 0.1'
BIAS = ', drop = 0.1, bias = alibi[Seq -> Key](alibi_slopes[Heads]())'
DROP = '  return x + dropout(y, p = 0.1)'
CONV = '''  param c [Embed] ~ normal(0.1)
  param d [Embed] ~ normal(0.1)
  param e [Embed] ~ normal(0.1)
  return x + c * x + d * shift[Seq](x, by = 1) + e * shift[Seq](x, by = 2) + y'''
FEED = '''  param u [Heads, Head, Embed] ~ normal(0.02)
  return x + dot[Heads, Head](silu(dot[Embed](y, u)), o)'''
NORMS = '''  sub m = LayerNorm[Embed]
  sub n = LayerNorm[Embed]
  sub l = LayerNorm[Embed]
  sub k = LayerNorm[Embed]
  return x + k(l(n(m(y))))'''
MANY = ''.join(f'  param {name} [Embed] = 1\n' for name in 'abcdefg') + '  return x + y * (a + b + c + d + e + f + g)'
BIAS = ', drop = 0.1, bias = alibi[Seq -> Key](alibi_slopes[Heads]())'
CASES = [('sm_89', (1000, 832, 36, '', DROP), r'\.dot\d+|fwd\.attention\d+|step\.sum\d+'),
         ('sm_86', (2048, 156, 64, '', DROP), r'\.dot\d+'),
         ('sm_90a', (2048, 1536, 384, '', CONV), r'\.dot\d+'),
         ('sm_80', (100, 144, 48, '', MANY), r'step\.sum\d+'),
         ('sm_90a', (1000, 1280, 336, '', FEED), r'fwd\.dot\d+'),
         ('sm_100a', (100, 1408, 88, '', NORMS), r'step\.sum\d+'),
         ('sm_80', (100, 1536, 48, '', NORMS), r'bwd\.(?:sum|elem)\d+'),
         ('sm_89', (100, 256, 128, '', DROP), r'bwd\.attention\S*\d'),
         ('sm_90a', (1024, 256, 128, KEPT, DROP), r'(?:fwd|bwd)\.attention\S*\d'),
         ('sm_90a', (100, 704, 192, BIAS, DROP), r'fwd\.dot\d+|bwd\.attention\S*\d'),
         ('sm_90a', (98, 704, 256, ', cap = 30', DROP), r'fwd\.dot\d+|fwd\.attention\d+')]
if not shutil.which('ptxas'):
    print('SKIPPED: no ptxas on PATH, kernels for GPUs are not assembled')
    sys.exit(77)
with tempfile.TemporaryDirectory() as folder:
    for target, (seq, embed, head, more, result), names in CASES:
        dump = f'{folder}/{target}.ir'
        open(f'{folder}/m.shard', 'w').write(MODEL.format(seq=seq, embed=embed, head=head, more=more, result=result))
        plan = {'sm_80': 'f16', 'sm_100a': 'f32'}.get(target, 'bf16')
        words = f'compile {folder}/m.shard --plan {plan} --target {target} --emit=ir -o {dump} -q'
        subprocess.run([SHARDC, *words.split()], check=True)
        text = open(dump).read()
        kernels = re.findall(r'^kernel @(?:\S*?)(?:%s)\(.*?^}\n' % names, text, re.M | re.S)
        if not kernels: sys.exit(f'{target}: {len(kernels)} kernels')
        open(dump, 'w').write(text[:text.index('\nkernel ') + 1] + ''.join(kernels))
        if subprocess.run([SPILLS, f'{folder}/seen', dump]).returncode: sys.exit(f'{target}: a kernel spills')
