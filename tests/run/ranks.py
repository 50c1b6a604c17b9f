"""One model under plans of one rank and of a mesh: python3 ranks.py SHARDC

The executable of a plan over data and tensor runs as four processes of this machine; its losses, its norms and the
weights that it exports are those of one rank up to rounding; so are those of two rounds of accumulation with `else
Seq`.
"""
import json, os, shutil, sys
from common import check, floats, run, text_file, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
MODEL = '''use "gpt2"
variant Small of GPT2 { Pos = 16; Vocab = 256; Embed = 16; Heads = 4; Layers = 2 }
train t for Small {
  size  Seq = 8
  batch 8
  steps 5
  data  "text.txt" format = bytes
  optim adamw lr = 2e-3 betas = [0.9, 0.95] weight_decay = 0.1
  lr    cosine warmup = 2 floor = 0.1
  clip  1.0
}
plan one for Small { micro 8 }
plan mesh for Small {
  mesh  data = 2, tensor = 2
  micro 4
  place Batch -> data
  place Heads, Mlp, Vocab -> tensor
}
plan parts for Small {
  mesh  data = 2, tensor = 2
  micro 2
  place Batch -> data
  place Heads, Mlp, Vocab -> tensor else Seq
}
'''


def numbers(plan):
    rows = map(json.loads, open(f'{folder}/run_{plan}/metrics.jsonl'))
    return [(r['loss'], r.get('norm', r.get('grad_norm', 0))) for r in rows if 'loss' in r]


def weights(plan):
    """Name -> numbers of the parameters that the newest checkpoint's export holds."""
    run(*start(plan), 'export', '--resume', f'run_{plan}', '--out', f'export_{plan}', cwd=folder)
    return floats(f'{folder}/export_{plan}/model.safetensors')


def start(plan): return (f'./{plan}',) if plan == 'one' else (SHARDC, 'run', f'./{plan}', '-n', '4', '--')


try:
    open(f'{folder}/m.shard', 'w').write(MODEL)
    text_file(f'{folder}/text.txt')
    found = {}
    for plan in ('one', 'mesh', 'parts'):
        run(SHARDC, 'compile', 'm.shard', '--plan', plan, '-o', plan, '--quick', cwd=folder)
        run(*start(plan), 'train', '--out', f'run_{plan}', cwd=folder)
        found[plan] = numbers(plan)
    one = weights('one')
    for plan in ('mesh', 'parts'):
        pairs = [(a, b) for x, y in zip(found['one'], found[plan]) for a, b in zip(x, y)]
        if len(found[plan]) != 5 or any(abs(a - b) > 1e-5 * abs(a) for a, b in pairs):
            sys.exit(f'{plan}: {found[plan]}, one rank {found["one"]}')
        many = weights(plan)
        check(list(one) == list(many), f'{plan} exports {sorted(many)}')
        for name, x in one.items():
            apart, size = sum((a - b) ** 2 for a, b in zip(x, many[name])), sum(a * a for a in x)
            check(len(x) == len(many[name]) and apart <= 1e-8 * size + 1e-12,
                  f'{plan}: {name} differs by {apart ** .5} of {size ** .5}')
    print(f'3 plans, losses {[round(l, 4) for l, n in found["mesh"]]}')
finally:
    shutil.rmtree(folder)
