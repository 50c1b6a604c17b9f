"""Random programs under random plans of a mesh, as processes: a diagnostic, or what one rank gives; nothing else, and no hang.

    python3 ranks.py SHARDC FIRST LAST [KEEP]     the same number gives the same pair; KEEP: a folder for the files of those that fail
"""
import json, os, random, re, shutil, subprocess, sys, tempfile, time
from generate import SIZE, Program
import run as programs

BATCH, LIMIT = 8, 120                 # seconds that a command may take


class Wrong(Exception): pass


def rule(r, axis, dims):
    """A place line of a random shape."""
    first = r.sample(dims, r.randint(1, min(3, len(dims))))
    rest = [d for d in dims if d not in first]
    other = f' else {r.choice(rest)}' if rest and r.random() < .4 else ''
    return f'place {", ".join(first)} -> {axis}{other}'


def divided(n): return ['Batch'] * (BATCH % n == 0) + [d for d, size in SIZE.items() if size % n == 0]


def recompute(r, stack, text):
    """Lines of a stack: all layers alike, or parts of them that keep different things."""
    layers, keep = int(re.search(rf'stack {stack} \[N(\d)\]', text).group(1)), ['input', 'none', 'all']
    if r.random() < .4: return [f'recompute {stack}.* keep = {r.choice(keep)}']
    if r.random() < .3: return [f'recompute {stack}.* keep = auto budget = {r.choice([1, 4, 16])}KiB']
    cut = r.randrange(layers)
    lines = [f'recompute {stack}[0..{cut}] keep = {r.choice(keep)}']
    if cut + 1 < layers and r.random() < .6: lines.append(f'recompute {stack}[{cut + 1}..{layers - 1}] keep = {r.choice(keep)}')
    return lines


def penalized(text, n):
    """Some models with a penalty on a parameter: a gradient of which a part is no sum over ranks."""
    found = re.search(r'^  param (p\d+) .*$', text, re.M)
    if not found or n % 3: return text
    return text[:found.end()] + f'\n  aux 0.01 * mean[*]({found.group(1)}^2)' + text[found.end():]


def plan(n, text):
    """A plan for program n: mesh, rules, zero, micro, recompute, precision; most of them legal."""
    r = random.Random(n * 7919 + 13)
    axes = [('data', r.choice([1, 2, 2, 4])), ('tensor', r.choice([2, 2, 3, 4]))][:r.choice([1, 1, 2])]
    if r.random() < .3: axes.reverse()
    lines = ['mesh ' + ', '.join(f'{a} = {k}' for a, k in axes)]
    share = BATCH
    for axis, size in axes:
        if axis == 'data' and r.random() < .85: lines.append('place Batch -> data'); share //= size
        elif r.random() < .95:
            dims = divided(size) if r.random() < .9 else list(SIZE)
            if dims: lines.append(rule(r, axis, [d for d in dims if d != 'Batch'] or dims))
    if r.random() < .5: lines.append(f'micro {r.choice([d for d in (1, 2, 4, 8) if share % d == 0] or [1])}')
    if axes[0][0] == 'data' and r.random() < .8:
        lines.append(f'zero {r.randint(0, 3)}' + r.choice(['', ' over data', ' over data keep_root = off', ' accumulate = full'])
                     + r.choice(['', f' bucket = {2 ** r.randint(6, 40)}']))
    stacks = [word.split()[1] for word in text.splitlines() if word.strip().startswith('stack s')]
    if stacks and r.random() < .5: lines += recompute(r, r.choice(stacks), text)
    if r.random() < .25: lines.append('precision bf16')
    ranks = 1
    for _, k in axes: ranks *= k
    return lines, ranks, 'precision bf16' in lines


def call(*command, folder):
    try: return subprocess.run(command, cwd=folder, capture_output=True, text=True, errors='replace', timeout=LIMIT)
    except subprocess.TimeoutExpired as e: raise Wrong(f'{" ".join(command)}: no end after {LIMIT} s\n{e.stderr}')


def compiled(shardc, name, folder):
    """False: a diagnostic was given."""
    p = call(shardc, 'compile', 'p.shard', '--plan', name, '-o', f'{name}.exe', '-q', folder=folder)
    if p.returncode == 0: return True
    if p.returncode not in (1, 3) or 'error[E' not in p.stderr: raise Wrong(f'compile {name}: exit {p.returncode}\n{p.stderr[-1500:]}')
    return False


def losses(name, command, folder):
    p = call(*command, f'./{name}.exe', *(['--'] if command else []), 'train', '--out', name, '--threads', '1', '--save-every', '0', folder=folder)
    if p.returncode not in (0, 5): raise Wrong(f'run {name}: exit {p.returncode}\n{p.stdout[-300:]}{p.stderr[-1500:]}')
    return [l['loss'] for l in map(json.loads, open(f'{folder}/{name}/metrics.jsonl')) if 'loss' in l], p.returncode


def pair(shardc, n, folder):
    """'refused' or 'equal'; Wrong else."""
    text = penalized(Program(n).text().replace('batch 4', f'batch {BATCH}'), n)
    lines, ranks, narrow = plan(n, text)
    one = 'plan one for M { precision bf16 }\n' if narrow else 'plan one for M { micro 8 }\n'
    open(f'{folder}/p.shard', 'w').write(text + one + 'plan many for M {\n' + ''.join(f'  {l}\n' for l in lines) + '}\n')
    for name in ('one', 'many'): shutil.rmtree(f'{folder}/{name}', ignore_errors=True)
    if not compiled(shardc, 'many', folder): return 'refused'
    if not compiled(shardc, 'one', folder): raise Wrong('one rank is refused')
    (a, ended), (b, other) = losses('one', [], folder), losses('many', [shardc, 'run', '-n', str(ranks)], folder)
    size = max([abs(v) for v in a if v == v] + [0]) + 1e-2
    close = 5e-2 if narrow else 5e-4
    pairs = list(zip(a, b))[:1 if narrow else 2]      # a step of rate 1 blows rounding up
    if len(a) != len(b) or ended != other or any(not (abs(x - y) <= close * size or (x != x and y != y)) for x, y in pairs):
        raise Wrong(f'losses {b}, one rank {a}; {lines}')
    return 'equal'


def main():
    shardc, first, last = os.path.abspath(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    keep, count, began = sys.argv[4] if len(sys.argv) > 4 else None, {'equal': 0, 'refused': 0, 'wrong': 0}, time.time()
    with tempfile.TemporaryDirectory() as folder:
        programs.write_data(folder, BATCH)
        for n in range(first, last):
            try: count[pair(shardc, n, folder)] += 1
            except Wrong as e:
                count['wrong'] += 1
                print(f'pair {n}: {e}', flush=True)
                if keep: os.makedirs(keep, exist_ok=True); shutil.copy(f'{folder}/p.shard', f'{keep}/p{n}.shard')
    print(f'{first}..{last - 1}: ' + ', '.join(f'{v} {k}' for k, v in count.items()) + f', {time.time() - began:.0f} s')
    sys.exit(count['wrong'] > 0)


if __name__ == '__main__': main()
