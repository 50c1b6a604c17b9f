"""Faults in dumps, one at a time, over many models and plans: `shardc equal` notices each, or it is harmless.

    python3 equal_faults.py SHARDC FAULTS [SEED [PART/PARTS [PLANS]]]

Plans are those of the examples, of equal_faults.shard and of equal_experts.shard. Each is dumped after a pass from
`localize` to `decode`, or after `prove`, at the sizes that `equal` chooses. A fault that is not noticed is compared
again with other seeds and more steps. If that does not show it, the value of the op is replaced by another one: where
this is not noticed either, nothing that a run computes depends on the op (`unused`); else the fault computes the same
value in all these runs (`same`). Refusals by the rules of messages between ranks (E1109) count as noticed, others as no
faults. A fault of which neither is shown is `open`, and fails the test.
"""
import os, random, re, subprocess, sys, tempfile
from collections import Counter
from common import check, run
from fault_plans import plans, sizes

SHARDC, PASSES = os.path.abspath(sys.argv[1]), ('localize', 'own', 'zero', 'combine', 'decode', 'prove')
OTHER = {'add': 'sub', 'sub': 'add', 'mul': 'add', 'div': 'mul', 'max': 'min', 'min': 'max', 'rmax': 'sum', 'and': 'or',
         'exp': 'tanh', 'rsqrt': 'sqrt', 'sqrt': 'rsqrt'}
FUNCTIONS = ('body ', 'entry ', 'kernel ')
OP = re.compile(r'  (%[^=]*) = (\w+)(\[[^\]]*\])? ?([^{:]*)(\{[^:]*\})? ?: (.*)$')


def type_of(text): return re.match(r'(?:host )?\w+\[[^\]]*\]', text)[0]


def functions(lines):
    """The first and last line of each body and entry except `init`, and the types of its values that are simple."""
    begin = None
    for i, line in enumerate(lines):
        if line.startswith(FUNCTIONS): begin = i
        if line == '}' and begin is not None:
            if '@init' not in lines[begin]: yield begin, i
            begin = None


def faults(text):
    """Of each fault: its kind, the number of a line, and the lines in its place."""
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
    if op in ('send', 'receive', 'keep_first', 'part') and len(outs) == 1:
        word = 'reverse = 1, '
        turned = attrs.replace(word, '') if word in attrs else attrs.replace('{', '{' + word)
        yield 'stage', [line.replace(attrs, turned, 1)]
    for word in 'trip', 'start', 'by', 'first':
        if m := re.search(rf'[{{ ]{word} = (-?\d+)', attrs):
            for d in 1, -1:
                new = f'{m[0][:-len(m[1])]}{int(m[1]) + d}'
                yield 'round' if op == 'loop' else 'shift', [line.replace(m[0], new, 1)]
    if op == 'load' and re.search('tokens$', first):
        yield 'token', [line.replace(first, first.replace('tokens', 'targets'), 1)]
    if len(outs) == 1 and kind.startswith('f') and 'at(' not in line and '{value = 0}' not in line:
        for k in 2, 0.5:
            yield 'times', [line, f'  %99998 = const {{value = {k}}} : {same.split("[")[0]}[]',
                            f'  %99999 = mul {outs[0]}, %99998 : {same}']
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


NEW = ('%99998', '%99999')


def changed(lines, i, new, v=None):
    """The lines with `new` in place of line i. Values count through a function: NEW become the next numbers. Later
    lines use the last of them in place of v."""
    lines, end = [*lines[:i], *new, *lines[i + 1:]], i + len(new)
    made = [l.split()[0] for l in new if l.lstrip().startswith(NEW)]
    if not made: return lines
    begin = max(k for k in range(i) if lines[k].startswith(FUNCTIONS))
    last = next(k for k in range(i, len(lines)) if lines[k] == '}')
    if v: lines[end:last] = [re.sub(rf'{v}(?!\d)', '%99999', line) for line in lines[end:last]]
    at = next(k for k in range(i, end) if lines[k].lstrip().startswith(NEW))
    outs = ' '.join(l.split(' = ')[0] for l in lines[begin + 1:at])
    n = 1 + max([int(k) for k in re.findall(r'%(\d+)', lines[begin] + outs)], default=-1)
    move = lambda m: f'%{n + made.index(m[0]) if m[0] in made else int(m[1]) + len(made) * (int(m[1]) >= n)}'
    return [re.sub(r'%(\d+)', move, l) if begin <= k < last else l for k, l in enumerate(lines)]


def poisoned(lines, i):
    """The lines with another value for each result of op i in turn; none if a pass has placed them."""
    if called := re.search(r' = kernel (@[\w.\']+)', lines[i]):
        yield from poisoned_kernel(lines, called[1])
        return
    m, stored = OP.match(lines[i]), re.match(r'  store @\S+, (%\d+)', lines[i])
    if stored and not any('frame = ' in l for l in lines):
        of = next(l for l in lines[i::-1] if re.match(rf'  [^=]*{stored[1]}\b[^=]* = ', l) or l.startswith(FUNCTIONS))
        kind = re.search(r' : (f\d+\[[^\]]*\])(?:  loc|$)', of)
        new = lines[i].replace(stored[1], '%99999', 1)
        if kind: yield changed(lines, i, [f'  %99999 = neg {stored[1]} : {kind[1]}', new])
    if not m or 'at(' in lines[i]: return
    for v, t in zip(m[1].split(', '), re.findall(r'(?:host )?\w+\[[^\]]*\]', m[6])):
        made = f'{"not" if t.startswith("bool") else "neg"} {v.strip()}'
        if m[2] in ('load', 'const') and t == 'i32[]': made = 'const {value = 1000003}'
        yield changed(lines, i, [lines[i], f'  %99999 = {made} : {t}'], v.strip())


def poisoned_kernel(lines, name):
    """The lines with another value for each result of the kernel in turn."""
    begin = next(k for k, l in enumerate(lines) if l.startswith(f'kernel {name}('))
    end = next(k for k in range(begin, len(lines)) if lines[k].startswith('  return '))
    for v in re.findall(r'%\d+', lines[end]):
        of = ' '.join(l for l in lines[begin:end] if re.search(rf'{v}\b.* = |{v} : ', l))
        if kind := re.search(rf'{v} : (\w+\[[^\]]*\])| : ((?:f|bool|i)\w*\[[^\]]*\])(?:  loc|$)', of):
            t = kind[1] or kind[2]
            made = f'  %99999 = {"not" if t.startswith("bool") else "neg"} {v} : {t}'
            yield changed(lines, end, [made, re.sub(rf'{v}(?!\d)', '%99999', lines[end])])


class Pair:
    def __init__(self, folder, at, after):
        self.folder, self.name = folder, f'{os.path.basename(at[0])} {at[2]} {after}'
        model = run(SHARDC, 'dump', *at, *sizes(SHARDC, at), '--after', 'micro')[0]
        model = re.sub('^set ', 'set made.tight = "on"\nset ', model, count=1, flags=re.M)  # as `equal` has it,
        for key, least in ('zero.bucket', 256), ('precision.block', 16):                   # and these
            model = re.sub(rf'^set plan.{key} = .*', f'set plan.{key} = "{least}"', model, flags=re.M)
        open(f'{folder}/model.ir', 'w').write(model)
        self.ranks = run(SHARDC, 'dump', f'{folder}/model.ir', '--after', after)[0].split('\n')
        p = self.told(self.ranks)
        check(p.returncode == 0, f'{self.name}: {p.stderr}')

    def told(self, lines, *more):
        open(f'{self.folder}/ranks.ir', 'w').write('\n'.join(lines))
        return subprocess.run([SHARDC, 'equal', 'model.ir', 'ranks.ir', *more], cwd=self.folder, capture_output=True,
                              text=True)

    def judge(self, i, new):
        lines = changed(self.ranks, i, new, new[0].split()[0] if new and new[0] == self.ranks[i] else None)
        p = self.told(lines)
        check(p.returncode in (0, 1, 3), f'{self.name} line {i + 1}: {new}: {p.returncode} {p.stderr}')
        if p.returncode: return 'noticed' if re.search('E1208|E1109', p.stderr) else 'refused'
        for seed in '2', '3':
            if self.told(lines, '--seed', seed, '--steps', '5').returncode == 3: return 'noticed later'
        more = '--seed', '3', '--steps', '5'
        all_unused = None
        for bad in poisoned(self.ranks, i):
            all_unused = self.told(bad, *more).returncode == 0
            if not all_unused: return 'same'
        return 'open' if all_unused is None else 'unused'

    def function(self, i):
        return re.match(r'\w+ @([^ ({]*)', next(l for l in self.ranks[i::-1] if l.startswith(FUNCTIONS)))[1]


def seeded(folder, at, after, wanted, r, count, kinds):
    """Judges some faults of a plan, one of each kind in turn."""
    pair = Pair(folder, at, after)
    made, done = {}, 0
    for kind, i, new in faults('\n'.join(pair.ranks)): made.setdefault(kind, []).append((i, new))
    for kind, i, new in spread(r, made):
        if done >= wanted: break
        found = pair.judge(i, new)
        count[found] += 1
        kinds.setdefault(kind, Counter())[found] += 1
        done += found != 'refused'
        if found not in ('noticed', 'refused'):
            print(f'{found}: {pair.name} @{pair.function(i)} line {i + 1}: {kind}: {pair.ranks[i][:150]}',
                  new and new[-1][:150], flush=True)
    print(pair.name, dict(count), flush=True)


def main():
    wanted, seed = int(sys.argv[2]), int((sys.argv + ['1'])[3])
    part, parts = map(int, (sys.argv[4] if len(sys.argv) > 4 else '0/1').split('/'))
    pairs = list(plans(sys.argv[5] if len(sys.argv) > 5 else ''))
    random.Random(seed).shuffle(pairs)
    pairs = pairs[part::parts]
    count, kinds = Counter(), {}
    for k, at in enumerate(pairs):
        r = random.Random(f'{seed} {at[0].split("/")[-1]} {at[2]}')
        random.seed(f'{seed} {at[2]}')
        done = sum(v for c, v in count.items() if c != 'refused')
        each = max(1, -(-wanted * (k + 1) // len(pairs)) - done)
        with tempfile.TemporaryDirectory() as folder:
            try: seeded(folder, at, r.choice(PASSES), each, r, count, kinds)
            except SystemExit as e:
                if not re.search('E1207|E0|class', str(e)): raise
                seeded(folder, at, 'combine', each, r, count, kinds)
    for kind, c in sorted(kinds.items()): print(f'{kind:12}', dict(c))
    check(not count['open'], f'{count["open"]} faults are neither noticed nor harmless')


def spread(r, made):
    """Yields one fault of each kind in turn."""
    for some in made.values(): r.shuffle(some)
    while made:
        for kind in sorted(made):
            if made[kind]: yield kind, *made[kind].pop()
            else: del made[kind]


if __name__ == '__main__': main()
