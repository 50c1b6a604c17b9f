"""Sums of columns in the step of GPT-2 124M for sm_90a, as pass `select` leaves it.   columns.py SHARDC EXAMPLES

Gradients of biases and gains are summed by the kernels that make or read the rows: the backward pass of a layer has no
kernel of family `column`. Bounds on launches and bytes keep others out. Programs with a plan have the sums in another
order than those without.
"""
import os, re, subprocess, sys, tempfile

shardc, examples = map(os.path.abspath, sys.argv[1:3])
COLUMNS, LAUNCHES, BYTES, TOKENS = 0, 349, 2.44e6, 16 * 1024
PLAN = 'use "gpt2"\nplan p for GPT2 { mesh data = 1; place Batch -> data; precision bf16 }\n'


def phases(body, name):
    return len(re.search(r'chunks = \[([^]]*)\]', body[name])[1].split(','))


def launches(body, name):
    """The number of launches of a function, with all rounds of its loops."""
    n = sum(phases(body, k) for k in re.findall(r'= kernel @([\w.]+)', body[name]))
    for line in body[name].split('\n'):
        loop = re.search(r'= loop\[.*?\] @([\w.]+).*\btrip = (\d+)', line)
        if loop: n += int(loop[2]) * launches(body, loop[1])
    return n


def check(what, *args):
    text = subprocess.run([shardc, 'dump', *args, '--model', 'GPT2', '--set', 'train.batch=16', '--target', 'sm_90a',
                           '--after', 'select', '-q'], check=True, capture_output=True, text=True,
                          env={**os.environ, 'SHARDC_PATH': examples}).stdout
    functions = re.split(r'\n(?=(?:entry|body|kernel) @)', text)
    body = {re.search(r'@([\w.]+)', f)[1]: f for f in functions[1:]}
    kernels = re.findall(r'= kernel @([\w.]+)', body['h.forward.bwd'])
    columns = [k for k in kernels if 'family = "column"' in body[k]]
    moved, n = float(re.search(r'flop, (\S+) bytes moved', text)[1]) / TOKENS, launches(body, 'step')
    print(f'{what}: backward pass of a layer: {len(kernels)} kernels, column: {columns}; step: {n} launches, '
          f'{moved / 1e6:.2f} MB per token')
    return len(columns) > COLUMNS or n > LAUNCHES or moved > BYTES


bad = check('no plan', f'{examples}/gpt2.shard', '--set', 'plan.precision=bf16')
with tempfile.NamedTemporaryFile('w', suffix='.shard') as file:
    file.write(PLAN)
    file.flush()
    bad |= check('a plan', file.name, '--plan', 'p')
if bad: sys.exit(f'at most {COLUMNS}, {LAUNCHES} and {BYTES / 1e6} MB')
