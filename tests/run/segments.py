"""Layers that keep different inputs remain one stack in all other respects: python3 segments.py SHARDC

GPT-2 XL over eight ranks in bf16, eight micro-batches, under every stage: whichever parts of the stack keep only their
input, by a line or by search, ranks hold the same weights, gradients and states and send the same messages as without
any line; the saved bytes and the total are between those of no layer and of all layers recomputed. The same for plan
`hybrid` of examples/plans.shard.
"""
import json, os, re, shutil, sys
from common import EXAMPLES, check, run, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
LINES = {'none': '', 'all': 'h.* keep = input', 'half': 'h[0..23] keep = input',
         'thirds': 'h[0..15] keep = input\n  recompute h[32..47] keep = input',
         'auto': 'h.* keep = auto budget = 10GiB'}


def planned(file, names):
    rows = json.loads(run(SHARDC, 'plan', file, '--plan', ','.join(names), '--json', cwd=folder)[0])
    return dict(zip(names, rows, strict=True))


def messages(row):
    return {(a['axis'], c['kind']): (c['calls'], c['bytes']) for a in row['communication'] for c in a['collectives']}


def compare(what, none, all_, part):
    a, b, c = (r['classes'][0]['bytes'] for r in (none, all_, part))
    for kind in ('weights', 'gradients', 'optimizer'):
        check(a[kind] == b[kind] == c[kind],
              f'{what}: {kind} {c[kind]}, {b[kind]} with all layers recomputed, {a[kind]} with none')
    check(b['saved'] <= c['saved'] <= a['saved'],
          f'{what}: {c["saved"]} bytes saved, not from {b["saved"]} to {a["saved"]}')
    least, most = sorted((a['total'], b['total']))
    check(least <= c['total'] <= most, f'{what}: {c["total"]} bytes in all, not from {least} to {most}')
    check(messages(none) == messages(all_) == messages(part),
          f'{what}: {messages(part)}\nnone {messages(none)}\nall {messages(all_)}')


def plan(name, body, line, model='GPT2_XL'):
    return f'plan {name} for {model} {{\n{body}' + (f'  recompute {line}\n' if line else '') + '}\n'


def formulas():
    """The formulas that the text prints next to the bytes: 2 bytes of weights, 4 of gradients (they add up), 12 of
    states, over the ranks that the stage names."""
    for z, want in enumerate((['', '', ''], ['2 Ψ', '4 Ψ', '12 Ψ/8'], ['2 Ψ', '4 Ψ/8', '12 Ψ/8'],
                              ['2 Ψ/8', '4 Ψ/8', '12 Ψ/8'])):
        text = run(SHARDC, 'plan', 'stages.shard', '--plan', f'z{z}half', cwd=folder)[0]
        have = [m.strip() for m in re.findall(r'^  (?:weights|gradients|optimizer) .*?%(?:  = (.*))?$', text, re.M)]
        check(have == want, f'zero {z}: {have}, not {want}\n{text}')


def stages():
    body = '  mesh data = 8\n  place Batch -> data\n  micro 8\n  precision bf16 master = f32\n  zero {} over data\n'
    names = {(z, k): f'z{z}{k}' for z in range(4) for k in LINES}
    text = ''.join(plan(name, body.format(z), LINES[k]) for (z, k), name in names.items())
    open(f'{folder}/stages.shard', 'w').write('use "gpt2"\n' + text)
    rows = planned('stages.shard', list(names.values()))
    for z in range(4):
        for k in list(LINES)[2:]: compare(f'zero {z}, {k}', rows[f'z{z}none'], rows[f'z{z}all'], rows[f'z{z}{k}'])
    return len(rows)


def hybrid():
    text = open(f'{EXAMPLES}/plans.shard').read()
    head, body = re.search(r'^(.*?)^plan cpu', text,
                           re.S | re.M).group(1), re.search(r'^plan hybrid for GPT2_XL \{[^\n]*\n(.*?)^\}', text,
                                                            re.S | re.M).group(1)
    line = re.compile(r'^ *recompute .*\n', re.M)
    check(len(line.findall(body)) == 1, 'plan `hybrid` has one line about recomputation')
    half = re.search(r'recompute (.*?)\s*(#.*)?$', body, re.M).group(1)
    kinds = {'none': '', 'all': 'h.* keep = input', 'half': half}
    open(f'{folder}/hybrid.shard', 'w').write(head + ''.join(plan(k, line.sub('', body), l) for k, l in kinds.items()))
    rows = planned('hybrid.shard', list(kinds))
    compare('plan `hybrid`', rows['none'], rows['all'], rows['half'])


try:
    n = stages()
    formulas()
    hybrid()
    print(f'{n} plans of four stages and `hybrid`: one stack')
finally:
    shutil.rmtree(folder)
