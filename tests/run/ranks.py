"""One model under plans of one rank and of a mesh: python3 ranks.py SHARDC ROOT

The executable of a plan over data and tensor runs as four processes of this machine; its losses, its norms and the weights that
it exports are those of one rank up to rounding; so are those of two rounds of accumulation with `else Seq`.
"""
import json, os, shutil, subprocess, sys, tempfile

SHARDC, ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
MODEL = '''use "gpt2"
variant Small of GPT2 { Pos = 16; Vocab = 256; Embed = 16; Heads = 4; Layers = 2 }
train t for Small {
  size  Seq = 8
  batch 8
  steps 5
  data  "text.txt" format = bytes
  optim adamw lr = 2e-3 betas = [0.9, 0.95] decay = 0.1
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


def run(*command):
    p = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600,
                       env=dict(os.environ, SHARDC_PATH=f'{ROOT}/examples'))
    if p.returncode: sys.exit(f'{" ".join(command)}: exit {p.returncode}\n{p.stdout[-1000:]}{p.stderr[-2000:]}')
    return p.stdout


def numbers(plan):
    rows = map(json.loads, open(f'{folder}/run_{plan}/metrics.jsonl'))
    return [(r['loss'], r.get('norm', r.get('grad_norm', 0))) for r in rows if 'loss' in r]


folder = tempfile.mkdtemp()
try:
    open(f'{folder}/m.shard', 'w').write(MODEL)
    shutil.copy(f'{ROOT}/docs/ir.md', f'{folder}/text.txt')
    found = {}
    for plan in ('one', 'mesh', 'parts'):
        run(SHARDC, 'compile', 'm.shard', '--plan', plan, '-o', plan)
        start = (f'./{plan}',) if plan == 'one' else (SHARDC, 'run', f'./{plan}', '-n', '4', '--')
        run(*start, 'train', '--out', f'run_{plan}')
        found[plan] = numbers(plan)
    for plan in ('mesh', 'parts'):
        pairs = [(a, b) for x, y in zip(found['one'], found[plan]) for a, b in zip(x, y)]
        if len(found[plan]) != 5 or any(abs(a - b) > 1e-5 * abs(a) for a, b in pairs):
            sys.exit(f'{plan}: {found[plan]}, one rank {found["one"]}')
    print(f'3 plans, losses {[round(l, 4) for l, n in found["mesh"]]}')
finally:
    shutil.rmtree(folder)
