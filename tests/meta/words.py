"""The words of the tree as tests: python3 words.py ROOT [RULE]. Without RULE all run. Standard library only.

  words     no spelling that was given up (GONE) occurs in code, comments, documents or messages
  glossary  docs/glossary.md: every word that GONE points to has a row, and the places that its rows name exist
  prefix    exported functions begin with the prefix of a module: rt_ in the runtime, elsewhere a word
  names     a type and a file have a name of their own; two of one name have a row in TWICE with the reason
  letters   in a function of ten lines or more a variable of a struct type has a name, not a letter, unless
            CONTRIBUTING.md lists the letter; there are LEFT such variables, which may only become fewer
  plain     comments, documents and messages use plain technical English: no headless clause opens a sentence, no place
            word stands for host, device, before or after; at most LEFT_PLAIN of each kind, which may only become fewer
  subjects  commit subjects since SUBJECTS_SINCE are `area: verb object`, at most 60 characters
  able      the other rules find their faults (each is given a line that it must refuse)
"""
import os, re, subprocess, sys

ROOT = os.path.abspath(sys.argv[1])
HERE = 'tests/meta/words.py'
ROOMS = ('ir/', 'frontend/', 'passes/', 'codegen/', 'runtime/', 'driver/')
ENDS = ('.c', '.h', '.def', '.y', '.l', '.md', '.py', '.sh', '.shard', '.ir', '.txt', '.html')
# Spellings that the tree has given up, as patterns, and the word of docs/glossary.md that replaces each.
GONE = {
    r'side[ -]by[ -]side': 'contiguous, unit stride', r'past the caches': 'non-temporal store',
    r'matrix registers?': 'AMX tile', r'woven|weaves?|weaving': 'interleaved packing', r'piped': 'software pipelining',
    r'homes|homed': 'materialised, inlined', r'wish(?:es)?': 'layout preference', r'dear(?:er)?': 'placement',
    r'astray': 'placement', r'voices?': 'tokenizer', r'seats?': 'peer table', r'troubles?': 'watchdog, failure',
    r'faulty': 'non-finite guard', r'heart beats?': 'heartbeat',
}
# Pieces of file names that do not say what is in the file.
NO_FILE = {'voice', 'together', 'faulty', 'seats', 'post', 'wants', 'weave', 'ahead', 'bring', 'moved', 'misc', 'util'}
# Exported names without a prefix, which may only become fewer.
BARE = {'main', 'intern'}
SHORT = {'ir', 'op', 'fn', 'rt'}  # prefixes of two letters that are modules

# Types of CONTRIBUTING.md, "Letters", and small values: operands of formulas.
LETTERED = set('Module Fn Op Type Report Emit Eval Parser Parse Point World Warp Ctx Comm Cli Update Device Run Fault'
               ' Val Value Span Loc Mark Registers'.split())
LONG, LEFT = 10, 72

# Names that have a meaning in several files, and the reason why they are not ambiguous.
FAMILY = 'one file of that name per folder says what a kernel family is there'
TARGET = 'both kinds of devices have the same parts, in folders that mirror each other'
TWICE = {
    'Listing': 'the walk of one list of blocks: made by sparse, planned for a kernel, written as a loop',
    'attention.c': FAMILY, 'column.c': FAMILY, 'contract.c': FAMILY, 'elem.c': FAMILY, 'row.c': FAMILY,
    'scatter.c': FAMILY, 'families.c': 'what a folder has per row of families.def', 'flash_list.c': FAMILY,
    'device.c': TARGET, 'math.c': TARGET, 'math.h': TARGET, 'target.c': TARGET,
    'flight.c': 'a message in flight: as the IR knows it, and as the runtime sends it', 'flight.h': 'as flight.c',
}


def files():
    listed = subprocess.run(['git', 'ls-files', '-co', '--exclude-standard'], cwd=ROOT, capture_output=True,
                            text=True).stdout.split('\n')
    return sorted(f for f in listed if os.path.isfile(f'{ROOT}/{f}'))


def text(f): return open(f'{ROOT}/{f}', errors='replace').read()


def found(where, body):
    """Given-up spellings in a text, also as a piece of a name (rt_voice_open) and across the lines of a comment."""
    for spelling, word in GONE.items():
        pattern = spelling.replace(' ', r'(?:\s|\*|#)+').replace('[(?:\\s|\\*|#)+-]', r'[-\s]+\W*')
        for m in re.finditer(rf'(?<![A-Za-z])(?:{pattern})(?![A-Za-z])', body, re.I):
            line = body.count('\n', 0, m.start()) + 1
            yield f'{where}:{line}: `{" ".join(m.group().split())}`: the word is `{word}` (docs/glossary.md)'


def words():
    bad = []
    for f in files():
        if f == HERE or not f.endswith(ENDS): continue
        bad += found(f, text(f))
        pieces = set(re.split(r'[_.]', os.path.basename(f)))
        if f.startswith(ROOMS) and pieces & NO_FILE: bad.append(f'{f}: its name does not say its subject')
    return bad


def rows(page): return re.findall(r'^\| (?!word )([^|]+) \| ([^|]+) \| ([^|]+) \|$', page, re.M)


def glossary():
    page, listed = text('docs/glossary.md'), set(files())
    terms = {r[0].strip() for r in rows(page)}
    bad = [f'docs/glossary.md has no row `{w}`' for w in sorted(set(GONE.values()) - terms)]
    for term, meaning, where in rows(page):
        places = re.findall(r'`([^`]+)`', where)
        bad += [f'docs/glossary.md: {term}: there is no {p}' for p in places if p not in listed]
        if not places or not meaning.strip(): bad.append(f'docs/glossary.md: {term}: no place or no meaning')
    return bad


def exported(body):
    body = re.sub(r'/\*.*?\*/', '', body, flags=re.S)
    start = r'^(?!static|typedef|extern|#|return|else|\}|\{)[A-Za-z_][^;={}()]*?\b(\w+)\([^;]*?\)\s*\{'
    return re.findall(start, body, re.M)


def wrong_prefix(f, name):
    first = name.split('_')[0]
    if f.startswith('runtime/') and f != 'runtime/rt_main.c': return first != 'rt'
    return name not in BARE and ('_' not in name or first == 'is' or (len(first) < 3 and first not in SHORT))


def prefix():
    return [f'{f}: {name} does not begin with the prefix of its module' for f in files()
            if f.endswith('.c') and f.startswith(ROOMS) for name in exported(text(f)) if wrong_prefix(f, name)]


def types(body):
    """Names of types that a file defines: of structs, enums, unions, functions, arrays; not those it only announces."""
    body = re.sub(r'/\*.*?\*/', '', body, flags=re.S)
    found = set(re.findall(r'^\}\s*(\w+);', body, re.M))
    for rest in re.findall(r'^typedef\s+([^;{}]*);', body, re.M):
        announced = re.match(r'(?:struct|enum|union)\s+(\w+)\s+\1$', rest)
        name = re.match(r'.*?\b(\w+)\((?!\*)', rest) if not rest.startswith('VEC') else None
        if not announced: found.add(name[1] if name else re.findall(r'\w+', re.sub(r'\[.*', '', rest))[-1])
    found |= set(re.findall(r'^typedef\s+(?:struct|enum|union)\s+\w*\s*\{[^{}]*\}\s*(\w+);', body, re.M))
    return found


def twice(bodies):
    """Names with the files that define them, where there are several. The folder `support` is everybody's."""
    where = {}
    for f, body in bodies.items():
        for name in types(body) | {os.path.basename(f)}: where.setdefault(name, []).append(f)
    return {name: at for name, at in where.items() if len(at) > 1}


def names():
    found = twice({f: text(f) for f in files() if f.startswith(ROOMS) and f.endswith(('.c', '.h'))})
    bad = [f'{name} is another thing in each of {", ".join(at)}' for name, at in found.items() if name not in TWICE]
    return bad + [f'{name} stands in TWICE and is there once' for name in TWICE if name not in found]


def structs(body): return set(re.findall(r'^typedef struct \w* ?\{.*?^\} (\w+);', body, re.M | re.S))


def lettered(body, kinds):
    """(function, letter, type) of struct variables called by a letter, one of its type in a function of LONG lines."""
    for m in re.finditer(r'^\w[^;{}\n]*\b(\w+)\((?:[^;{}]*)\) \{\n.*?^\}', body, re.M | re.S):
        if m.group(0).count('\n') + 1 < LONG: continue
        code = re.sub(r'/\*.*?\*/|"(?:\\.|[^"\\])*"', '', m.group(0), flags=re.S)
        declared = re.findall(r'\b([A-Z]\w*) \**(\w+)(?=[,;)=\[]| =)', code)
        for kind, name in declared:
            if len(name) > 1 or kind not in kinds or kind in LETTERED: continue
            if sum(k == kind and len(n) == 1 for k, n in declared) == 1: yield m.group(1), name, kind


def letters():
    bodies = {f: text(f) for f in files() if f.startswith(ROOMS) and f.endswith(('.c', '.h'))}
    kinds = set().union(*(structs(body) for body in bodies.values()))
    bad = [f'{f}: {kind} {name} in {fn}' for f, body in bodies.items() for fn, name, kind in lettered(body, kinds)]
    if len(bad) < LEFT: return [f'{len(bad)} are left: LEFT is to say so']
    return [f'{len(bad)} of at most {LEFT}'] + bad if len(bad) > LEFT else []


def able():
    bad = []
    long = 'static void f(const Walk *w, Op *o, Pair a) {\n' + '  w->x = 1;\n' * 8 + '}\n'
    if list(lettered(long + long.replace('8', '').replace('  w->x = 1;\n', ''), {'Walk', 'Op'})) != [('f', 'w', 'Walk')]:
        bad.append(f"`letters` finds {list(lettered(long, {'Walk', 'Op'}))}")
    two = {'ir/a.c': 'typedef struct Walk {\n  int x;\n} Walk;\n', 'passes/a.c': 'typedef VEC(Op) Walk;\n',
           'ir/b.h': 'typedef struct Fn Fn;\ntypedef int Rule(int a);\n',
           'ir/c.h': 'typedef struct Fn Fn;\ntypedef struct Rule { int a; } Rule;'}
    if set(twice(two)) != {'Walk', 'a.c', 'Rule'}: bad.append(f'`names` finds {twice(two)}')
    said = list(found('x.c', '/* rows lie side\n   by side */ rt_voice_open(); Seat s; heart beat; asides'))
    if len(said) != 4: bad.append(f'`words` finds {len(said)} of 4: {said}')
    if exported('static int a(void) {\n}\nvoid walk(Emit *e,\n  int n) {\n}\n') != ['walk']: bad.append('no exported name')
    if not wrong_prefix('codegen/walk.c', 'walk') or not wrong_prefix('runtime/x.c', 'open_it') or \
            wrong_prefix('ir/a.c', 'type_of'): bad.append('`prefix` cannot tell names apart')
    said = dialect('x.c', '/* Of three, it goes up there, too.\n   What stands behind it? So it is. */')
    if sorted(kind for kind, _ in said) != ['behind', 'opening', 'stands, lies', 'there', 'too', 'up, down']:
        bad.append(f'`plain` finds {said}')
    if len(rows(text('docs/glossary.md'))) < 40: bad.append('docs/glossary.md: fewer than 40 rows were read')
    return bad


# Spellings of the project's former dialect. `there is` and its like are plain; so is `here` in a shell's usage.
BE = ('(?:is|are|was|were|be|being|been|would|will|may|might|must|can|could|has|have|had|should|exists?|remains?|no'
      '|need)')
DIALECT = {
    'opening': r'(?:^|[.:;] |/\* |^\s*\* |# )(?:What|Who|Of)\b(?! course)[^?\n]{0,300}',
    'there': rf'(?<![iI]s )(?<![aA]re )\bthere\b(?! {BE}\b)', 'too': r', too\b', 'behind': r'\bbehind\b',
    'here': r'(?<!declared )(?<!set )(?<!allowed )(?<!")\bhere\b',
    'beside': r'\bbeside\b', 'in front': r'\bin front of\b',
    'up, down': r'\b(?:go|goes|went|come|comes|came) (?:up|down)\b',
    'stands, lies': r'\b(?:stands?(?!-ins?\b| in for\b| for\b)|lies|lie|stood)\b', 'so many': r'\bso (?:many|much)\b',
}
LEFT_PLAIN = {'opening': 4, 'there': 10, 'here': 24, 'too': 2, 'behind': 6, 'beside': 14, 'stands, lies': 1}
SUBJECTS_SINCE = '8518d1c4'


def prose(f, body):
    """(line, text) of the comments, strings and paragraphs of a file."""
    if f.endswith('.md'):
        code = False
        for i, line in enumerate(body.split('\n'), 1):
            code ^= line.startswith('```')
            if not code and not line.startswith('```'): yield i, line
    elif f.endswith(('.py', '.sh')):
        for i, line in enumerate(body.split('\n'), 1):
            m = re.search(r'#.*|"""[^"]*', line)
            if m: yield i, m.group(0)
    else:
        for m in re.finditer(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|//[^\n]*', body, re.S):
            first = body.count('\n', 0, m.start()) + 1
            yield from ((first + i, line) for i, line in enumerate(m.group(0).split('\n')))


def dialect(where, body):
    return [(kind, f'{where}:{i}: {line.strip()[:90]}') for i, line in prose(where, body)
            for kind, pattern in DIALECT.items() for _ in re.finditer(pattern, line)]


def plain():
    found = [hit for f in files() if f.endswith(('.c', '.h', '.def', '.md', '.py', '.sh', '.y', '.l', '.html'))
             and f != HERE and not f.startswith('docs/history/') for hit in dialect(f, text(f))]
    bad = []
    for kind in DIALECT:
        at = [line for k, line in found if k == kind]
        if len(at) > LEFT_PLAIN.get(kind, 0):
            bad += [f'{kind}: {len(at)} of at most {LEFT_PLAIN.get(kind, 0)} (see CONTRIBUTING.md, Rules)'] + at[:40]
    return bad


def subjects():
    log = subprocess.run(['git', 'log', '--no-merges', '--format=%s', f'{SUBJECTS_SINCE}..HEAD'], cwd=ROOT,
                         capture_output=True, text=True)          # an archive or a shallow clone has no history
    return [f'`{s}`: `area: verb object`, at most 60 characters' for s in log.stdout.splitlines()
            if len(s) > 60 or not re.match(r'[a-z0-9_/,. -]+: [a-z]', s)]


RULES = dict(able=able, words=words, glossary=glossary, prefix=prefix, names=names, letters=letters, plain=plain,
             subjects=subjects)
wrong = 0
for rule in sys.argv[2:] or RULES:
    for line in RULES[rule](): print(f'{rule}: {line}'); wrong += 1
sys.exit(wrong > 0)
