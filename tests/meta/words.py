"""The words of the tree as tests: python3 words.py ROOT [RULE]. Without RULE all run. Standard library only.

  words     no spelling that was given up (GONE) stands in code, comments, documents or messages
  glossary  docs/glossary.md: every word that GONE points to has a row there, and the places that its rows name exist
  prefix    exported functions begin with the prefix of a module: rt_ in the runtime, elsewhere a word
  able      the other rules find what they are made for (each is given a line that it must refuse)
"""
import os, re, subprocess, sys

ROOT = os.path.abspath(sys.argv[1])
HERE = 'tests/meta/words.py'
ROOMS = ('ir/', 'frontend/', 'passes/', 'codegen/', 'runtime/', 'driver/')
ENDS = ('.c', '.h', '.def', '.y', '.l', '.md', '.py', '.sh', '.shard', '.ir', '.txt', '.html')
# What the tree does not say any more, as a pattern, and the word of docs/glossary.md that stands for it.
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


def able():
    bad = []
    said = list(found('x.c', '/* rows lie side\n   by side */ rt_voice_open(); Seat s; heart beat; asides'))
    if len(said) != 4: bad.append(f'`words` finds {len(said)} of 4: {said}')
    if exported('static int a(void) {\n}\nvoid walk(Emit *e,\n  int n) {\n}\n') != ['walk']: bad.append('no exported name')
    if not wrong_prefix('codegen/walk.c', 'walk') or not wrong_prefix('runtime/x.c', 'open_it') or \
            wrong_prefix('ir/a.c', 'type_of'): bad.append('`prefix` cannot tell names apart')
    if len(rows(text('docs/glossary.md'))) < 40: bad.append('docs/glossary.md: fewer than 40 rows were read')
    return bad


RULES = dict(able=able, words=words, glossary=glossary, prefix=prefix)
wrong = 0
for rule in sys.argv[2:] or RULES:
    for line in RULES[rule](): print(f'{rule}: {line}'); wrong += 1
sys.exit(wrong > 0)
