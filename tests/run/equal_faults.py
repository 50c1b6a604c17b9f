"""Faults in dumps, one at a time, over many models and plans: `shardc equal` notices each, or it is harmless.

    python3 equal_faults.py SHARDC FAULTS [SEED [PART/PARTS]]

A plan of an example is dumped after a pass from `localize` to `combine`, or after `prove`, at the sizes that `equal`
chooses. A fault that is not noticed is compared again with other seeds and more steps. If that does not show it, the
value of the op is replaced by another one: where this is not noticed either, nothing that a run computes depends on the
op (`unused`); else the fault computes the same value in all these runs (`same`).
"""
import json, os, random, re, subprocess, sys, tempfile
from collections import Counter
from common import EXAMPLES, check, run

SHARDC, PASSES = os.path.abspath(sys.argv[1]), ('localize', 'own', 'zero', 'combine', 'prove')
OTHER = {'add': 'sub', 'sub': 'add', 'mul': 'add', 'div': 'mul', 'max': 'min', 'min': 'max', 'rmax': 'sum', 'lt': 'le',
         'le': 'lt', 'and': 'or', 'exp': 'tanh', 'rsqrt': 'sqrt', 'sqrt': 'rsqrt'}
OP = re.compile(r'  (%[^=]*) = (\w+)(\[[^\]]*\])? ?([^{:]*)(\{[^:]*\})? ?: (.*)$')


def plans():
    for path in sorted(os.listdir(EXAMPLES)):
        text = open(f'{EXAMPLES}/{path}').read() if path.endswith('.shard') else ''
        for name, model in re.findall(r'^plan (\w+) for (\w+)', text, re.M): yield f'{EXAMPLES}/{path}', name, model


def sizes(path, plan, model):
    said = json.loads(run(SHARDC, 'equal', path, '--plan', plan, '--model', model, '--json')[0])
    words, at = said.get('sizes', ''), []
    for word in filter(None, words.split(', ')):
        *key, n = word.replace('mesh ', 'plan.mesh.').replace(' =', '').replace('micro', 'plan.micro').split()
        at += ['--set', f'{key[0]}={n}'] if '.' in key[0] else ['-D', f'{key[0]}={n}']
    return at


def type_of(text): return re.match(r'(?:host )?\w+\[[^\]]*\]', text)[0]


def functions(lines):
    """First and last line of each body and entry but `init`, with the types of its values so far as they are simple."""
    begin = None
    for i, line in enumerate(lines):
        if line.startswith(('body ', 'entry ')): begin = i
        if line == '}' and begin is not None:
            if '@init' not in lines[begin]: yield begin, i
            begin = None


def faults(text):
    """Kind, number of the line, and the lines in its place."""
    lines = text.split('\n')
    axes = dict(re.findall(r'(\w+) = (\d+)', next((l for l in lines if l.startswith('mesh ')), '')))
    for begin, end in functions(lines):
        types = {v: t for v, t in re.findall(r"(%\d+) : ((?:host )?\w+\[[^\]]*\])", lines[begin])}
        loads = {}
        for i in range(begin + 1, end):
            line = lines[i]
            m = re.match(r'  store (@\S+), (%\d+)', line)
            if m and 'norm2.of' not in m[1]:  # their sum is compared: pass `zero` has norms of groups
                yield 'stale', i, []
                if m[1] in loads: yield 'stale', i, [line.replace(m[2], loads[m[1]], 1)]
            m = OP.match(line)
            if not m: continue
            outs, op, operands = m[1].split(', '), m[2], m[4].strip().strip(',').split(', ')
            attrs, kind = m[5] or '', m[6]
            if len(outs) == 1: types[outs[0]] = type_of(kind)
            if op == 'load' and operands: loads[operands[0]] = outs[0]
            for name, new in one_line(line, outs, op, operands, attrs, kind, types, axes): yield name, i, new


def one_line(line, outs, op, operands, attrs, kind, types, axes):
    first, same = operands[0] if operands else '', types.get(outs[0])
    if op in OTHER: yield 'op', [line.replace(f' = {op}', f' = {OTHER[op]}', 1)]
    if op in ('add', 'sub', 'mul') and len(operands) == 2 and operands[0] != operands[1]:
        for a in operands:
            if types.get(a) == same: yield 'twice', [line.replace(', '.join(operands), f'{a}, {a}', 1)]
    if op == 'where' and len(operands) == 3 and types.get(operands[1]) == types.get(operands[2]):
        yield 'branch', [line.replace(f'{operands[1]}, {operands[2]}', f'{operands[2]}, {operands[1]}', 1)]
    if op == 'const' and (m := re.search(r'value = (-?\d[\d.e+-]*)', attrs)):
        for k in ([2, 0.5] if 'f' in kind[:3] and float(m[1]) else []):
            yield 'scale', [line.replace(m[0], f'value = {float(m[1]) * k!r}', 1)]
        if kind.startswith('i'):
            for d in 1, -1: yield 'whole', [line.replace(m[0], f'value = {int(float(m[1])) + d}', 1)]
    if m := re.search(r'\{at = (\d+)', attrs):
        for d in 1, -1: yield 'slice', [line.replace(m[0], f'{{at = {int(m[1]) + d}', 1)]
    if op == 'load' and '@mesh.of' in first:
        yield 'coordinate', [f'  {outs[0]} = const {{value = 0}} : {kind}']
        for a in axes:
            if f'@mesh.of.{a}' != first: yield 'coordinate', [line.replace(first, f'@mesh.of.{a}', 1)]
    if m := re.search(r'axis = "(\w+)"', attrs):
        for a, n in axes.items():
            if a != m[1] and n == axes.get(m[1]): yield 'axis', [line.replace(m[0], f'axis = "{a}"', 1)]
        if types.get(first) == same:
            yield 'dropped', [f'  {outs[0]} = neg {first} : {same}']
        if types.get(first, '').startswith('f') and 'at(' not in line:
            yield 'doubled', [f'  %99999 = add {first}, {first} : {types[first]}', line.replace(first, '%99999', 1)]
    outside, body = line.split(' = ', 1)
    for a in operands:
        others = [v for v, t in types.items() if a in types and t == types[a] and v != a and v != outs[0] and
                  int(v[1:]) < int(outs[0][1:])]
        if a.startswith('%') and others:
            yield 'operand', [f'{outside} = ' + re.sub(f'{a}(?!\\d)', random.choice(others), body, count=1)]


def renumbered(lines):
    """Values count through a function: %99999 becomes the next number, and those after it move on by one."""
    at = next((i for i, l in enumerate(lines) if l.startswith('  %99999 ')), None)
    if at is None: return lines
    begin = max(i for i in range(at) if lines[i].startswith(('body ', 'entry ')))
    end = next(i for i in range(at, len(lines)) if lines[i] == '}')
    n = int(re.match(r'  %(\d+)', lines[at + 1])[1])
    move = lambda m: f'%{n if m[1] == "99999" else int(m[1]) + (int(m[1]) >= n)}'
    return [re.sub(r'%(\d+)', move, l) if begin <= i < end else l for i, l in enumerate(lines)]


def poisoned(line, number):
    """The op with another value."""
    m = OP.match(line)
    if m and m[2] in ('load', 'const') and m[6].startswith('i32[]'):
        return [f'  {m[1]} = const {{value = 1000003}} : i32[]']
    if not m or ',' in m[1] or 'at(' in line or not m[6].startswith('f'): return None
    t, v = type_of(m[6]), m[1].strip()
    return [line.replace(v, '%99999', 1), f'  {v} = neg %99999 : {t}']


class Pair:
    def __init__(self, folder, path, plan, model, after):
        self.folder, self.name = folder, f'{os.path.basename(path)} {plan} {after}'
        at = [path, '--plan', plan, '--model', model, *sizes(path, plan, model)]
        self.ranks = run(SHARDC, 'dump', *at, '--after', after)[0].split('\n')
        open(f'{folder}/model.ir', 'w').write(run(SHARDC, 'dump', *at, '--after', 'micro')[0])
        p = self.told(self.ranks)
        check(p.returncode == 0, f'{self.name}: {p.stderr}')

    def told(self, lines, *more):
        open(f'{self.folder}/ranks.ir', 'w').write('\n'.join(lines))
        return subprocess.run([SHARDC, 'equal', 'model.ir', 'ranks.ir', *more], cwd=self.folder, capture_output=True,
                              text=True)

    def judge(self, i, new):
        lines = renumbered([*self.ranks[:i], *new, *self.ranks[i + 1:]])
        p = self.told(lines)
        if p.returncode and 'E1208' not in p.stderr:
            check(p.returncode in (1, 3, 70), f'{self.name} line {i + 1}: {new}: {p.returncode} {p.stderr}')
            return 'refused'
        if p.returncode == 3: return 'noticed'
        check(p.returncode == 0, f'{self.name} line {i + 1}: {new}: {p.returncode} {p.stderr}')
        for seed in '2', '3':
            if self.told(lines, '--seed', seed, '--steps', '5').returncode == 3: return 'noticed later'
        poison = poisoned(self.ranks[i], i)
        if poison:
            bad = renumbered([*self.ranks[:i], *poison, *self.ranks[i + 1:]])
            if self.told(bad, '--seed', '3', '--steps', '5').returncode == 0: return 'unused'
            return 'same'
        return 'open'


def main():
    wanted, seed = int(sys.argv[2]), int((sys.argv + ['1'])[3])
    part, parts = map(int, (sys.argv[4] if len(sys.argv) > 4 else '0/1').split('/'))
    pairs = list(plans())
    random.Random(seed).shuffle(pairs)
    pairs = pairs[part::parts]
    count, kinds = Counter(), {}
    for k, (path, plan, model) in enumerate(pairs):
        r = random.Random(f'{seed} {path} {plan}')
        random.seed(f'{seed} {plan}')
        with tempfile.TemporaryDirectory() as folder:
            try: pair = Pair(folder, path, plan, model, r.choice(PASSES))
            except SystemExit as e:
                if 'E1207' not in str(e) and 'E0' not in str(e) and 'class' not in str(e): raise
                pair = Pair(folder, path, plan, model, 'combine')
            made = {}
            for kind, i, new in faults('\n'.join(pair.ranks)): made.setdefault(kind, []).append((i, new))
            each = max(1, -(-wanted * (k + 1) // len(pairs) - sum(v for c, v in count.items() if c != 'refused')))
            done = 0
            for kind, i, new in (f for f in spread(r, made)):
                if done >= each: break
                found = pair.judge(i, new)
                count[found] += 1
                kinds.setdefault(kind, Counter())[found] += 1
                done += found != 'refused'
                if found not in ('noticed', 'refused'):
                    print(f'{found}: {pair.name} line {i + 1}: {kind}: {pair.ranks[i][:150]}', new and new[-1][:150],
                          flush=True)
        print(pair.name, dict(count), flush=True)
    for kind, c in sorted(kinds.items()): print(f'{kind:12}', dict(c))


def spread(r, made):
    """One of each kind in turn."""
    for some in made.values(): r.shuffle(some)
    while made:
        for kind in sorted(made):
            if made[kind]: yield kind, *made[kind].pop()
            else: del made[kind]


if __name__ == '__main__': main()
