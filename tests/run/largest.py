"""`shardc fit`, the largest model that fits: python3 largest.py SHARDC ROOT

Table 2 of the ZeRO paper (largest models of 64 and 1,024 V100s of 32 GB, by theory, which leaves out activations), with
our number of layers by bisection and the deviation; the largest size fits and the next does not, by `plan`, for dims
with steps, two dims, a pipeline, open choices and offload; refusals name the word.
"""
import json, os, pty, subprocess, sys
from concurrent.futures import ThreadPoolExecutor
from common import EXAMPLES, check, run, workdir

SHARDC, ROOT, WORK = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), workdir()
ZERO = f'{ROOT}/examples/papers/zero.shard'
THEORY = {1: (2, 7.6, 14.4, 128), 16: (32, 121.6, 230.4, 2000)}                 # billions of parameters, stages 0 to 3
WIDTH = {1: (1920, 3072, 4096, 8192), 16: (8192,) * 4}
WITHIN = 0.16
MODEL = '''use "gpt2"
variant Small of GPT2 { Pos = 64; Vocab = 512; Embed = 64; Heads = 4; Layers = 4 }
train t for Small { size Seq = 64; batch 64; steps 6; data "text.txt" format = bytes; optim adamw lr = 2e-3 }
machine box { node gpus = 4 arch = sm_80 memory = %s reserve = 1MiB bf16 = 1TFLOPS f32 = 1TFLOPS hbm = 100GB/s
  host memory = 1GiB pcie = 10GB/s dram = 50GB/s cores = 8
  link intra = 100GB/s inter = 40GB/s }
plan p for Small {
  on box nodes = 64
%s}
'''
DATA = ('mesh data = 8', 'place Batch -> data')
PLANS = {'steps': (*DATA, 'micro 2', 'zero 2'), 'tensor': ('mesh tensor = 4', 'place Heads, Mlp -> tensor', 'micro 2'),
         'open': (*DATA, 'zero 3'), 'host': (*DATA, 'micro 2', 'offload auto -> host'),
         'pipe': ('mesh pipe = 4', 'place Layers -> pipe', 'micro 4', 'pipeline auto')}


def write(memory, lines):
    open(f'{WORK}/m.shard', 'w').write(MODEL % (memory, ''.join(f'  {l}\n' for l in lines)))


def fit(file, *words, expect=0):
    out, said = run(SHARDC, 'fit', file, *words, '--json', cwd=WORK, expect=expect)
    return json.loads(out) if out else None, said


def table2(row):
    tensor, stage = row
    width = WIDTH[tensor][stage]
    sets = {'mesh.data': 64, 'on.nodes': 4 * tensor, 'zero': stage, 'micro': 1}
    if tensor > 1: sets['mesh.tensor'] = tensor
    words = [w for key, value in sets.items() for w in ('--set', f'plan.{key}={value}')]
    told, _ = fit(ZERO, '--plan', 'zero' if tensor > 1 else 'data', '--scale', 'Layers', '-D', f'Embed={width}', '-D',
                  f'Heads={width // 128}', '--set', 'train.batch=64', *words)
    return row, told['largest']['parameters'] / 1e9, told


def papers():
    rows = [(tensor, stage) for tensor in THEORY for stage in range(4)]
    with ThreadPoolExecutor(2) as pool:
        for (tensor, stage), ours, told in pool.map(table2, rows):
            paper = THEORY[tensor][stage]
            print(f'table 2, {64 * tensor} GPUs, tensor {tensor}, stage {stage}: paper {paper}B, ours {ours:.1f}B '
                  f'({told["largest"]["sizes"]}), {ours / paper - 1:+.0%}')
            check(abs(ours / paper - 1) < WITHIN, f'{tensor} {stage}: {told}')


def plan_fits(sizes):
    dims = [w for k, v in sizes.items() for w in ('-D', f'{k}={v}')]
    p = subprocess.run([SHARDC, 'plan', 'm.shard', '--json', *dims], cwd=WORK, capture_output=True, text=True,
                       env=dict(os.environ, SHARDC_PATH=EXAMPLES, NO_COLOR='1'))
    told = json.loads(p.stdout)
    return told['fits'], max(c['bytes']['total'] for c in told['classes'])


def agrees(name, memory, scale):
    write(memory, PLANS[name])
    told, _ = fit('m.shard', '--scale', scale)
    most, bytes_ = plan_fits(told['largest']['dims'])
    over, more = plan_fits(told['next']['dims'])
    check(most and bytes_ == told['largest']['bytes'] and not over and more == told['next']['bytes'],
          f'{name} {scale}: {told}, {most} {bytes_} {over} {more}')
    print(f'{name} in {memory}: {told["largest"]["sizes"]} fits, {told["next"]["sizes"]} does not')
    return told


def refusals():
    write('10MiB', PLANS['tensor'])
    for scale, words in (('Depth', 'takes Seq, Pos, Vocab, Embed'), ('Batch', 'no size of the model'),
                         ('Layers,Layers', 'twice'), ('', 'was given nothing'), ('Embed=6', 'multiples of 4'),
                         (',', 'not ``'), ('Embed=x', 'takes a whole number')):
        _, said = fit('m.shard', '--scale', scale, expect=2)
        check(words in said, f'{scale}: {said}')
    _, said = fit('m.shard', expect=2)
    check('needs the dims that grow' in said, said)
    _, said = fit(ZERO, '--scale', 'Layers', expect=2)
    check('has the plans' in said, said)
    write('1100KiB', PLANS['steps'])
    told, _ = fit('m.shard', '--scale', 'Layers', expect=3)
    check('largest' not in told and told['next']['dims'] == {'Layers': 1} and told['overflows'] == 'the device', told)
    told, _ = fit('m.shard', '--scale', 'Layers=4000000000', expect=3)
    check(told['refused'].startswith('E0305') and set(told['next']) == {'sizes', 'dims'}, told)


papers()
def progress():
    """On a terminal, a line says how far a search of minutes is."""
    write('200GiB', (*DATA, 'micro 2', 'zero 3', 'offload optimizer, params -> host',
                     'recompute h.* keep = all offload = host'))
    ours, theirs = pty.openpty()
    seen = b''
    with subprocess.Popen([SHARDC, 'fit', 'm.shard', '--scale', 'Layers', '--set', 'machine.host.memory=9TB'], cwd=WORK,
                          stdout=subprocess.DEVNULL, stderr=theirs) as p:
        os.close(theirs)
        while b'fit: Layers = ' not in seen:
            try: more = os.read(ours, 4096)
            except OSError: more = b''
            if not more: break
            seen += more
        p.kill()
    os.close(ours)
    check(b'\rfit: Layers = ' in seen.replace(b'\033[K', b''), f'no progress: {seen}')


progress()
told = agrees('steps', '20MiB', 'Layers')
check(told['next']['dims']['Layers'] == told['largest']['dims']['Layers'] + 1, told)
told = agrees('tensor', '20MiB', 'Embed=16')
check(told['next']['dims']['Embed'] == told['largest']['dims']['Embed'] + 16, told)
agrees('steps', '40MiB', 'Layers, Embed')
told = agrees('open', '6MiB', 'Embed')
check(told['next']['bytes'] < 1.2 * told['capacity'], f'the need of the smallest micro-batch, not of the whole: {told}')
agrees('steps', '20MiB', 'Pos')                                          # fewer than the sequence has are refused
agrees('host', '12MiB', 'Layers')
told = agrees('pipe', '16MiB', 'Layers')
check(told['largest']['dims']['Layers'] % 4 == 0, told)
refusals()
