"""`train --profile` writes the machine block that it measured: python3 calibrate.py SHARDC

The block is read by `use` as it is, its lines `node`, `host` and `link` are those of the plan's machine, and `plan`
with it forecasts by rates that were measured: of one rank, of two, over messages too short for a rate, of a program
without a machine, and of the stand-in for a GPU. No rate is above a peak of the block. A run without steps after the
first two has no block. The share `joined` is that of ranks with several threads, `balance` that of several ranks.

`plan --measured` sets the forecast next to the trace of the same run: its parts add up to the step of the file, kernels
to the time of the file's boxes, waits to those of its axis; the trace of another plan is refused, and one without a
forecast or a schedule.
"""
import array, json, os, random, re, shutil, sys
from common import check, run, workdir

CORES = os.cpu_count()
SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
MODEL = '''use "gpt2"
variant M of GPT2 { Pos = 32; Vocab = 512; Embed = %d; Heads = 2; Layers = 2 }
train t for M { size Seq = 32; batch 4; steps 8; data "t.bin" format = u16; optim adamw lr = 1e-4; clip 1.0 }
'''
CPUS = '''machine box {
  node cpus = 2 arch = %s disk = 1.5GB/s memory = 12345678912 reserve = 1GB f32 = 1.25TFLOPS bf16 = 2TFLOPS hbm = %s
  link intra = 12.5GB/s inter = 3.75GB/s latency = 12.5us per_core = 1.5GB/s cpus = 9GB/s
  reached launch = 1us
}
'''
GPUS = '''machine box {
  node gpus = 2 arch = sm_90 memory = 8GiB bf16 = 989.4TFLOPS f16 = 1TFLOPS tf32 = 2TFLOPS hbm = 3.35TB/s
  host memory = 10GB dram = 100GB/s pcie = 16GB/s latency = 2.5us cores = 2 arch = x86_64_v3
  link intra = 450GB/s inter = 50GB/s latency = 5us
}
'''
TWO = 'mesh data = 2\n  place Batch -> data\n  zero %s over data'
# name: machine, width, lines of the plan, words of `reached` that are measured
ROWS = {'one': (CPUS % ('native', '200GB/s'), 64, 'on box\n  micro 4', 'products attention memory launch'),
        'two': (CPUS % ('x86_64_v3', '200GB/s'), 128, f'on box\n  {TWO % 2}', 'products attention memory launch intra'),
        # its processors carry messages so fast that `overlap` pays
        'beside': (CPUS.replace('per_core = 1.5', 'per_core = 90') % ('x86_64_v3', '200GB/s'), 128,
                   f'on box\n  {TWO % 2} overlap = on', 'products attention memory launch intra'),
        'small': (CPUS % ('x86_64_v3', '1MB/s'), 32, f'on box\n  {TWO % "1"} bucket = 16KiB',
                  'products attention memory launch'),
        'nothing': ('', 64, 'micro 2', 'products attention memory launch'),
        'gpu': (GPUS, 64, f'on box\n  {TWO % 2}\n  offload optimizer, grads -> host\n  precision bf16',
                'products attention memory intra dram')}


def machine_of(dump, line):
    """The settings of a line of the machine block; `native` is left out, since a measured block has the target."""
    rows = re.findall(rf'set machine\.({line}\.\S+) = "(.*)"', dump)
    return {key: float(value) if re.fullmatch(r'[\d.e+-]+', value) else value for key, value in rows
            if value != 'native'}


def compare(name, ranks):
    told, _ = run(SHARDC, 'plan', 'again.shard', '--plan', 'p', '--measured', 'trace.json', '--json', cwd=folder)
    told = json.loads(told)['compared']
    events = [e for e in json.load(open(f'{folder}/trace.json'))['traceEvents'] if e['ph'] == 'X' and not e['pid']]
    step, = [e for e in events if e['name'] == f'step {told["step"]}']
    inside = [e for e in events if step['ts'] <= e['ts'] < step['ts'] + step['dur']]
    part = {p['part']: p['measured'] for p in told['parts']}
    check(abs(sum(part.values()) - told['seconds']) < 1e-6 * told['seconds'] + 1e-9, f'{name}: {told}')
    check(abs(told['seconds'] - 1e-6 * step['dur']) < 1e-8, f'{name}: {told["seconds"]}, {step}')
    waits = [e['dur'] for e in inside if e['cat'] == ('message' if name == 'gpu' else 'wait')]
    check((ranks > 1) == bool(waits) and abs(part.get('waits over data', 0) - 1e-6 * sum(waits)) < 1e-8,
          f'{name}: {part}, waits {sum(waits)}')
    for kernel in told['kernels']:
        own = [e for e in inside if e['cat'] == 'kernel' and e['name'] == kernel['kernel']]
        longest = sum(e['dur'] for e in own if e['tid'] == own[0]['tid'])
        check(bool(own) and 1e-6 * longest <= kernel['measured'] + 1e-8 <= 1e-6 * sum(e['dur'] for e in own) + 2e-8
              or len(own) > 1, f'{name}: {kernel}, {own}')
        check(kernel['forecast'] > 0, f'{name}: {kernel}')
    names = {e['name'] for e in inside if e['cat'] == 'kernel' and '.' in e['name']}       # those of the host included
    check(name == 'gpu' or names == {kernel['kernel'] for kernel in told['kernels']}, f'{name}: {names}')


for name, (machine, width, lines, words) in ROWS.items():
    precision = '' if 'precision' in lines else '\n  precision f32'
    text = MODEL % width + machine + f'plan p for M {{\n  {lines}{precision}\n}}\n'
    open(f'{folder}/m.shard', 'w').write(text)
    random.seed(1)
    array.array('H', [random.randrange(512) for _ in range(1 << 14)]).tofile(open(f'{folder}/t.bin', 'wb'))
    _, said = run(SHARDC, 'run', 'm.shard', *(['--emulate'] if name == 'gpu' else []), '--plan', 'p', '--', 'train',
                  '--out', 'out', '--profile', '--trace', 'trace.json:4..6', cwd=folder)
    block = open(f'{folder}/out/measured.shard').read()
    check(f'\n{block}' in said and 'also in out/measured.shard' in said, f'{name}: {said}')
    # threads of a rank that wait for each other: the share in which they do not
    joins = name != 'gpu' and int(re.search(r' (\d+) workers?, ', said).group(1)) > 1
    joined = re.search(r' joined = ([\d.]+) ', block)
    check(bool(joined) == joins and (not joins or 0 < float(joined.group(1)) <= 1), f'{name}: {said}')
    if joins: words = words.replace('launch', 'launch joined')
    # ranks that wait for the slowest, where each has processors of its own
    balance, apart = re.search(r' balance = ([\d.]+) ', block), 'mesh' in lines and name != 'gpu' and CORES > 1
    check(bool(balance) == apart and (not apart or 0 < float(balance.group(1)) <= 1), f'{name}: {said}')
    if apart: words = words.replace('launch', 'launch balance')
    # read back: the same machine, and rates that the forecast names
    on = 'on measured' if machine else 'on measured\n  ' + lines
    other = text.replace('on box', on) if machine else text.replace(lines, on)
    open(f'{folder}/again.shard', 'w').write('use "out/measured"\n' + other)
    dumps = [run(SHARDC, 'compile', file, '--plan', 'p', '--emit', 'ir', cwd=folder)[0]
             for file in ('m.shard', 'again.shard')]
    for line in 'node', 'host', 'link':
        was, now = (machine_of(dump, line) for dump in dumps)
        more = now.keys() - was.keys()                  # cores, and the target in place of `native`
        if name == 'beside' and line == 'link':         # measured by the thread that communicates, which slows kernels
            check(0 < now['link.per_core'] != was.pop('link.per_core'), f'{name}: {block}')
        check(not machine or was.items() <= now.items() and more <= {'node.cores', 'node.arch'},
              f'{name}: {was}\n{now}\n{block}')
    forecast = json.loads(run(SHARDC, 'plan', 'again.shard', '--plan', 'p', '--json', cwd=folder)[0])['forecast']
    check(forecast['reached'] == ', '.join(words.split()), f'{name}: {forecast["reached"]}\n{block}')
    check(forecast['seconds_per_step'] > 0, block)
    before = json.loads(run(SHARDC, 'plan', 'm.shard', '--plan', 'p', '--json', cwd=folder)[0]).get('forecast')
    check(not machine or (before['seconds']['slowed'] > 0) == (name == 'beside'), f'{name}: {before}')
    compare(name, ranks=2 if 'mesh' in lines else 1)
    if name == 'small': check('memory = 0.001GB/s' in block, block)              # no more than the peak of the block
    shutil.rmtree(f'{folder}/out')

_, said = run(SHARDC, 'run', 'm.shard', '--emulate', '--plan', 'p', '--', 'train', '--out', 'out', '--profile',
              '--steps', '2', cwd=folder)
check('no machine block: ' in said and not os.path.exists(f'{folder}/out/measured.shard'), said)

# the trace of another plan; a plan without a machine
text = MODEL % 64 + CPUS % ('native', '200GB/s')
plans = 'plan p for M { on box; micro 4; precision f32 }\nplan q for M { on box; micro 2; recompute h.* keep = none }\n'
open(f'{folder}/m.shard', 'w').write(text + plans + 'plan none for M { micro 4; precision f32 }\n')
run(SHARDC, 'run', 'm.shard', '--plan', 'p', '--', 'train', '--out', 'o', '--trace', 't.json:2..3', cwd=folder)
for plan, says in ('q', 'is of another plan: this one has no kernel `'), ('none', 'has no schedule and no forecast'):
    _, said = run(SHARDC, 'plan', 'm.shard', '--plan', plan, '--measured', 't.json', cwd=folder, expect=1)
    check('E1403' in said and says in said, said)
_, said = run(SHARDC, 'plan', 'm.shard', '--plan', 'p', '-D', 'Layers=3', '--measured', 't.json', cwd=folder, expect=1)
check('E1403' in said and 'is of a step of ' in said, said)
print(f'{len(ROWS)} blocks')
