"""`shardc equal`: every plan of the examples computes its model, in exact arithmetic; and of faults in dumps, one at a
time, it notices all but those that change nothing.

    python3 equal.py SHARDC [SEED FAULTS]
"""
import glob, json, os, random, re, subprocess, sys, tempfile
from common import EXAMPLES, check, run

SHARDC = os.path.abspath(sys.argv[1])
SIZES = '-D Embed=8 -D Heads=2 -D Mlp=12 -D Vocab=10 -D Seq=3 -D Layers=2 -D Batch=8'.split()
OTHER = {' add ': ' sub ', ' sub ': ' add ', ' mul ': ' add ', ' max ': ' min '}
CODE = 'E1208'
# Layers one by one: the gradient of `o` is split over F where a layer is computed again, and whole elsewhere.
RANGES = '''use "std"
dims { Batch, Seq; Key like Seq; C = 8; A = 2; F = 4; Layers = 3; Vocab = 8 }
layer Block(x: [Batch, Seq, C]) -> [Batch, Seq, C] {
  sub n = RMSNorm[C]
  param w [C, A, F] ~ normal(0.4)
  param o [A, F, C] ~ normal(0.4)
  h = dot[C](n(x), w)
  return x + dot[A, F](attention[Seq -> Key; F](h, h, h, mask = causal), o)
}
model M {
  input tokens, targets [Batch, Seq] of Vocab
  param e [Vocab, C] ~ normal(0.4)
  stack h [Layers] of Block
  loss cross_entropy[Vocab](dot[C](h(e[Vocab = tokens]), e), targets)
}
train t for M { size Seq = 4; batch 8; steps 2; data "t.bin" format = bytes; optim adamw lr = 1e-2 }
plan p for M {
  mesh tensor = 2
  place F -> tensor
  place h.* -> none
  recompute h[%s] keep = %s
}
'''
HARMLESS = 0.2  # branches that these steps do not take (the schedule of rates), terms that are 0


def plans():
    here = os.path.dirname(os.path.abspath(__file__))
    own = [f'{here}/equal_{x}.shard' for x in ('aux', 'bias', 'padding', 'streams')]
    for path in sorted(glob.glob(f'{EXAMPLES}/*.shard')) + own:
        for name, model in re.findall(r'^plan (\w+) for (\w+)', open(path).read(), re.M): yield path, name, model


def equal_plans():
    n = 0
    for path, name, model in plans():
        out, _ = run(SHARDC, 'equal', path, '--plan', name, '--model', model, '--json')
        said = json.loads(out)
        check(said['ranks'] >= 1 and said['classes'] >= 1, f'{path} {name}: {out}')
        n += 1
    check(n > 30, f'{n} plans')
    return n


def ranges():
    with tempfile.TemporaryDirectory() as folder:
        for layers in '0..0', '1..1', '2..2', '0..1':
            for keep in '[h]', 'input', 'none':
                open(f'{folder}/m.shard', 'w').write(RANGES % (layers, keep))
                run(SHARDC, 'equal', 'm.shard', '--plan', 'p', cwd=folder)


def faults(text):
    """The kind and the text of each fault."""
    lines = text.split('\n')
    begin = lines.index(next(l for l in lines if l.startswith(('body', 'entry'))))
    for i, line in enumerate(lines[begin:], begin):
        if not line.startswith('  '): continue
        changed = []
        if m := re.search(r'const \{value = (-?[\d.e+-]+)\} : (host )?f32', line):
            if float(m[1]): changed += [('constant', line.replace(m[1], repr(2 * float(m[1])), 1))]
        changed += [('op', line.replace(a, b, 1)) for a, b in OTHER.items() if a in line]
        if m := re.search(r'(%\d+) = all_reduce (%\d+) \{[^}]*\} : (f32\[.*?\])', line):
            changed += [('sum', f'  {m[1]} = neg {m[2]} : {m[3]}')]
        if m := re.search(r'\{at = (\d+)\}', line):
            if int(m[1]): changed += [('offset', line.replace(m[0], f'{{at = {int(m[1]) - 1}}}'))]
        for kind, new in changed: yield kind, '\n'.join([*lines[:i], new, *lines[i + 1:]])


def noticed(file, plan, after, seed, n):
    model, _ = run(SHARDC, 'dump', f'{EXAMPLES}/{file}', '--plan', plan, *SIZES, '--after', 'micro')
    ranks, _ = run(SHARDC, 'dump', f'{EXAMPLES}/{file}', '--plan', plan, *SIZES, '--after', after)
    made = list(faults(ranks))
    random.Random(seed).shuffle(made)
    made.sort(key=lambda f: f[0] != 'sum')  # all of these come first
    survived = tried = 0
    with tempfile.TemporaryDirectory() as folder:
        def told(text):
            for name, content in ('model.ir', model), ('ranks.ir', text): open(f'{folder}/{name}', 'w').write(content)
            return subprocess.run([SHARDC, 'equal', 'model.ir', 'ranks.ir'], cwd=folder, capture_output=True, text=True)
        check(told(ranks).returncode == 0, f'{file} {plan}: {told(ranks).stderr}')
        for kind, text in made[:n]:
            p = told(text)
            if p.returncode and CODE not in p.stderr: continue  # refused
            check(p.returncode in (0, 3), f'{file} {plan}: {p.returncode}\n{p.stderr}')
            tried += 1
            survived += p.returncode == 0
            check(kind != 'sum' or p.returncode, f'{file} {plan}: a sum that is left out was not noticed')
    check(tried and survived <= HARMLESS * tried, f'{file} {plan}: {survived} of {tried} faults were not noticed')
    return f'{tried - survived} of {tried} faults'


def operands():
    """What cannot be compared is refused, and dumps of other sizes differ."""
    tiny = f'{EXAMPLES}/tiny_zero.shard'
    with tempfile.TemporaryDirectory() as folder:
        for name, vocab, after in ('model', 10, 'micro'), ('ranks', 10, 'own'), ('other', 11, 'own'):
            sizes = [*SIZES, '-D', f'Vocab={vocab}']
            out, _ = run(SHARDC, 'dump', tiny, '--plan', 'zero2', *sizes, '--after', after)
            open(f'{folder}/{name}.ir', 'w').write(out)
        for words, status, message in ((['ranks.ir'], 2, 'has the programs of ranks'), ([tiny, 'ranks.ir'], 2, 'dumps'),
                                       (['model.ir', '--plan', 'zero2'], 2, 'is IR'), (['absent.ir'], 4, 'E0001'),
                                       (['model.ir', 'other.ir'], 3, 'another size'),
                                       (['model.ir', 'ranks.ir'], 0, '')):
            _, err = run(SHARDC, 'equal', *words, cwd=folder, expect=status)
            check(message in err and err.count('shardc:') <= 1, f'{words}: {err}')
        with open(f'{folder}/wrong.shard', 'w') as f:
            f.write('use "tiny_zero"\nplan wrong for Tiny { micr 2 }\n')
        _, err = run(SHARDC, 'equal', 'wrong.shard', '--plan', 'wrong', cwd=folder, expect=1)
        check('--> wrong.shard:2:23' in err, f'errors have no place: {err}')


def compiled():
    """Every compile compares, within a budget that is work and not time, and the executable says what was found."""
    file, plan = f'{EXAMPLES}/tiny_ranks.shard', ('--plan', 'two,four')
    with tempfile.TemporaryDirectory() as folder:
        def told(*words, operand=file, env='', ranks='4'):
            _, err = run(SHARDC, 'compile', operand, *words, '--quick', '-o', 'm', cwd=folder,
                         env={'SHARDC_EQUAL': env})
            out, _ = run('./m', 'info', '--json', cwd=folder, env={'WORLD_SIZE': ranks})
            said = re.findall(r'^  equal: (.*)$', err, re.M)
            return said, json.loads(out)['equal']
        both, inside = told(*plan)
        check([s[:19] for s in both] == ['2 ranks, 1 program,', '4 ranks, 1 program,'], f'{both}')
        check(inside in both and 'two runs over 2^51 numbers' in inside, f'{inside}: {both}')
        for off in told(*plan, '--equal', 'off'), told(*plan, env='off'):
            check(off == ([], 'not compared'), f'{off}')
        short = told('--plan', 'four', '--equal', '0.01')
        check(short == (['not shown within 0.01 s'],) + short[1:] and short[1] == short[0][0], f'{short}')
        shrunk = told('--plan', 'four', '-D', 'Seq=64', '-D', 'Batch=16')
        check(shrunk[1].startswith('4 ranks'), f'{shrunk}')
        out, _ = run(SHARDC, 'dump', file, '--plan', 'two', '--after', 'micro')
        open(f'{folder}/m.ir', 'w').write(out)
        check(told(operand='m.ir')[1] == 'not shown: compiled from IR', 'a dump has nothing to be compared with')
    for text in 'x', '-1', '0', '1e9':
        _, err = run(SHARDC, 'compile', file, '--equal', text, expect=2)
        check('takes a number of seconds' in err, err)


if __name__ == '__main__':
    operands()
    compiled()
    ranges()
    seed, n = (int(sys.argv[2]), int(sys.argv[3])) if len(sys.argv) > 3 else (1, 25)
    if len(sys.argv) < 4: print(equal_plans(), 'plans are equal to their models')
    for file, plan, after in (('tiny_zero.shard', 'zero2', 'zero'), ('tiny_zero.shard', 'zero3', 'localize')):
        print(file, plan, noticed(file, plan, after, seed, n))
