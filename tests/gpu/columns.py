"""Sums of columns in the step of GPT-2 124M for sm_90a, as pass `select` leaves it.   columns.py SHARDC EXAMPLES

Gradients of biases and gains are summed by the kernels that make or read the rows: the backward pass of a layer has no
kernel of family `column`. Bounds on launches and bytes keep others out.
"""
import os, re, subprocess, sys

shardc, examples = map(os.path.abspath, sys.argv[1:3])
COLUMNS, LAUNCHES, BYTES, TOKENS = 0, 349, 2.44e6, 16 * 1024

text = subprocess.run([shardc, 'dump', f'{examples}/gpt2.shard', '--model', 'GPT2', '--set', 'train.batch=16', '--set',
                       'plan.precision=bf16', '--target', 'sm_90a', '--after', 'select', '-q'],
                      check=True, capture_output=True, text=True).stdout
functions = re.split(r'\n(?=(?:entry|body|kernel) @)', text)
body = {re.search(r'@([\w.]+)', f)[1]: f for f in functions[1:]}


def phases(name):
    return len(re.search(r'chunks = \[([^]]*)\]', body[name])[1].split(','))


def launches(name):
    """Of a function, with the rounds of its loops."""
    n = sum(phases(k) for k in re.findall(r'= kernel @([\w.]+)', body[name]))
    for line in body[name].split('\n'):
        loop = re.search(r'= loop\[.*?\] @([\w.]+).*\btrip = (\d+)', line)
        if loop: n += int(loop[2]) * launches(loop[1])
    return n


kernels = re.findall(r'= kernel @([\w.]+)', body['h.forward.bwd'])
columns = [k for k in kernels if 'family = "column"' in body[k]]
moved = float(re.search(r'flop, (\S+) bytes moved', text)[1]) / TOKENS
print(f'backward pass of a layer: {len(kernels)} kernels, column: {columns}; step: {launches("step")} launches, '
      f'{moved / 1e6:.2f} MB per token')
if len(columns) > COLUMNS or launches('step') > LAUNCHES or moved > BYTES:
    sys.exit(f'at most {COLUMNS}, {LAUNCHES} and {BYTES / 1e6} MB')
