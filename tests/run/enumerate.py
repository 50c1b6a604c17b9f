"""The search of `plan --search` against all plans of its space: python3 enumerate.py SHARDC SEARCHES [FORM [SLICE ..]]

Three models on 2 or 3 GPUs, messages that overlap alone; models whose kernels take longer than their launches, so that
bounds are near to the truth, one of them in fp8, on some meshes of 4 and 8 GPUs; some meshes of two nodes. Two long
forms take the first three and one with experts, the smaller numbers of ranks first; a slice is a model, or a model and
ranks, `gpt=8`:

- `meshes`: every mesh of up to 16 GPUs, with all axes, orders, schedules of pipelines, micro-batches, stages of ZeRO
  and splits of the sequence, but one value of each choice of OTHERS;
- `all`: every plan of up to 16 GPUs (hours).

For each, `--all` compiles every plan of the space, without the branch and bound, and

- without a gap the search finds the best of these plans, by time and by memory;
- the certificate of a search that ends early, after 4 plans or by its usual gap, is true: no plan is better by more;
- no plan is faster or smaller than its bound.

SEARCHES is `shardc` whose searches of one space follow each other in one process and compile no program twice
(searches.c); for one space all searches are those of SHARDC as well. A line says how many plans there are, how many the
search compiled, by how much the certificate of a usual search is too wide, which share of a plan's time its bound is,
and the processor time of the slice.
"""
import json, os, resource, subprocess, sys
from common import EXAMPLES, check, workdir

SHARDC, SEARCHES, WORK = *map(os.path.abspath, sys.argv[1:3]), workdir()
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
         ('odd', 12, 'context=4', 'data=3', 'micro=2', 'zero=0,1', 'offload=none'),
         ('experts', 16, 'tensor=2', 'context=4', 'data=2', 'zero=0', 'offload=none'),
         ('wide', 8, 'tensor=2', 'data=2', 'pipe=2', 'micro=2', 'zero=3', 'accumulate=shard', 'sequence=on',
          'pipeline=one_f_one_b,zero_bubble,interleaved-2', 'order=tensor-data-pipe,data-tensor-pipe')]
OPTIONS = {'exact': ('--gap', '0', '--tries', '1000000'), 'early': ('--gap', '0', '--tries', '4'), 'usual': ()}
# all that a search tries after it has found its best plan is in the space, or left out
WHOLE = '--fix', 'way=gather,balanced,ring,exchange', '--fix', 'recompute=none,input,split'
NARROW = '--fix', 'way=gather', '--fix', 'recompute=none', '--fix', 'overlap=on'
OTHERS = *NARROW, '--fix', 'offload=none', '--fix', 'accumulate=shard'          # of the form `meshes`
failed = []


def search(program, model, ranks, *options):
    text, batch, seq, _ = (MODELS | WIDE)[model]
    machine, gpus = (PAIRS, 2) if model == 'apart' else (MACHINE, 8)
    plan = ['--plan', 'p'] if model == 'eights' else []
    if plan: machine = machine.replace('sm_90', 'sm_90a')
    open(f'{WORK}/m.shard', 'w').write(text + machine)
    command = [program, 'plan', 'm.shard', '--search', '--json', '--model', 'V', *plan, '-D', f'Seq={seq}',
               '--set', f'train.batch={batch}', '--on', f'h8 nodes = {-(-ranks // gpus)}', '--fix', f'ranks={ranks}',
               *options]
    p = subprocess.run(command, cwd=WORK, capture_output=True, text=True,
                       env=dict(os.environ, SHARDC_PATH=EXAMPLES, SHARDC_SEARCHES=f'{WORK}/searches'))
    check(p.returncode == 0 or 'no plan of the space fits' in p.stderr, f'{" ".join(command)}: {p.stderr}')
    return json.loads(p.stdout) if p.stdout else None


def read_searches():
    """The (objective, search, value, gap, compiled) of each search."""
    rows = [line.split() for line in open(f'{WORK}/searches')]
    check(len(rows) == 6, f'{len(rows)} searches in place of 6')
    return [(objective, kind, float(value), float(gap), int(tries)) for objective, kind, value, gap, tries in rows]


def expect(good, message):
    """A slice that fails is no reason to leave out the next one."""
    if not good: failed.append(message), print('failed:', message, flush=True)


def judge_bounds(name, rows):
    below = [r for r in rows if r['bound_seconds'] > r['seconds'] or r['bound_bytes'] > r['bytes']]
    expect(not below, f'{name}: {len(below)} plans are better than their bounds, for example {below[:1]}')


def judge_search(name, best, objective, kind, value, gap):
    name = f'{name}, {kind}, by {objective}'
    expect(value >= best * (1 - 1e-5), f'{name}: {value} found, {best} is the best')
    expect(kind != 'exact' or (value <= best * (1 + 1e-5) and not gap), f'{name}: {value} found, not {best}: {gap}')
    expect(value / (1 + gap) <= best * (1 + 1e-5), f'{name}: certified {gap}: {value}, {best}')


def processor_time():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compare(model, ranks, *fixes):
    before, name = processor_time(), f'{model} on {ranks}'
    every = search(SEARCHES, model, ranks, '--all', *fixes)
    if not every: return print(f'{name}: no plan', flush=True)
    rows = [r for r in every['all'] if r['outcome'] != 'refused']
    fits, wide, compiled = [r for r in rows if r['outcome'] == 'fits'], 0, {}
    judge_bounds(name, rows)
    for objective, kind, value, gap, tries in read_searches():
        best = min(r['seconds' if objective == 'time' else 'bytes'] for r in fits)
        judge_search(name, best, objective, kind, value, gap)
        if kind == 'exact': compiled[objective] = tries
        if kind == 'usual': wide = max(wide, (1 + gap) * best / value - 1)
    bounds = sorted(r['bound_seconds'] / r['seconds'] for r in fits)
    print(f'{name}: {len(every["all"])} plans, {len(every["all"]) - len(rows)} refused; compiled to find the fastest '
          f'{compiled["time"]}, the smallest {compiled["memory"]}; usual certificates are up to {100 * wide:.1f} % too '
          f'wide; bounds are {bounds[0]:.3f} to {bounds[-1]:.3f} of the time, in the median '
          f'{bounds[len(bounds) // 2]:.3f}; {processor_time() - before:.1f} s of processor time', flush=True)


def agree(*space):
    """The searches of the last space are those of the compiler itself."""
    for objective, kind, value, gap, _ in read_searches():
        found = search(SHARDC, *space, '--objective', objective, *OPTIONS[kind])
        own = found['plans'][0]['seconds'] if objective == 'time' else found['plans'][0]['bytes'] - RESERVE
        expect(abs(own - value) <= 1e-5 * value and abs(found['gap'] - gap) <= 1e-5,
               f'{" ".join(map(str, space))}, {kind}, by {objective}: {own} and {found["gap"]}, not {value} and {gap}')


def slices(wanted):
    for ranks in range(1, 17):
        for model in MODELS:
            if not wanted or model in wanted or f'{model}={ranks}' in wanted: yield model, ranks


if form := sys.argv[3:4]:
    check(form[0] in ('all', 'meshes'), f'the forms are all and meshes, not {form[0]}')
    for space in slices(sys.argv[4:]): compare(*space, *(WHOLE if form == ['all'] else OTHERS))
else:
    for model, (_, _, _, ranks) in MODELS.items():
        if ranks: compare(model, ranks, *WHOLE, '--fix', 'overlap=on')
    for model, ranks, *fixes in PARTS:
        wide = model in MODELS and ranks < 4
        space = model, ranks, *(WHOLE if wide else NARROW), *(w for fix in fixes for w in ('--fix', fix))
        compare(*space)
        if model == 'single': agree(*space)
sys.exit(1 if failed else 0)
