"""Lines of dumps removed or doubled, one at a time: `opt` refuses the dump at a line, or runs it to its end, and never
calls it an error of shardc.

    python3 opt_lines.py SHARDC EDITS [SEED [PLANS]]

Dumps are those of every pass from `inline` on, of plans with every kind of parallelism; EDITS of each.
"""
import os, random, re, subprocess, sys, tempfile
from collections import Counter
from common import check, run
from fault_plans import plans, sizes

SHARDC, EDITS, SEED = os.path.abspath(sys.argv[1]), int(sys.argv[2]), int((sys.argv + ['1'])[3])
WANTED = 'faults.* (shards|nodes|three|saves|zb|clip1|late1|signs2)$|experts.* (ep_data|ep_pipe)$'
OP = re.compile(r'  (%\d+(?:, %\d+)*) = ')


def renumbered(lines, begin, end, first, by):
    """The lines with `by` added to the numbers of values from `first` on."""
    move = lambda m: f'%{int(m[1]) + by * (int(m[1]) >= first)}'
    return [*lines[:begin], *(re.sub(r'%(\d+)', move, l) for l in lines[begin:end]), *lines[end:]]


def edited(lines, i, double):
    m = OP.match(lines[i])
    if not m: return lines[:i] + [lines[i]] * (2 * double) + lines[i + 1:]
    numbers = [int(v[1:]) for v in m[1].split(', ')]
    end = next(k for k in range(i, len(lines)) if lines[k] == '}')
    if double:                                # a second op, which nothing reads or which takes the place of the first
        moved = renumbered(lines, i + 1, end, numbers[-1] + 1 if random.random() < .5 else numbers[0], len(numbers))
        new = re.sub(r'^[^=]*', lambda l: re.sub(r'%(\d+)', lambda v: f'%{int(v[1]) + len(numbers)}', l[0]), lines[i])
        return moved[:i + 1] + [new] + moved[i + 1:]
    operand = re.search(r'%\d+', lines[i].split(' = ', 1)[1])
    rest = lines[i + 1:end]
    if operand: rest = [re.sub(rf'%{numbers[0]}(?!\d)', operand[0], l) for l in rest]
    return renumbered([*lines[:i], *rest, *lines[end:]], i, end - 1, numbers[0], -len(numbers))


def told(folder, lines):
    open(f'{folder}/m.ir', 'w').write('\n'.join(lines))
    return subprocess.run([SHARDC, 'opt', 'm.ir', '-o', 'out.ir'], cwd=folder, capture_output=True, text=True)


def internal(p): return p.returncode not in (0, 1, 2) or 'error of shardc' in p.stderr or 'E1204' in p.stderr


def main():
    random.seed(SEED)
    wanted, count, wrong = sys.argv[4] if len(sys.argv) > 4 else WANTED, Counter(), 0
    for at in plans(wanted):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(f'{folder}/all')
            run(SHARDC, 'dump', *at, *sizes(SHARDC, at), '-o', f'{folder}/m.ir')
            run(SHARDC, 'opt', f'{folder}/m.ir', '--dump-ir', f'{folder}/all', '-o', '/dev/null')
            for name in sorted(os.listdir(f'{folder}/all')):
                lines = open(f'{folder}/all/{name}').read().split('\n')
                begin = next((i for i, l in enumerate(lines) if l.startswith('mesh ')), 3)
                some = [i for i in range(begin, len(lines)) if lines[i].strip() not in ('', '}')]
                stores = [i for i in some if lines[i].startswith('  store ')]
                for k in range(EDITS):
                    i, double = random.choice(stores if stores and k % 3 == 0 else some), random.random() < .3
                    p = told(folder, edited(lines, i, double))
                    said = 'internal' if internal(p) else 'refused' if p.returncode else 'accepted'
                    if p.returncode == 1 and not re.search(r'^ *--> ', p.stderr, re.M): said = 'without a line'
                    count[said] += 1
                    if said in ('internal', 'without a line'):
                        print(f'{said}: {os.path.basename(at[0])} {at[2]} {name} line {i + 1}',
                              'doubled' if double else 'removed', lines[i][:140], '\n', p.stderr[:600], flush=True)
        print(at[2], dict(count), flush=True)
    check(not count['internal'], f'{count["internal"]} edits are called errors of shardc')


if __name__ == '__main__': main()
