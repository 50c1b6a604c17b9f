"""The proposal of E0801 has the shortest step of the plans that fit, by forecasts: python3 fit_axes.py SHARDC

Inputs of layers split over an axis (Pa), zero over an axis that does not cut Batch, the optimizer on the host: each in
a case where it is the best, and the proposal, written into the plan, fits in the stated bytes and seconds.
"""
import json, os, re, subprocess, sys
from common import EXAMPLES, check, workdir

SHARDC, WORK = os.path.abspath(sys.argv[1]), workdir()
HOST = '  host memory = 2TB pcie = 50GB/s dram = 400GB/s cores = 96\n'
LLAMA = '''use "llama"
machine h8 { node gpus = 8 arch = sm_90a memory = 80GB bf16 = 989TFLOPS hbm = 3350GB/s
%s  link intra = 450GB/s inter = 400GB/s }
plan p for Llama3 {
  on h8
  mesh cp = 8
  place Seq -> cp
  micro 1
  recompute layers.* keep = input
  precision bf16 master = f32
}
'''
PAPER = re.sub(r' memory = 32Gi?B', '', open(f'{EXAMPLES}/zero_paper.shard').read()).replace(
    'gpus = 16 arch', 'gpus = 16 memory = 34GiB arch')


def plan(text, name):
    open(f'{WORK}/a.shard', 'w').write(text)
    p = subprocess.run([SHARDC, 'plan', 'a.shard', '--plan', name, '--json'], cwd=WORK, capture_output=True, text=True,
                       env={**os.environ, 'SHARDC_PATH': EXAMPLES, 'NO_COLOR': '1'})
    return json.loads(p.stdout.splitlines()[0]), p.stderr


def size(number, unit): return float(number) * {'MiB': 1 << 20, 'GiB': 1 << 30}[unit]


def judge(text, name, wanted):
    told, said = plan(text, name)
    m = re.search(r'help: `(.*)` would need ([\d.]+) (\wiB), and ([\d.e+]+) s a step by the forecast', said)
    check(not told['fits'] and m and m.group(1) == wanted, f'`{wanted}` wanted\n{said}')
    head, body, rest = re.search(rf'^(.*?^plan {name} for [^\n]*\n)(.*?)^(\}}.*)', text, re.M | re.S).groups()
    kept = [l for l in body.splitlines() if l.split()[0] != wanted.split()[0]]
    told, said = plan('\n'.join([head.rstrip(), *kept, '  ' + wanted, rest]), name)
    check(told['fits'], said)
    total = told['classes'][0]['bytes']['total']
    check(abs(total / size(m.group(2), m.group(3)) - 1) < .01, f'{wanted}: {total} bytes, {m.group(0)}')
    step = told['forecast']['seconds_per_step']
    check(abs(step / float(m.group(4)) - 1) < .01, f'{wanted}: {step} s, {m.group(0)}')


judge(PAPER, 'c3', 'recompute h.* keep = input over tensor')
judge(LLAMA % HOST, 'p', 'offload optimizer -> host')
judge(LLAMA % '', 'p', 'zero 3 over cp')
print('three proposals, each the fastest that fits')
