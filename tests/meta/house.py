"""The house rules as tests: python3 house.py ROOT [RULE]. Without RULE all run. Standard library only.

  sizes     functions: half <= 16 lines, nine in ten <= 60, none above 120; files <= 800 lines; C lines <= 120 columns
  layers    includes follow the direction of knowledge: ir <- frontend, passes <- codegen <- driver; runtime alone
  heads     every source file opens with a comment that says what it does
  tables    every op of ops.def has an entry in docs/ir.md and, if differentiable, a row in grad.def; no other list of op names
  marks     no marks of unfinished work
"""
import os, re, subprocess, sys

ROOT = os.path.abspath(sys.argv[1])
ROOMS = ['ir', 'frontend', 'passes', 'codegen', 'runtime', 'driver']
LEAVES = {'ir/philox.h', 'ir/numbers.h', 'ir/sha256.h'}          # pure inline functions, seen by ir and runtime alike
SEES = {'ir': {'ir'}, 'frontend': {'ir', 'frontend'}, 'passes': {'ir', 'passes'},
        'codegen': {'ir', 'codegen'}, 'runtime': {'runtime'}}
SEES['driver'] = set(ROOMS)


def files(*ends):
    listed = subprocess.run(['git', 'ls-files', '-co', '--exclude-standard'], cwd=ROOT, capture_output=True, text=True).stdout.split('\n')
    return sorted(f for f in listed if f.endswith(ends) and os.path.isfile(f'{ROOT}/{f}'))


def text(f): return open(f'{ROOT}/{f}', errors='replace').read()


def functions(f):
    """(name, lines) of every function: a line at column 0 that ends in `{`, up to the next `}` at column 0."""
    name, start = None, 0
    for i, line in enumerate(text(f).split('\n'), 1):
        m = re.match(r'^(?!typedef|struct|enum|union|static const|const|extern|#|\}|\{)[A-Za-z_].*?(\w+)\(.*', line)
        if m and not line.rstrip().endswith(';'):
            name, start = m.group(1), i
            if line.rstrip().endswith('}'): yield name, 1; name = None
        elif line.startswith('}') and name: yield name, i - start + 1; name = None


def sizes():
    bad, all_lengths = [], []
    for f in files('.c', '.h', '.l', '.y', '.py', '.sh', '.def'):
        n = text(f).count('\n')
        if n > 800: bad.append(f'{f}: {n} lines, at most 800')
        for i, line in enumerate(text(f).split('\n'), 1):
            if len(line) > 120 and f.endswith(('.c', '.h')): bad.append(f'{f}:{i}: {len(line)} columns, at most 120')
    for f in files('.c'):
        if f.split('/')[0] not in ROOMS: continue
        for name, n in functions(f):
            all_lengths.append(n)
            if n > 120: bad.append(f'{f}: {name} has {n} lines, at most 120')
    all_lengths.sort()
    if all_lengths:
        p = lambda q: all_lengths[int(q * (len(all_lengths) - 1))]
        print(f'{len(all_lengths)} functions: median {p(.5)}, p90 {p(.9)}, p99 {p(.99)}, longest {all_lengths[-1]} lines')
        if p(.5) > 16: bad.append(f'median function has {p(.5)} lines, at most 16')
        if p(.9) > 60: bad.append(f'one function in ten has more than {p(.9)} lines, at most 60')
    return bad


def layers():
    bad = []
    for f in files('.c', '.h', '.l', '.y', '.def'):
        room = f.split('/')[0]
        if room not in ROOMS: continue
        for inc in re.findall(r'^\s*#\s*include\s+"([^"]+)"', text(f), re.M):
            path = next((p for p in (os.path.normpath(os.path.join(os.path.dirname(f), inc)), inc, 'ir/' + inc)
                         if os.path.isfile(f'{ROOT}/{p}')), None)
            if path is None: continue                 # generated
            to = path.split('/')[0]
            if to in SEES[room] or path in LEAVES: continue
            if room == 'codegen' and path in ('runtime/rt.h', 'runtime/rt_abi.def'): continue
            bad.append(f'{f} includes {path}: {room} must not know {to}')
    return bad


def heads():
    ok = re.compile(r'^(#!.*\n)?\s*(/\*|//|#|"""|%top|%\{|%option)')
    return [f'{f}: does not open with a comment' for f in files('.c', '.h', '.py', '.sh', '.def', '.l', '.y') if not ok.match(text(f))]


def tables():
    bad, docs, grad = [], text('docs/ir.md'), text('passes/grad.def')
    for name, flags in re.findall(r'^OP\((\w+),\s*\w+,\s*-?\d+,\s*-?\d+,\s*([\w| ]+),', text('ir/ops.def'), re.M):
        if not re.search(r'`%s[`\[ ]' % name, docs): bad.append(f'docs/ir.md has no entry for `{name}`')
        if 'NODIFF' not in flags and not re.search(r'\(%s,' % name, grad): bad.append(f'passes/grad.def has no row for {name}')
    return bad


def marks():
    mark = re.compile(r'\b(TODO|FIXME|XXX|HACK|not implemented|unimplemented)\b')
    return [f'{f}:{i}: {line.strip()[:80]}' for f in files('.c', '.h', '.l', '.y', '.def', '.sh', '.py') if not f.endswith('meta/house.py')
            for i, line in enumerate(text(f).split('\n'), 1) if mark.search(line)]


RULES = dict(sizes=sizes, layers=layers, heads=heads, tables=tables, marks=marks)
wrong = 0
for rule in sys.argv[2:] or RULES:
    for line in RULES[rule](): print(f'{rule}: {line}'); wrong += 1
sys.exit(wrong > 0)
