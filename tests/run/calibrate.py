"""`train --profile` writes the machine block that it measured: python3 calibrate.py SHARDC

The block is read by `use` as it is, its lines `node`, `host` and `link` are those of the plan's machine, and `plan`
with it forecasts by rates that were measured: of one rank, of two, over messages too short for a rate, of a program
without a machine, and of the stand-in for a GPU. No rate is above a peak of the block. A run without steps after the
first two has no block.
"""
import json, os, random, re, array, shutil, sys
from common import check, run, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
MODEL = '''use "gpt2"
variant M of GPT2 { Pos = 32; Vocab = 512; Embed = %d; Heads = 2; Layers = 2 }
train t for M { size Seq = 32; batch 4; steps 8; data "t.bin" format = u16; optim adamw lr = 1e-4; clip 1.0 }
'''
CPUS = '''machine box {
  node cpus = 2 arch = %s memory = 12345678912 reserve = 1GB f32 = 1.25TFLOPS bf16 = 2TFLOPS hbm = %s
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
        'small': (CPUS % ('x86_64_v3', '1MB/s'), 32, f'on box\n  {TWO % "1"} bucket = 16KiB',
                  'products attention memory launch'),
        'nothing': ('', 64, 'micro 2', 'products attention memory launch'),
        'gpu': (GPUS, 64, f'on box\n  {TWO % 2}\n  offload optimizer, grads -> host\n  precision bf16',
                'products attention memory intra dram')}


def machine_of(dump, line):
    """Settings of a line, numbers as such; `native` is left out, since the block has the target."""
    rows = re.findall(rf'set machine\.({line}\.\S+) = "(.*)"', dump)
    return {key: float(value) if re.fullmatch(r'[\d.e+-]+', value) else value for key, value in rows
            if value != 'native'}


for name, (machine, width, lines, words) in ROWS.items():
    precision = '' if 'precision' in lines else '\n  precision f32'
    text = MODEL % width + machine + f'plan p for M {{\n  {lines}{precision}\n}}\n'
    open(f'{folder}/m.shard', 'w').write(text)
    random.seed(1)
    array.array('H', [random.randrange(512) for _ in range(1 << 14)]).tofile(open(f'{folder}/t.bin', 'wb'))
    _, said = run(SHARDC, 'run', 'm.shard', *(['--emulate'] if name == 'gpu' else []), '--plan', 'p', '--', 'train',
                  '--out', 'out', '--profile', cwd=folder)
    block = open(f'{folder}/out/measured.shard').read()
    check(f'\n{block}' in said and 'also in out/measured.shard' in said, f'{name}: {said}')
    # read back: the same machine, and rates that the forecast names
    on = 'on measured' if machine else 'on measured\n  ' + lines
    other = text.replace('on box', on) if machine else text.replace(lines, on)
    open(f'{folder}/again.shard', 'w').write('use "out/measured"\n' + other)
    dumps = [run(SHARDC, 'compile', file, '--plan', 'p', '--emit', 'ir', cwd=folder)[0]
             for file in ('m.shard', 'again.shard')]
    for line in 'node', 'host', 'link':
        was, now = (machine_of(dump, line) for dump in dumps)
        check(not machine or was.items() <= now.items() and len(now) - len(was) == (name == 'one' and line == 'node'),
              f'{name}: {was}\n{now}\n{block}')
    forecast = json.loads(run(SHARDC, 'plan', 'again.shard', '--plan', 'p', '--json', cwd=folder)[0])['forecast']
    check(forecast['reached'] == ', '.join(words.split()), f'{name}: {forecast["reached"]}\n{block}')
    check(forecast['seconds_per_step'] > 0, block)
    if name == 'small': check('memory = 0.001GB/s' in block, block)              # no more than the peak of the block
    shutil.rmtree(f'{folder}/out')

_, said = run(SHARDC, 'run', 'm.shard', '--emulate', '--plan', 'p', '--', 'train', '--out', 'out', '--profile',
              '--steps', '2', cwd=folder)
check('no machine block: ' in said and not os.path.exists(f'{folder}/out/measured.shard'), said)
print(f'{len(ROWS)} blocks')
