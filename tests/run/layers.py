"""Operands of pipeline layers in addition to the stack's own value: python3 layers.py SHARDC

An option per layer (a list), with `output`; an operand of all layers, as diffusion transformers have it; an encoder's
output that all layers of the decoder attend to; an update that looks at norms, with ends of their own. Losses of stages
are those of one rank, under every schedule, with and without `zero` over another axis; eval agrees.
"""
import json, os, random, shutil, struct, sys
from common import check, run, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
TEXT = '''use "std"
dims {{ Batch, Seq; Vocab = 24; Embed = 8; Layers = 4; Before = 2; Source like Seq }}
layer Block(x: [Batch, Seq, Embed]) -> [Batch, Seq, Embed] with c = 1 {{
  sub fc = Linear[Embed -> Embed]
  return x + c * fc(x)
}}
layer Led(x: [Batch, Seq, Embed], by: [Batch, Embed]) -> [Batch, Seq, Embed] {{
  sub fc = Linear[Embed -> Embed]
  sub scale = Linear[Embed -> Embed]
  return x + fc(x) * scale(silu(by))
}}
layer Given(x: [Batch, Seq, Embed], by: [Embed]) -> [Batch, Seq, Embed] {{
  sub fc = Linear[Embed -> Embed]
  return x + by * silu(fc(x))
}}
layer Cross(x: [Batch, Seq, Embed], read: [Batch, Seq, Embed]) -> [Batch, Seq, Embed] {{
  sub q = Linear[Embed -> Embed]
  sub k = Linear[Embed -> Embed]
  scores = softmax[Source](dot[Embed](q(x), rename[Seq -> Source](k(read))))
  return x + dot[Source](scores, rename[Seq -> Source](read))
}}
model M {{
  input tokens, targets [Batch, Seq] of Vocab
  param embed [Vocab, Embed] ~ normal(0.2)
  {head}
  {body}
  logits = dot[Embed](y, {reads})
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
E = 'e = embed[Vocab = tokens]'
BODIES = {'list': ['stack h [Layers] of Block with c = [0.5, 0.6, 0.7, 0.8]', E, 'y = h(e)'],
          'led': ['stack h [Layers] of Led', 'sub pool = Linear[Embed -> Embed]', E, 'y = h(e, pool(mean[Seq](e)))'],
          'given': ['stack h [Layers] of Given', 'param by [Embed] ~ normal(0.5)', E, 'y = h(e, by) + by'],
          'rows': ['stack h [Layers] of Cross', 'param rows [Vocab, Embed] ~ normal(0.5)', E,
                   'y = h(e, rows[Vocab = tokens])'],
          'cross': ['stack enc [Before] of Block', 'stack h [Layers] of Cross', E, 'y = h(e, enc(e))']}
HEADS = {'tied': 'embed', 'untied': 'head'}
ROWS = [('list', 'untied', 'lamb', 'sequential', 1), ('list', 'untied', 'lamb', 'gpipe', 2),
        ('list', 'untied', 'lamb', 'one_f_one_b', 3), ('list', 'untied', 'lamb', 'interleaved', 1),
        ('list', 'untied', 'lamb', 'zero_bubble', 0), ('list', 'tied', 'lamb', 'one_f_one_b', 1),
        ('list', 'tied', 'adamw', 'gpipe', 3), ('list', 'untied', 'sgd lr = 0.1', 'one_f_one_b', None),
        ('led', 'untied', 'sgd lr = 0.1', 'gpipe', None), ('led', 'untied', 'adamw', 'one_f_one_b', 1),
        ('led', 'tied', 'adamw', 'one_f_one_b', 3), ('led', 'untied', 'lamb', 'zero_bubble', 2),
        ('led', 'tied', 'adamw', 'sequential', 0), ('cross', 'untied', 'adamw', 'one_f_one_b', 2),
        ('given', 'untied', 'adamw', 'interleaved', 1), ('rows', 'tied', 'sgd lr = 0.1', 'interleaved', None),
        ('cross', 'tied', 'sgd lr = 0.1', 'zero_bubble', None), ('cross', 'untied', 'lamb', 'gpipe', 1)]


def losses(name, body, ends, optim, lines, ranks):
    open(f'{folder}/{name}.shard', 'w').write(TEXT.format(
        body='\n  '.join(BODIES[body]), reads=HEADS[ends],
        head='param head [Embed, Vocab] ~ normal(0.2)' * (ends == 'untied'), optim=optim, lines='\n  '.join(lines)))
    run(SHARDC, 'compile', f'{name}.shard', '--plan', 'p', '-o', f'{name}.exe', '-q', '--quick', cwd=folder)
    start = [SHARDC, 'run', '-n', str(ranks), f'./{name}.exe', '--'] if ranks > 1 else [f'./{name}.exe']
    run(*start, 'train', '--out', name, '--threads', '1', '--valid', 't.bin', cwd=folder)
    lines = list(map(json.loads, open(f'{folder}/{name}/metrics.jsonl')))
    return [r[k] for r in lines for k in ('loss', 'valid_loss') if r.get(k) is not None]


try:
    r = random.Random(2)
    open(f'{folder}/t.bin', 'wb').write(struct.pack('<301H', *[r.randrange(24) for _ in range(301)]))
    whole = {}
    for k, (body, ends, optim, schedule, zero) in enumerate(ROWS):
        model = body, ends, optim
        if model not in whole: whole[model] = losses(f'one{k}', *model, ['micro 8'], 1)
        axes = 'mesh pipe = 2' if zero is None else 'mesh data = 2, pipe = 2'
        lines = [axes, 'place Layers -> pipe', 'micro 1', f'pipeline {schedule}']
        if zero is not None: lines += ['place Batch -> data', f'zero {zero} over data']
        have, want = losses(f'many{k}', *model, lines, 2 if zero is None else 4), whole[model]
        check(len(have) == len(want) > 5 and all(abs(a - b) < 2e-6 * b for a, b in zip(have, want)),
              f'{model}, {lines}: {have}, not {want}')
    print(f'{len(ROWS)} pipelines whose layers read more than what the stack hands on: losses are those of one rank')
finally:
    shutil.rmtree(folder)
