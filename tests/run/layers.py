"""What the layers of a pipeline read besides the stack's own value: python3 layers.py SHARDC

An option per layer (a list), with `output`; an update that looks at norms, with ends of their own. Losses of stages are
those of one rank, under every schedule, with and without `zero` over another axis; eval agrees.
"""
import json, os, random, shutil, struct, sys
from common import check, run, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
TEXT = '''use "std"
dims {{ Batch, Seq; Vocab = 24; Embed = 8; Layers = 4 }}
layer Block(x: [Batch, Seq, Embed]) -> [Batch, Seq, Embed] with c = 1 {{
  sub fc = Linear[Embed -> Embed]
  return x + c * fc(x)
}}
model M {{
  input tokens, targets [Batch, Seq] of Vocab
  param embed [Vocab, Embed] ~ normal(0.2)
  {head}
  stack h [Layers] of Block with c = [0.5, 0.6, 0.7, 0.8]
  logits = dot[Embed](h(embed[Vocab = tokens]), {reads})
  output logits
  loss cross_entropy[Vocab](logits, targets)
}}
train t for M {{
  size Seq = 12
  batch 8
  steps 3
  data "t.bin" format = u16
  eval every = 1
  optim {optim}
}}
plan p for M {{
  {lines}
}}
'''
HEADS = {'tied': 'embed', 'untied': 'head'}
ROWS = [('untied', 'lamb', 'sequential', 1), ('untied', 'lamb', 'gpipe', 2), ('untied', 'lamb', 'one_f_one_b', 3),
        ('untied', 'lamb', 'interleaved', 1), ('untied', 'lamb', 'zero_bubble', 0), ('tied', 'lamb', 'one_f_one_b', 1),
        ('tied', 'adamw', 'gpipe', 3), ('untied', 'sgd lr = 0.1', 'one_f_one_b', None)]


def losses(name, ends, optim, lines, ranks):
    open(f'{folder}/{name}.shard', 'w').write(TEXT.format(
        reads=HEADS[ends], head='param head [Embed, Vocab] ~ normal(0.2)' * (ends == 'untied'), optim=optim,
        lines='\n  '.join(lines)))
    run(SHARDC, 'compile', f'{name}.shard', '--plan', 'p', '-o', f'{name}.exe', '-q', '--quick', cwd=folder)
    start = [SHARDC, 'run', '-n', str(ranks), f'./{name}.exe', '--'] if ranks > 1 else [f'./{name}.exe']
    run(*start, 'train', '--out', name, '--threads', '1', '--valid', 't.bin', cwd=folder)
    lines = list(map(json.loads, open(f'{folder}/{name}/metrics.jsonl')))
    return [r[k] for r in lines for k in ('loss', 'valid_loss') if r.get(k) is not None]


try:
    r = random.Random(2)
    open(f'{folder}/t.bin', 'wb').write(struct.pack('<301H', *[r.randrange(24) for _ in range(301)]))
    whole = {}
    for k, (ends, optim, schedule, zero) in enumerate(ROWS):
        if (ends, optim) not in whole: whole[ends, optim] = losses(f'one{k}', ends, optim, ['micro 8'], 1)
        axes = 'mesh pipe = 2' if zero is None else 'mesh data = 2, pipe = 2'
        lines = [axes, 'place Layers -> pipe', 'micro 1', f'pipeline {schedule}']
        if zero is not None: lines += ['place Batch -> data', f'zero {zero} over data']
        have, want = losses(f'many{k}', ends, optim, lines, 2 if zero is None else 4), whole[ends, optim]
        check(len(have) == len(want) > 5 and all(abs(a - b) < 2e-6 * b for a, b in zip(have, want)),
              f'{ends}, {optim}, {lines}: {have}, not {want}')
    print(f'{len(ROWS)} pipelines with an option per layer: losses are those of one rank')
finally:
    shutil.rmtree(folder)
