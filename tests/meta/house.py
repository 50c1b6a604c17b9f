"""The house rules as tests: python3 house.py ROOT [RULE]. Without RULE all run. Standard library only.

  sizes     functions: half <= 10 lines, nine in ten <= 30, none above 60; files <= 600 lines
  layers    includes follow the direction of knowledge: each folder sees those that its row in SEES names
  includes  a C file uses a name of each header of the tree that it includes
  heads     every source file opens with a comment that says what it does; no file is empty or has a name of an option
  tables    every op of ops.def has an entry in docs/ir.md and, if differentiable, a row in grad.def
  families  every row of families.def has what a kernel family is made of
  seam      generated code calls the runtime by rows of rt_abi.def alone; the IR names no pass
  results   commands whose results are a sheet print nothing themselves (driver/sheet)
  marks     no marks of unfinished work
"""
import os, re, subprocess, sys

ROOT = os.path.abspath(sys.argv[1])
ROOMS = ['ir', 'frontend', 'passes', 'codegen', 'runtime', 'driver']
DATA = {'runtime/text/unicode.def'}                                # made by a program
# Which folders a folder of sources may include from, besides itself. Each has a row.
IR = ['ir', 'ir/support']
MASK, SHAPE = [*IR, 'ir/mask'], [*IR, 'ir/shape']                 # masks; results of ops, and their splits
PLAN, SCHEDULE = [*SHAPE, 'ir/plan'], [*SHAPE, 'ir/plan', 'ir/schedule']
TEXT = [*SCHEDULE, 'ir/mask', 'ir/text']                          # text, not costs
KERNELS = [*TEXT, 'ir/cost', 'ir/kernel']                         # queries of passes and code generators on kernels
PASS = [*KERNELS, 'passes/base']                                  # queries of every pass
STORED = ['runtime/base', 'runtime/comm', 'runtime/device']      # tensors, on a device, of one rank of many
SEES = {
    'ir/support': [], 'ir': ['ir/support'], 'ir/mask': IR, 'ir/shape': IR, 'ir/plan': SHAPE, 'ir/schedule': PLAN,
    'ir/text': SCHEDULE, 'ir/cost': [*SCHEDULE, 'ir/mask', 'ir/kernel'], 'ir/kernel': MASK, 'ir/verify': KERNELS,
    'ir/interp': [*SCHEDULE, 'ir/mask'],
    'frontend/syntax': TEXT, 'frontend/settings': [*TEXT, 'frontend/syntax'],
    'frontend/model': [*TEXT, 'frontend/syntax'], 'frontend/plan': [*TEXT, 'frontend/settings', 'frontend/model'],
    'frontend/train': [*TEXT, 'frontend/settings', 'frontend/model', 'frontend/plan'],
    'frontend': [*TEXT, 'frontend/settings', 'frontend/model', 'frontend/plan', 'frontend/train'],
    'passes/tune': KERNELS, 'passes/base': KERNELS, 'passes/simplify': [*PASS, 'ir/interp'],
    'passes/math': [*PASS, 'passes/simplify'], 'passes/precision': PASS, 'passes/recompute': [*PASS, 'passes/simplify'],
    'passes/place': [*PASS, 'ir/interp', 'passes/tune'], 'passes/stages': [*PASS, 'passes/simplify', 'passes/place'],
    'passes/zero': [*PASS, 'passes/math', 'passes/precision'], 'passes/offload': [*PASS, 'passes/simplify'],
    'passes/decode': PASS, 'passes/sparse': [*PASS, 'passes/tune'],
    'passes/fuse': [*PASS, 'passes/offload'], 'passes/order': PASS, 'passes/machine': [*PASS, 'passes/tune'],
    'passes': [*PASS, 'passes/machine'],
    'codegen': KERNELS, 'codegen/x86': [*KERNELS, 'codegen'], 'codegen/nvptx': [*KERNELS, 'codegen'],
    'runtime/base': [], 'runtime/text': ['runtime/base'], 'runtime/comm': ['runtime/base'],
    'runtime/device': ['runtime/base', 'runtime/comm'], 'runtime/device/cuda': STORED,
    'runtime/data': [*STORED, 'runtime/text'], 'runtime/store': STORED,
    'runtime': [*STORED, 'runtime/text', 'runtime/data', 'runtime/store'],
}
COMMAND = [*SEES, 'driver', 'driver/sheet']                       # a command: the compiler, command line, results
SEES |= {f'driver/{room}': COMMAND for room in ('data', 'doctor', 'launch', 'lsp', 'reference', 'tune', 'verify')}
SEES |= {f'driver/{room}': [*COMMAND, 'driver/fit'] for room in ('layout', 'equal')}
SEES |= {'driver/fit': COMMAND, 'driver/plan': [*COMMAND, 'driver/fit', 'driver/layout'],
         'driver/sheet': [*IR, 'runtime'],
         'driver/dump': [*COMMAND, 'driver/layout', 'driver/plan']}
SEES['driver'] = list(SEES)
# Headers that all folders of a room may include: (room, header).
OPEN = {('runtime', 'runtime/rt.h'), ('runtime', 'runtime/rt_abi.def'),
        # what generated code sees
        ('runtime', 'ir/support/num.h'), ('runtime', 'ir/support/numbers.h'),
        ('runtime', 'ir/support/variance_refresh.h'),
        ('runtime', 'ir/support/columns.h'), ('runtime', 'ir/support/stack_room.h'),
        ('runtime', 'ir/support/sha256.h'), ('runtime', 'ir/schedule/send_queue.h'),  # inline, one meaning for all
        ('runtime', 'ir/collectives.def'), ('runtime', 'ir/communicators.def'),
        ('runtime', 'ir/arenas.def'), ('runtime', 'ir/phases.def'),
        ('runtime', 'ir/background.def'),
        ('codegen', 'runtime/rt_abi.def'),                                   # the seam: runtime functions
        ('runtime', 'ir/plan/setting_default.h'), ('ir', 'frontend/settings/settings.def'),  # defaults
        ('ir', 'passes/passes.def'), ('ir', 'passes/facts.def'),     # facts of an `after` line
        ('passes', 'passes/pass.h'), ('passes', 'passes/passes.def'), ('passes', 'passes/facts.def')}  # their table

def files(*ends):
    listed = subprocess.run(['git', 'ls-files', '-co', '--exclude-standard'], cwd=ROOT, capture_output=True,
                            text=True).stdout.split('\n')
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
        if n > 600 and f not in DATA: bad.append(f'{f}: {n} lines, at most 600')
    for f in files('.c'):
        if f.split('/')[0] not in ROOMS: continue
        for name, n in functions(f):
            all_lengths.append(n)
            if n > 60: bad.append(f'{f}: {name} has {n} lines, at most 60')
    all_lengths.sort()
    if all_lengths:
        p = lambda q: all_lengths[int(q * (len(all_lengths) - 1))]
        print(f'{len(all_lengths)} functions: median {p(.5)}, p90 {p(.9)}, p99 {p(.99)}, longest {all_lengths[-1]} lines')
        if p(.5) > 10: bad.append(f'median function has {p(.5)} lines, at most 10')
        if p(.9) > 30: bad.append(f'one function in ten has more than {p(.9)} lines, at most 30')
    return bad


def included(f):
    """Files of the tree that f includes; an included file that is not in the tree is generated."""
    for inc in re.findall(r'^\s*#\s*include\s+"([^"]+)"', text(f), re.M):
        beside = os.path.normpath(os.path.join(os.path.dirname(f), inc))
        yield from [p for p in (beside, inc) if os.path.isfile(f'{ROOT}/{p}')][:1]


def layers():
    bad = []
    for f in files('.c', '.h', '.l', '.y', '.def'):
        room = os.path.dirname(f)
        if room.split('/')[0] not in ROOMS: continue
        if room not in SEES: bad.append(f'{f}: {room} has no row in SEES'); continue
        for path in included(f):
            to = os.path.dirname(path)
            if to == room or to in SEES[room] or (room.split('/')[0], path) in OPEN: continue
            bad.append(f'{f} includes {path}: {room} must not know {to}')
    return bad


def declared(header):
    """Names that a header declares: macros, functions, types, constants; None: it expands a table to such names."""
    body = re.sub(r'/\*.*?\*/', '', text(header), flags=re.S)
    if '.def"' in body: return None
    found = set(re.findall(r'^#define (\w+)', body, re.M)) | set(re.findall(r'\b(\w+)\(', body))
    found |= set(re.findall(r'\} ?(\w+);', body)) | set(re.findall(r'\bstruct (\w+)', body))
    for members in re.findall(r'\benum[^{;]*\{([^}]*)\}', body): found |= set(re.findall(r'\w+', members))
    whole = r'^(?!#)\w[^;{}()]*;|^struct \w+ \{.*?^\}'               # variables, and members of announced structs
    for words in re.findall(whole, body, re.M | re.S): found |= set(re.findall(r'\w+', words))
    return found


def includes():
    bad, seen, names = [], 0, {}
    for f in files('.c'):
        if f.split('/')[0] not in ROOMS: continue
        words = set(re.findall(r'\w+', re.sub(r'^#include[^\n]*|/\*.*?\*/', '', text(f), flags=re.M | re.S)))
        for header in included(f):
            if not header.endswith('.h') or os.path.basename(header)[:-2] == os.path.basename(f)[:-2]: continue
            if header not in names: names[header] = declared(header)
            seen += 1
            if names[header] and not names[header] & words: bad.append(f'{f} uses nothing of {header}')
    return bad if seen > 1000 else bad + [f'`includes` found {seen} includes']


def heads():
    ok = re.compile(r'^(#!.*\n)?\s*(/\*|//|#|"""|%top|%\{|%option)')
    strays = [f'{f}: is empty, or has a name like an option' for f in files('')
              if not os.path.getsize(f'{ROOT}/{f}') or os.path.basename(f).startswith('-')]
    return strays + [f'{f}: does not open with a comment' for f in files('.c', '.h', '.py', '.sh', '.def', '.l', '.y')
                     if not ok.match(text(f))]


def tables():
    bad, docs, grad = [], text('docs/ir.md'), text('passes/math/grad.def')
    for name, flags in re.findall(r'^OP\((\w+),\s*\w+,\s*-?\d+,\s*-?\d+,\s*([\w| ]+),', text('ir/ops.def'), re.M):
        if not re.search(r'`%s[`\[ ]' % name, docs): bad.append(f'docs/ir.md has no entry for `{name}`')
        if 'NODIFF' not in flags and not re.search(r'\(%s,' % name, grad):
            bad.append(f'passes/math/grad.def has no row for {name}')
    return bad


# The definitions that a row of families.def needs: (folder, pattern of the definition, kinds of devices).
FAMILY = [('ir/kernel', r'\b{}_family = ', 'BOTH CPU'), ('passes/tune', r'\b{}_rules = ', 'BOTH CPU'),
          ('codegen/x86', r'^void {}_emit\(Emit \*\w+\) \{{', 'BOTH CPU'),
          ('codegen/nvptx', r'^void gpu_{}_emit\(Emit \*\w+\) \{{', 'BOTH')]


def families():
    bad, body = [], {}
    rows = re.findall(r'^FAMILY\((\w+),.*\b(BOTH|CPU),$', text('ir/kernel/families.def'), re.M)
    if len(rows) != len(re.findall(r'^FAMILY\(', text('ir/kernel/families.def'), re.M)):
        bad.append('ir/kernel/families.def: a row whose devices are neither BOTH nor CPU')
    for folder, _, _ in FAMILY:
        inside = [f for f in files('.c', '.md', '.txt') if os.path.dirname(f) == folder]
        body[folder] = '\n'.join(text(f) for f in inside)
    for name, devices in rows:
        for folder, pattern, asked in FAMILY:
            if devices in asked.split() and not re.search(pattern.format(name), body[folder], re.M):
                bad.append(f'family {name}: {folder} has nothing like {pattern.format(name)}')
    return bad


def seam():
    bad = [f'{f}:{i}: {name}( is written past host_call' for f in files('.c') if f.startswith('codegen/')
           for i, line in enumerate(text(f).split('\n'), 1)
           for name in re.findall(r'"[^"]*\b(rt_\w+)\(', line)]
    passes = re.findall(r'^PASS\((\w+),\s*pass_', text('passes/passes.def'), re.M)
    bad += [f'{f}: "{name}" is the word of a pass' for f in files('.c') if f.startswith('ir/')
            for name in re.findall(r'(?:after|pass)[^;]*"(%s)"' % '|'.join(passes), text(f))]
    return bad


def arguments(code):
    """Those of a call, from its opening parenthesis on."""
    found, depth, quoted, last = [], 0, False, 1
    for i, c in enumerate(code):
        if quoted: quoted = c != '"' or code[i - 1] == '\\'
        elif c == '"': quoted = True
        elif c in '([{': depth += 1
        elif c in ')]}': depth -= 1
        if not quoted and (depth == 0 or depth == 1 and c == ','): found.append(code[last:i].strip()); last = i + 1
        if depth == 0 and not quoted: return found


def results():
    """Pictures write SVG; the others give every figure to a sheet, which has it as text, JSON and HTML. A template of
    a sheet has as many holes as figures follow."""
    sheets = re.compile(r'^driver/(plan|fit|doctor|verify)/|^driver/cmd_check')
    pictures = re.compile(r'plan_(svg|gantt|timeline|schedule|page)\.c$')
    bad = [f'{f}:{i}: {line.strip()[:80]}' for f in files('.c') if sheets.search(f) and not pictures.search(f)
           for i, line in enumerate(text(f).split('\n'), 1) if re.search(r'\b(f?printf|f?puts)\(', line)]
    calls = 0
    for f in files('.c'):
        for m in re.finditer(r'\bsheet_(say|say_if|put|page)\(', text(f)):
            given = arguments(text(f)[m.end() - 1:])[2 if m[1] == 'say_if' else 1:]
            template = ''.join(re.findall(r'"((?:[^"\\]|\\.)*)"', given[0]))
            if not re.fullmatch(r'("(?:[^"\\]|\\.)*"\s*)+', given[0]): continue  # chosen by a condition
            holes = re.findall(r'\{([^}]*)\}', template)
            wanted = len(holes) + sum(p == '*' for h in holes for p in h.split(':')[0].lstrip('!').split('.'))
            calls += 1
            if wanted != len(given) - 1: bad.append(f'{f}: {wanted} holes, {len(given) - 1} figures: {template}')
    return bad if calls > 100 else bad + [f'`results` found {calls} templates']


def marks():
    mark = re.compile(r'\b(TODO|FIXME|XXX|HACK|not implemented|unimplemented)\b')
    return [f'{f}:{i}: {line.strip()[:80]}' for f in files('.c', '.h', '.l', '.y', '.def', '.sh', '.py')
            if not f.endswith('meta/house.py')
            for i, line in enumerate(text(f).split('\n'), 1) if mark.search(line)]


RULES = dict(sizes=sizes, layers=layers, includes=includes, heads=heads, tables=tables, families=families, seam=seam,
             results=results, marks=marks)
wrong = 0
for rule in sys.argv[2:] or RULES:
    for line in RULES[rule](): print(f'{rule}: {line}'); wrong += 1
sys.exit(wrong > 0)
