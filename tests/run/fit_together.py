"""E0801 where no single change is enough: python3 fit_together.py SHARDC

The help names several lines; written into the plan as printed they make it fit, with the bytes that the help states,
also where the plan leaves a schedule, a micro-batch or the offload open. Two changes are named where their step is
clearly shorter than that of a single one.
"""
import json, os, re, shutil, subprocess, sys
from common import EXAMPLES, check, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
MODEL = '''use "gpt2"
variant Small of GPT2 { Pos = 64; Vocab = 512; Embed = 256; Heads = 4; Layers = 4 }
train t for Small { size Seq = 64; batch 16; steps 6; data "text.txt" format = bytes; optim adamw lr = 2e-3 }
machine box { node gpus = 4 arch = sm_80 memory = %s reserve = 0MiB bf16 = 1TFLOPS f32 = 1TFLOPS hbm = 100GB/s
  host cores = 8 dram = 100GB/s memory = 64GiB pcie = 20GB/s; link intra = 100GB/s inter = 40GB/s }
plan p for Small {
  %s
}
'''
DATA, PIPE = ['mesh data = 4', 'place Batch -> data'], ['mesh pipe = 2', 'place Layers -> pipe']
BOTH = ['mesh pipe = 2, data = 2', 'place Layers -> pipe', 'place Batch -> data']
NODES = ['mesh data = 4, node = 2', 'place Batch -> node, data']


def run(memory, lines, *args):
    open(f'{folder}/m.shard', 'w').write(MODEL % (memory, '\n  '.join(lines)))
    p = subprocess.run([SHARDC, *args, 'm.shard'], cwd=folder, capture_output=True, text=True,
                       env=dict(os.environ, SHARDC_PATH=EXAMPLES, NO_COLOR='1'))
    return p.returncode, p.stdout, p.stderr


def written(lines, change):
    """The lines of a plan after a change that the help of E0801 proposes."""
    word, lines = change.split()[0], list(lines)
    line = {'nodes': 'on', 'prefetch': 'zero', 'overlap': 'zero'}.get(word, word)
    at = next((i for i, l in enumerate(lines) if l.split()[0] == line), None)
    if at is None or word in ('recompute', 'offload'): return lines + [change]
    if word in ('nodes', 'prefetch', 'overlap'):
        lines[at] = re.sub(rf' {word} = \S+', '', lines[at]) + ' ' + change
    elif word == 'mesh':
        axis, size = re.match(r'mesh (\w+) = (\d+)', change).groups()
        lines[at] = re.sub(rf'\b{axis} = \d+', f'{axis} = {size}', lines[at])
    elif word == 'zero':
        lines[at] = ' '.join([change] + re.findall(r'(?:prefetch|overlap) = \S+', lines[at]))
    else: lines[at] = change
    return lines


def refused(memory, lines, *words, on='on box'):
    lines = [on] + lines
    rc, out, err = run(memory, lines, 'check')
    found = re.search(r'help: (.*?) would need ([\d.]+) MiB', err)
    check(rc == 3 and 'E0801' in err and found, f'{memory} {lines}: exit {rc}\n{err}')
    changes = re.findall(r'`([^`]*)`', found.group(1))
    for word in words: check(any(c.startswith(word) for c in changes), f'{lines}: `{word}` in {changes}')
    # the line `zero` comes first: its options are written into it
    for c in sorted(changes, key=lambda c: not c.startswith('zero')): lines = written(lines, c)
    rc, out, err = run(memory, lines, 'plan', '--plan=p', '--json')
    check(rc == 0, f'{changes} do not help: exit {rc}\n{lines}\n{err}')
    most = max(c['bytes']['total'] for c in json.loads(out)['classes']) / 2**20
    check(json.loads(out)['fits'] and abs(most - float(found.group(2))) < 0.06, f'{changes}: {most} {err}')


def two():
    """Recomputed layers leave room for larger micro-batches than the single change that would do."""
    text = """use "gpt2"
variant Big of GPT2 { Embed = 2560; Heads = 32; Layers = 30 }
train t for Big { size Seq = 1024; batch 96; steps 6; data "text.bin"; optim adamw lr = 2e-3 }
machine v100 { node gpus = 8 arch = sm_70 memory = 12GB; link inter = 12.5GB/s }
plan p for Big { on v100 nodes = 2; mesh data = 16; place Batch -> data; precision f16 master = f32; %s }
"""
    def plan(lines):
        open(f'{folder}/big.shard', 'w').write(text % lines)
        p = subprocess.run([SHARDC, 'plan', 'big.shard', '--json'], cwd=folder, capture_output=True, text=True,
                           env=dict(os.environ, SHARDC_PATH=EXAMPLES, NO_COLOR='1'))
        return json.loads(p.stdout)['forecast']['seconds_per_step'], p.stderr, p.returncode
    said = re.search(r'help: (.*?) would need .* and ([\d.]+) s a step by the forecast', plan('')[1])
    changes = re.findall(r'`([^`]*)`', said.group(1))
    check([c.split()[0] for c in changes] == ['zero', 'recompute'], said.group(0))
    seconds, err, rc = plan('; '.join(changes))
    single = plan('zero 3 over data')
    check(rc == single[2] == 0 and abs(seconds / float(said.group(2)) - 1) < 1e-2, f'{seconds}: {said.group(0)} {err}')
    check(seconds < 0.9 * single[0], f'{seconds} {single}')


try:
    two()
    refused('24MiB', [], 'offload')                            # `micro` is open: it stays so
    refused('24MiB', PIPE + ['pipeline gpipe', 'micro 2'], 'pipeline one_f_one_b', 'offload')
    refused('24MiB', PIPE + ['pipeline zero_bubble memory = 2', 'micro 2'], 'pipeline one_f_one_b', 'offload')
    refused('12MiB', DATA + ['zero 3 prefetch = 2 overlap = on', 'micro 4'], 'prefetch = 0', 'overlap = off')
    refused('6MiB', DATA + ['zero 3 prefetch = 2 overlap = on', 'micro 4'], 'mesh data = ', 'prefetch = 0')
    refused('24MiB', BOTH + ['pipeline auto', 'micro 4', 'zero 1'], 'zero 3', 'micro')
    for memory in '24MiB', '12MiB', '6MiB':
        refused(memory, DATA + ['micro 4', 'offload auto -> host', 'precision bf16'], 'zero 3')
        refused(memory, NODES + ['zero 2 over data'], 'zero 3 over data', on='on box nodes = 2')
finally:
    shutil.rmtree(folder)
