"""No kernel of a layer casts a weight in bf16.   copies.py SHARDC EXAMPLES

GPT-2 124M for sm_90a, in IR: the update writes 16-bit copies, so each layer has 4 launches less forward and 4 less
backward than with `copies = off`, and no kernel of a layer casts a value of the size of a weight.
"""
import os, re, subprocess, sys

shardc, examples = map(os.path.abspath, sys.argv[1:3])
LAYERS = 12


def kernels(copies):
    """The launches of each function, and the names of kernels that cast a weight of a layer."""
    text = subprocess.run([shardc, 'dump', f'{examples}/gpt2.shard', '--model', 'GPT2', '--set', 'train.batch=16',
                           '--set', 'plan.precision=bf16', '--set', f'plan.precision.copies={copies}',
                           '--target', 'sm_90a', '--after', 'memory'],
                          check=True, capture_output=True, text=True).stdout
    launches, casts = {}, []
    for kind, name, body in re.findall(r'^(kernel|body|entry) @([\w.]+)(.*?)^}', text, re.M | re.S):
        if kind != 'kernel': launches[name] = len(re.findall(r'= kernel @', body))
        elif re.search(r'= cast %\d+ : bf16\[[^\]]*(Mlp:3072, Embed:768|Embed:768, Mlp:3072|Embed:768, QKV:3|'
                       r'Head:64, Embed:768|Vocab:50304, Embed:768)', body): casts.append(name)
    return launches, casts


with_copies, casts = kernels('on')
without, many = kernels('off')
layers = ['h.forward.fwd', 'h.forward.bwd']
less = LAYERS * sum(without[f] - with_copies[f] for f in layers)
wrong = [c for c in casts if c.startswith('h.')]
if less != 96: sys.exit(f'{less} launches of layers less: {without} -> {with_copies}')
if wrong: sys.exit(f'weights are cast by {", ".join(wrong)}')
if not any(c.startswith('h.forward.fwd') for c in many): sys.exit(f'without copies no weight is cast: {many}')
print(f'GPT-2 124M: {less} launches less; no kernel of a layer casts a weight')
