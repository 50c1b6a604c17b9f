"""Random programs under random plans of a mesh, as processes: a diagnostic, or the results of one rank; nothing else,
and no hang.

    python3 ranks.py SHARDC FIRST LAST [KEEP]     the same number gives the same pair; KEEP: a folder for the files of
    those that fail
"""
import json, os, random, re, shutil, subprocess, sys, tempfile, time
from collections import Counter
from generate import Program
import plans, run as programs

LIMIT = 120                 # seconds that a command may take


class Wrong(Exception): pass


def penalized(text, n):
    """Some models with a penalty on a parameter: a gradient of which a part is no sum over ranks."""
    found = re.search(r'^  param (p\d+) .*$', text, re.M)
    if not found or n % 3: return text
    return text[:found.end()] + f'\n  aux 0.01 * mean[*]({found.group(1)}^2)' + text[found.end():]


def call(*command, folder):
    try: return subprocess.run(command, cwd=folder, capture_output=True, text=True, errors='replace', timeout=LIMIT)
    except subprocess.TimeoutExpired as e: raise Wrong(f'{" ".join(command)}: no end after {LIMIT} s\n{e.stderr}')


def compiled(shardc, name, folder):
    """None, or the code of the diagnostic that was given."""
    p = call(shardc, 'compile', 'p.shard', '--plan', name, '-o', f'{name}.exe', '-q', '--quick', folder=folder)
    if p.returncode == 0: return None
    if p.returncode not in (1, 3) or 'error[E' not in p.stderr:
        raise Wrong(f'compile {name}: exit {p.returncode}\n{p.stderr[-1500:]}')
    return re.search(r'error\[(E\d+)', p.stderr).group(1)


def losses(name, command, folder):
    saves = [] if 'async = on' in open(f'{folder}/p.shard').read() else ['--save-every', '0']
    p = call(*command, f'./{name}.exe', *(['--'] if command else []), 'train', '--out', name, '--threads', '1',
             *saves, folder=folder)
    if p.returncode not in (0, 5): raise Wrong(f'run {name}: exit {p.returncode}\n{p.stdout[-300:]}{p.stderr[-1500:]}')
    return [l['loss'] for l in map(json.loads, open(f'{folder}/{name}/metrics.jsonl')) if 'loss' in l], p.returncode


def pair(shardc, n, folder):
    """'equal', or the code of the diagnostic that refuses it; Wrong else."""
    r = random.Random(n * 7919 + 13)
    text = plans.trained(r, penalized(Program(n, across=True).text().replace('batch 4', f'batch {plans.BATCH}'), n))
    lines, ranks = plans.many(r, text)
    narrow = plans.narrow(lines)
    one = f'plan one for M {{ {" ".join(l for l in lines if l.startswith("precision")).split(" reduce")[0].split(" gather")[0]} }}\n' if narrow else 'plan one for M { micro 8 }\n'
    open(f'{folder}/p.shard', 'w').write(text + plans.MACHINES + one + 'plan many for M {\n'
                                         + ''.join(f'  {l}\n' for l in lines) + '}\n')
    for name in ('one', 'many'): shutil.rmtree(f'{folder}/{name}', ignore_errors=True)
    code = compiled(shardc, 'many', folder)
    if code: return code
    if compiled(shardc, 'one', folder): raise Wrong('one rank is refused')
    (a, ended), (b, other) = losses('one', [], folder), losses('many', [shardc, 'run', '-n', str(ranks)], folder)
    size = max([abs(v) for v in a if v == v] + [0]) + 1e-2
    signs = 'optim onebit' in text                    # rounding turns signs of what has no gradient in mathematics
    close = [5e-2 if narrow or signs and i > 1 else 5e-4 for i in range(len(a))]
    most = 1 if narrow else 4 if signs else 2         # a step of rate 1 blows rounding up
    pairs = list(zip(a, b, close))[:most]
    if len(a) != len(b) or ended != other or any(not (abs(x - y) <= c * size or (x != x and y != y)) for x, y,
                                                 c in pairs):
        raise Wrong(f'losses {b}, one rank {a}; {lines}')
    return 'equal'


def main():
    shardc, first, last = os.path.abspath(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    keep, count, began = sys.argv[4] if len(sys.argv) > 4 else None, Counter(), time.time()
    with tempfile.TemporaryDirectory() as folder:
        programs.write_data(folder, plans.BATCH)
        for n in range(first, last):
            try: count[pair(shardc, n, folder)] += 1
            except Wrong as e:
                count['wrong'] += 1
                print(f'pair {n}: {e}', flush=True)
                if keep: os.makedirs(keep, exist_ok=True); shutil.copy(f'{folder}/p.shard', f'{keep}/p{n}.shard')
    codes = {k: v for k, v in sorted(count.items()) if k[0] == 'E'}
    print(f'{first}..{last - 1}: {count["equal"]} equal, {sum(codes.values())} refused ({", ".join(f"{v} {k}" for k, v in codes.items())}), {count["wrong"]} wrong, {time.time() - began:.0f} s')
    sys.exit(count['wrong'] > 0)


if __name__ == '__main__': main()
