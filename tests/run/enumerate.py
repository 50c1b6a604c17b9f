"""The search of `plan --search` against all plans of its space: python3 enumerate.py SHARDC [all [MODEL ..]]

Three models on 2 or 3 GPUs, messages that overlap alone; models whose kernels take longer than their launches, so that
bounds are near to the truth, one of them in fp8, on some meshes of 4 and 8 GPUs; `all`: the first three and one with
experts on every mesh of up to 16 GPUs, the larger ones after the smaller ones (hours). For each, `--all` compiles every
plan of the space, without the branch and bound, and

- with `--gap 0` the search finds the best of these plans, by time and by memory;
- the certificate of a search that ends early, after 4 plans or by its usual gap, is true: no plan is better by more;
- no plan is faster or smaller than its bound.

It prints how many plans there are, how many the search compiled, by how much the certificate of a usual search is too
wide, and which share of a plan's time its bound is.
"""
import json, os, subprocess, sys
from common import EXAMPLES, check, workdir

SHARDC, WORK = os.path.abspath(sys.argv[1]), workdir()
RESERVE = 1536 << 20                                   # of a GPU: plans that are printed count it
MACHINE = '''machine h8 { node gpus = 8 arch = sm_90 memory = 80GB bf16 = 989TFLOPS hbm = 3350GB/s
  link intra = 450GB/s inter = 50GB/s latency = 5us }
'''
PAIRS = MACHINE.replace('gpus = 8', 'gpus = 2')        # of model `apart`: which axis leaves a node differs by the order
MODELS = {                                             # text, batch, Seq, GPUs of the short form (0: none)
    'gpt': ('use "gpt2"\nvariant V of GPT2 { Vocab = 512; Embed = 128; Heads = 4; Layers = 2; Pos = 64 }\n', 2, 64, 2),
    'llama': ('use "llama"\nvariant V of Llama3 { Vocab = 512; Embed = 128; Kv = 2; Group = 2; Head = 32; Mlp = 256; '
              'Layers = 2 }\n', 2, 64, 2),
    'experts': ('use "moe"\nvariant V of MoE { Vocab = 512; Embed = 128; Heads = 4; Pairs = 2; Pos = 64; '
                'Experts = 4 }\n', 2, 64, 0),
    'odd': ('use "gpt2"\nvariant V of GPT2 { Vocab = 510; Embed = 96; Heads = 3; Layers = 5; Pos = 72 }\n', 6, 72, 3),
}
WIDE = {
    'wide': ('use "llama"\nvariant V of Llama3 { Layers = 4 }\n', 8, 2048, 0),
    'uneven': ('use "llama"\nvariant V of Llama3 { Layers = 5 }\n', 8, 2048, 0),
    'routed': ('use "mixtral"\nvariant V of Mixtral { Layers = 4 }\n', 8, 2048, 0),
    'apart': ('use "llama"\nvariant V of Llama3 { Layers = 3 }\n', 8, 2048, 0),
    'single': ('use "llama"\nvariant V of Llama3 { Vocab = 512; Embed = 256; Kv = 2; Group = 2; Head = 64; Mlp = 512; '
               'Layers = 1 }\n', 4, 128, 0),
    'eights': ('use "llama"\nvariant V of Llama3 { Layers = 4 }\nplan p for V { precision fp8 }\n', 8, 2048, 0),
}
PARTS = [('wide', 4, 'tensor=2', 'pipe=2', 'micro=1'), ('uneven', 8, 'context=2', 'pipe=4', 'micro=1', 'zero=0,1'),
         ('uneven', 4, 'pipe=4', 'micro=1'), ('routed', 4, 'expert=2,4', 'zero=1,3', 'accumulate=shard', 'micro=1'),
         ('apart', 4, 'data=2', 'context=2', 'micro=2', 'accumulate=shard'),
         ('eights', 4, 'tensor=2', 'pipe=2', 'micro=1'), ('single', 2, 'tensor=2', 'micro=4'),
         ('experts', 2, 'context=2', 'zero=3', 'over=data+context', 'overlap=off', 'accumulate=full',
          'micro=1'),
         ('wide', 8, 'tensor=2', 'data=2', 'pipe=2', 'micro=2', 'zero=3', 'accumulate=shard', 'sequence=on',
          'pipeline=one_f_one_b,zero_bubble,interleaved-2', 'order=tensor-data-pipe,data-tensor-pipe')]
EXACT, EARLY = ('--gap', '0', '--tries', '1000000'), ('--gap', '0', '--tries', '4')
# all that a search tries after it has found its best plan is in the space, or left out
WHOLE = '--fix', 'way=gather,balanced,ring,exchange', '--fix', 'recompute=none,input,split'
NARROW = '--fix', 'way=gather', '--fix', 'recompute=none', '--fix', 'overlap=on'


def search(model, ranks, *options):
    text, batch, seq, _ = (MODELS | WIDE)[model]
    machine, gpus = (PAIRS, 2) if model == 'apart' else (MACHINE, 8)
    plan = ['--plan', 'p'] if model == 'eights' else []
    if plan: machine = machine.replace('sm_90', 'sm_90a')
    open(f'{WORK}/m.shard', 'w').write(text + machine)
    command = [SHARDC, 'plan', 'm.shard', '--search', '--json', '--model', 'V', *plan, '-D', f'Seq={seq}',
               '--set', f'train.batch={batch}', '--on', f'h8 nodes = {-(-ranks // gpus)}', '--fix', f'ranks={ranks}',
               *(WHOLE if model in MODELS else NARROW), *options]
    p = subprocess.run(command, cwd=WORK, capture_output=True, text=True, env=dict(os.environ, SHARDC_PATH=EXAMPLES))
    check(p.returncode == 0 or 'no plan of the space fits' in p.stderr, f'{" ".join(command)}: {p.stderr}')
    return json.loads(p.stdout) if p.stdout else None


def compare(model, ranks, *fixes, searches=(EXACT, EARLY, ())):
    every = search(model, ranks, '--all', *fixes)
    if not every: return print(f'{model} on {ranks}: no plan')
    rows = [r for r in every['all'] if r['outcome'] != 'refused']
    fits = [r for r in rows if r['outcome'] == 'fits']
    for r in rows:
        check(r['bound_seconds'] <= r['seconds'] and r['bound_bytes'] <= r['bytes'], f'{model} on {ranks}: {r}')
    compiled, wide = [], 0
    for objective, key, more in ('time', 'seconds', 0), ('memory', 'bytes', RESERVE):
        best = min(r[key] for r in fits) + more
        for options in searches:
            found = search(model, ranks, '--objective', objective, *options, *fixes)
            value, gap = found['plans'][0][key], found['gap']
            check(value >= best * (1 - 1e-5), f'{model} on {ranks}: {value} found, {best} is the best')
            if options == EXACT:
                check(value <= best * (1 + 1e-5) and not gap, f'{model} on {ranks}: {value} found, not {best}: {gap}')
                compiled.append(found['fitting'] + found['refused'])
            value, best = value - more, best - more
            check(value / (1 + gap) <= best * (1 + 1e-5), f'{model} on {ranks}: certified {gap}: {value}, {best}')
            wide, best = max(wide, 0 if options else (1 + gap) * best / value - 1), best + more
    bounds = sorted(r['bound_seconds'] / r['seconds'] for r in fits)
    usual = f'usual certificates are up to {100 * wide:.1f} % too wide; ' if () in searches else ''
    print(f'{model} on {ranks}: {len(every["all"])} plans, {len(every["all"]) - len(rows)} refused; compiled to find '
          f'the fastest {compiled[0]}, the smallest {compiled[1]}; {usual}bounds are {bounds[0]:.3f} to '
          f'{bounds[-1]:.3f} of the time, in the median {bounds[len(bounds) // 2]:.3f}', flush=True)


if sys.argv[2:3] == ['all']:
    for ranks in range(1, 17):
        for model in sys.argv[3:] or MODELS: compare(model, ranks)
else:
    for model, (_, _, _, ranks) in MODELS.items():
        if ranks: compare(model, ranks, '--fix', 'overlap=on')
    for model, ranks, *fixes in PARTS:
        compare(model, ranks, *(word for fix in fixes for word in ('--fix', fix)), searches=(EXACT,))
