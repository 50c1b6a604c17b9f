"""The host of a GPU as a memory tier: python3 offload.py SHARDC [FIRST]

A small GPT whose parameters, states, gradients and saved inputs are in pinned host memory, over one and two GPUs of the
stand-in; its update then consists of kernels for the processor, in one program with those for the GPU. The stand-in
enforces what a real one does: it executes copies late, and graphs and streams in any order that events allow. Losses,
norms, weights and states equal those without `offload`, bit by bit; the bytes that each memory's arena touches equal
the prediction; the bytes that a step copies equal the plan. The test also checks what `plan` prints of both memories
and of the link between them, and which plans are refused.
"""
import json, os, re, shutil, subprocess, sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'run'))
from common import EXAMPLES, check, read, run, text_file, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
MODEL = '''use "gpt2"
variant Small of GPT2 { Pos = 16; Vocab = 256; Embed = 32; Heads = 4; Layers = 2 }
train t for Small {
  size  Seq = 16
  batch 4
  steps 3
  data  "text.txt" format = bytes
  optim %s
  %s
}
machine box {
  node gpus = %d arch = sm_80 memory = 40GiB bf16 = 312TFLOPS f16 = 312TFLOPS f32 = 20TFLOPS
  link intra = 300GB/s
  %s
}
plan hosted for Small { on box; %s; %s }
plan near for Small { on box; %s }
'''
HOST = 'host memory = 1GiB pcie = 12GB/s latency = 10us cores = 2 dram = 20GB/s'
ONE, TWO = 'mesh data = 1; place Batch -> data', 'mesh data = 2; place Batch -> data'
ADAM, LAMB, SGD = 'adamw lr = 2e-3; clip 1.0', 'lamb lr = 2e-3; clip 1.0', 'sgd lr = 1e-2; clip 1.0'
FREE = 'adamw lr = 2e-3; on_nan off'  # no norm needed: rounds of the backward loop include their update
NARROW = '2e-3 betas = [0.9, 0.95] states = bf16'
PARAMS, KEPT = 'offload params -> host', 'recompute h keep = input offload = host'
NEAR, UPDATE = 'recompute h keep = input', 'offload optimizer, grads -> host'
LATE = 'delay after = 1'  # the third step updates while its forward and backward pass run
# the plan, ranks, what goes to the host, the same without, the optimizer, and perhaps a line of `train`
CASES = [(ONE, 1, PARAMS, '', ADAM),
         (ONE + '; micro 2', 1, KEPT, 'recompute h keep = input', SGD),
         (TWO + '; zero 3 over data; precision bf16; micro 1', 2, PARAMS + '; ' + KEPT, NEAR, LAMB),
         (TWO + '; zero 1 over data overlap = on bucket = 4KiB', 2, PARAMS + '; recompute h keep = all offload = host',
          'recompute h keep = all', ADAM),
         (TWO + '; zero 1 over data; precision bf16', 2, 'offload optimizer -> host', '', ADAM),
         (TWO + '; zero 2 over data bucket = 4KiB; micro 1; precision bf16', 2, UPDATE, '', LAMB),
         (ONE + '; zero 2 over data; micro 2; precision f16', 1, UPDATE, '', ADAM),  # sums of one rank alone
         (TWO + '; zero 2 over data; precision bf16', 2,
          'offload optimizer, grads of h.* -> host; offload params of wte -> host', '', ADAM),
         (ONE + '; zero 0 over data', 1, f'{UPDATE}; {PARAMS}; {KEPT}', NEAR, 'sgd lr = 1e-2 momentum = 0.9; clip 1.0'),
         (TWO + '; zero 3 over data; precision f16; micro 1', 2, f'{UPDATE}; {PARAMS}; {KEPT}', NEAR, ADAM),
         (TWO + '; zero 2 over data; precision bf16', 2, UPDATE, '', FREE),
         (TWO + '; zero 2 over data; precision bf16', 2, UPDATE, '', ADAM.replace('2e-3', NARROW)),
         (ONE + '; zero 2 over data; precision bf16; micro 2', 1, UPDATE, '', ADAM, LATE),
         (TWO + '; zero 1 over data bucket = 4KiB; precision bf16', 2, 'offload optimizer -> host', '', ADAM, LATE),
         (TWO + '; zero 3 over data; precision f16; micro 1', 2, f'{UPDATE}; {PARAMS}; {KEPT}', NEAR, LAMB, LATE)]


def write(plan, gpus, hosted, near, optim, host=HOST, more=''):
    open(f'{folder}/m.shard', 'w').write(MODEL % (optim, more, gpus, host, plan, hosted, f'{plan}; {near}'))


def train(name, ranks, order=None, *more, **env):
    env |= {} if order is None else {'SHARDC_EMULATE_ORDER': str(order), 'SHARDC_EMULATE_LATE': '1'}
    shutil.rmtree(f'{folder}/out', ignore_errors=True)
    said = run(SHARDC, 'run', *(['-n', str(ranks)] if ranks > 1 else []), '--emulate', f'./{name}', '--', 'train',
               '--out', 'out', '--save-every', '0', '--dump', 'out.st', *more, cwd=folder, env=env)
    rows = [re.findall(r'"(step|loss|grad_norm)":([^,}]+)', l) for l in open(f'{folder}/out/metrics.jsonl')]
    return rows, read(f'{folder}/out.st'), ''.join(said)


def planned(name):
    said = json.loads(run(SHARDC, 'plan', 'm.shard', '--plan', name, '--json', cwd=folder)[0])
    return said, said['classes'][0]


def same_bits(plan, ranks, hosted, near, optim, more=''):
    write(plan, ranks, hosted, near, optim, more=more)
    for name in 'hosted', 'near': run(SHARDC, 'compile', 'm.shard', '--plan', name, '-o', name, '-q', cwd=folder)
    want, first = train('near', ranks)[:2], train('hosted', ranks)[:2]
    if 'grads' in hosted:  # the norm is added up by another processor, in another order
        worst = max(abs(float(x[1]) / float(y[1]) - 1) for a, b in zip(first[0], want[0], strict=True)
                    for x, y in zip(a, b, strict=True))
        most = 1e-3 if '16' in plan + near else 1e-5  # its last bit moves a weight by a rounding of the type
        check(worst < most, f'{plan}; {hosted}: {worst}: {first[0]} {want[0]}')
        print(f'{hosted}: losses and norms differ by {worst:.1g} at most')
        want = first
    for order, more in (None, ['--no-graph']), (0, []), (3, []), (1, ['--no-graph']), (4, ['--no-graph']):
        check(train('hosted', ranks, order, *more)[:2] == want, f'{plan}; {hosted}: other bits, {order} {more}')
    if ranks == 1:  # memory that is not pinned: the same results, slower, and one message
        slow = train('hosted', 1, 3, SHARDC_EMULATE_FAIL='cuMemHostRegister=2')
        check(slow[:2] == want and slow[2].count('warning[R1011]') == 1, f'{hosted}: not pinned: {slow[2]}')
    said = train('hosted', ranks, 2, '--check-memory')[2]
    rows = re.findall(r'^ *(\w+) +(\d+) +(\d+) +\d+  (exact|less)$', said, re.M)
    check(any(r[0] == 'step' for r in rows) and all(r[3] == 'exact' for r in rows), f'{hosted}: {said}')
    moved = re.findall(r'^step .*\n(?:  host .*\n)?  moved +(\d+) bytes down, (\d+) up$', said, re.M)
    (all_, p), q = planned('hosted'), planned('near')[1]
    wanted = p['moved_per_step']
    check(moved == [(str(wanted['down']), str(wanted['up']))] and wanted['up'], f'{hosted}: {moved}, {wanted} planned')
    seconds = (wanted['down'] + wanted['up']) / 12e9 + wanted['copies'] * 1e-5
    check(abs(all_['seconds']['pcie'] / seconds - 1) < 1e-4, f'{hosted}: {all_["seconds"]}, {seconds} over pcie')
    check(('optimizer' in hosted) == (all_['seconds']['host'] > 0), f'{hosted}: {all_["seconds"]}')
    s = all_['seconds']  # copies and the host run concurrently with the GPU, each as one lane
    lanes = max(s['host'], wanted['down'] / 12e9, wanted['up'] / 12e9)
    check(0 < s['away'] < s['pcie'] + s['host'], f'{hosted}: nothing is hidden, or all: {s}')
    check(all_['seconds_per_step'] >= max(lanes, s['compute'] + s['away']) * (1 - 1e-5), f'{hosted}: {all_}')
    if 'params of' in hosted: check(0 < p['host']['weights'] < q['bytes']['weights'], f'{p} {q}')
    elif 'params' in hosted:
        check(p['bytes']['weights'] == 0 and p['host']['weights'] == q['bytes']['weights'], f'{p} {q}')
    if 'recompute' in hosted: check(p['bytes']['saved'] == 0 and p['host']['saved'] > 0, f'{hosted}: {p}')


def plan_says(code, *words):
    p = subprocess.run([SHARDC, 'plan', 'm.shard', '--plan', 'hosted'], cwd=folder, capture_output=True, text=True,
                       env=dict(os.environ, SHARDC_PATH=EXAMPLES, NO_COLOR='1'))
    said = p.stdout + p.stderr
    check(p.returncode == code and all(w in said for w in words), f'{words}: exit {p.returncode}\n{said}')


def what_is_said():
    write(ONE, 1, PARAMS, '', ADAM)
    plan_says(0, "in the host's memory, ", 'host, in all', 'of 1.00 GiB for a rank', ', over pcie ')
    write(TWO, 2, PARAMS, '', ADAM, HOST.replace('1GiB', '256KiB'))
    plan_says(3, 'E0801', "of the host's memory on rank 0", 'divided by its 2 ranks', 'm.shard:16')
    write(ONE, 1, PARAMS, '', ADAM, 'host memory = 1GiB')
    plan_says(0, "in the host's memory, ")                       # no time is printed
    write(ONE, 1, PARAMS, '', ADAM, 'host pcie = 12GB/s')
    plan_says(0, 'does not say how much')
    for wrong in 'host pcie = 0', 'host pcie = 0GB/s', 'host memory = 0':
        write(ONE, 1, PARAMS, '', ADAM, wrong)
        plan_says(1, 'E0602', 'm.shard:14')
    for wrong in 'host pcie = 0', 'host dram = 0GB/s':
        write(ONE, 1, PARAMS, '', ADAM, wrong)
        plan_says(1, 'E0602', 'm.shard:14', 'more than 0')
    write(ONE, 1, PARAMS, '', ADAM, 'host arch = sm_80')
    plan_says(1, 'E0602', 'm.shard:14')


text_file(f'{folder}/text.txt')
for case in CASES[int((sys.argv + ['0'])[2]):]: same_bits(*case)
what_is_said()
shutil.rmtree(folder)
print(f'{len(CASES)} plans: the same numbers with what they name on the host of GPUs')
