"""How sources and documents are written, as tests: python3 prose.py ROOT [RULE]. Without RULE all run.

  format      C is as clang-format (14, with .clang-format) has it; other versions differ, so without that one it is 77
  width       C has at most 100 columns; Markdown 120, cells of its tables too in README.md; other text 120 as well, but
              for LONG existing lines per kind: their number may only fall
  references  each file that a comment or a document names exists
  links       each link of a document leads to a file, and to a heading of it
  paragraphs  a paragraph or an item of a list in Markdown has at most 600 characters, a cell of a table 200; none ends
              inside of a sentence that the next one goes on with
  markdown    a table of a document has a row of heads and one of dashes, and no two empty lines follow one another
  tested      each test_*.c or test_*.py is named in the README of its folder, which says what it guards
  able        each rule finds the faults in texts made for it

Must not: change a file, or look at what git does not list.
"""
import fnmatch, os, re, shutil, subprocess, sys, tempfile

ROOT = os.path.abspath(sys.argv[1])
WIDTH = {'.c': 100, '.h': 100, '.l': 100, '.y': 100, '.md': 120, '.def': 120, '.py': 120, '.sh': 120, '.cmake': 120,
         'CMakeLists.txt': 120}
# Rules of a grammar that want one line, and strings, formats and patterns that would be no clearer in two.
LONG = {'.l': 8, '.y': 17, '.py': 57, '.sh': 5, 'CMakeLists.txt': 2}
C_LIKE = ('.c', '.h', '.l', '.y', '.def')
CLANG_FORMAT = '14.'
PARAGRAPH, CELL = 600, 200
NAME = re.compile(r'(?<![\w.*$<{}/-])((?:[\w-]+/)*[a-z]\w*\.(?:c|h|def|l|y|py|sh))(?![\w/*({-]|\.\w)')
ELSEWHERE = {'llm.c'}                                   # names of other projects


def listed(root):
    command = ['git', 'ls-files', '-co', '--exclude-standard']
    names = subprocess.run(command, cwd=root, capture_output=True, text=True).stdout.split('\n')
    return sorted(f for f in names if os.path.isfile(f'{root}/{f}'))


def text(root, f): return open(f'{root}/{f}', errors='replace').read()


def kind(f): return os.path.basename(f) if f.endswith('CMakeLists.txt') else os.path.splitext(f)[1]


def clang_format():
    """The program, of the version that this tree is formatted by; None: there is none."""
    for name in 'clang-format-14', 'clang-format':
        path = shutil.which(name)
        said = path and subprocess.run([path, '--version'], capture_output=True, text=True).stdout
        if said and re.search(r'version ' + re.escape(CLANG_FORMAT), said): return path
    return None


def format(root):
    program = clang_format()
    if not program: print(f'skipped: no clang-format {CLANG_FORMAT}x here'); sys.exit(77)
    sources = [f for f in listed(root) if kind(f) in ('.c', '.h')]
    bad = {}
    for i in range(0, len(sources), 50):
        p = subprocess.run([program, '--dry-run', *sources[i:i + 50]], cwd=root, capture_output=True, text=True)
        for f, line in re.findall(r'^(.*?):(\d+):\d+: warning', p.stderr, re.M): bad.setdefault(f, line)
    return [f'{f}:{line}: clang-format -i would change it' for f, line in bad.items()]


def width(root):
    bad, long = [], {k: [] for k in WIDTH}
    for f in listed(root):
        if kind(f) not in WIDTH: continue
        for i, line in enumerate(text(root, f).split('\n'), 1):
            row = f.endswith('.md') and line.lstrip().startswith('|')
            most = max(len(c.strip()) for c in line.split('|')) if row else len(line)
            if row and f != 'README.md': continue
            if most > WIDTH[kind(f)]: long[kind(f)].append(f'{f}:{i}: {most} columns')
    for k, lines in long.items():
        if len(lines) > LONG.get(k, 0):
            bad.append(f'{len(lines)} lines of {k} are wider than {WIDTH[k]} columns, at most {LONG.get(k, 0)} may be')
            bad += lines[:20]
    return bad


def prose(f, source):
    """(position, text) of the comments of a source, of all that is no code in a document."""
    if f.endswith('.md'):
        return [(0, re.sub(r'```.*?```', lambda m: '\n' * m.group(0).count('\n'), source, flags=re.S))]
    form = r'#[^\n]*|""".*?"""' if kind(f) not in C_LIKE else r'/\*.*?\*/'
    return [(m.start(), m.group(0)) for m in re.finditer(form, source, re.S)]


def references(root):
    bad, there = [], {}
    for f in listed(root): there.setdefault(os.path.basename(f), []).append('/' + f)
    for f in listed(root):
        if kind(f) not in WIDTH: continue
        source = text(root, f)
        for at, words in prose(f, source):
            for m in NAME.finditer(words):
                name = m.group(1)
                if name in ELSEWHERE or re.search(r'[A-Z]{4}', name): continue
                if any(path.endswith('/' + name) for path in there.get(os.path.basename(name), [])): continue
                if os.path.isfile(os.path.join(root, os.path.dirname(f), name)): continue
                bad.append(f'{f}:{source[:at + m.start()].count(chr(10)) + 1}: no file {name}')
    return bad


def blocks(source):
    """(number of its first line, text) of each paragraph, item and cell of a Markdown text; code has none."""
    found, code = [], False
    for i, line in enumerate(source.split('\n'), 1):
        words, fence = line.strip(), line.lstrip().startswith('```')
        if fence: code = not code
        if code or fence or not words or words.startswith('#'): found.append((i, ''))
        elif words.startswith('|'): found += [(i, '|' + cell.strip()) for cell in re.split(r'(?<!\\)\|', words)]
        elif re.match(r'([-*]|\d+\.) ', words) or not found or found[-1][1][:1] in ('', '|'): found.append((i, words))
        else: found[-1] = (found[-1][0], f'{found[-1][1]} {words}')
    return found


def paragraphs(root):
    bad = []
    for f in listed(root):
        if not f.endswith('.md'): continue
        before = ''
        for i, words in blocks(text(root, f)):
            cell = words.startswith('|')
            if words[:1].islower() and re.search(r'[a-z,]$', before):
                bad.append(f'{f}:{i}: a paragraph splits a sentence')
            before = '' if cell else words or before
            size, most = len(words) - cell, CELL if cell else PARAGRAPH
            what = 'cell' if cell else 'paragraph'
            if size > most: bad.append(f'{f}:{i}: {size} characters in a {what}, {most} at most')
    return bad


def markdown(root):
    bad = []
    for f in listed(root):
        if not f.endswith('.md'): continue
        source = re.sub(r'```.*?```', lambda m: re.sub(r'(?m)^.*$', 'code', m.group(0)), text(root, f), flags=re.S)
        lines = ['text', *source.split('\n'), 'text']
        for i, line in enumerate(lines[1:-1], 1):
            begins = line.startswith('|') and not lines[i - 1].startswith('|')
            if begins and not re.fullmatch(r'[|: -]+', lines[i + 1]): bad.append(f'{f}:{i}: a table without heads')
            if not line and not lines[i - 1]: bad.append(f'{f}:{i}: two empty lines')
    return bad


def tested(root):
    bad = []
    for f in listed(root):
        folder, name = os.path.split(f)
        if not re.fullmatch(r'test_\w+\.(c|py)', name): continue
        page = f'{folder}/README.md'.lstrip('/')
        words = re.findall(r'`([^`\s]+)`', text(root, page)) if os.path.isfile(f'{root}/{page}') else []
        if not any(fnmatch.fnmatch(name, w) for w in words): bad.append(f'{page} does not name {name}')
    return bad


def prose_of(root, f):
    """Markdown without blocks of code."""
    return re.sub(r'^```.*?^```', '', text(root, f), flags=re.S | re.M)


def anchors(root, f):
    """The headings of a document, as links write them."""
    heads = re.findall(r'^#+ (.*)', prose_of(root, f), re.M)
    return {re.sub(r'[^\w -]', '', re.sub(r'\]\([^)]*\)', '', h)).strip().lower().replace(' ', '-') for h in heads}


def links(root):
    bad = []
    for f in listed(root):
        if not f.endswith('.md'): continue
        for link in re.findall(r'\]\(([^)\s]+)\)', re.sub(r'`[^`]*`', '', prose_of(root, f))):
            name, _, head = link.partition('#')
            file = os.path.normpath(os.path.join(os.path.dirname(f), name)) if name else f
            if ':' in link: continue
            if not os.path.exists(f'{root}/{file}'): bad.append(f'{f}: no file {link}')
            elif head and head not in anchors(root, file): bad.append(f'{f}: no heading {link}')
    return bad


def able(root):
    """Three sources with one mistake of each rule, and what the rules say of them."""
    bad = []
    with tempfile.TemporaryDirectory() as d:
        subprocess.run(['git', 'init', '-q'], cwd=d)
        shutil.copy(f'{root}/.clang-format', d)
        open(f'{d}/a.c', 'w').write('/* See gone.c and a.c. */\nint  f( void );\n/* ' + 'x' * 100 + ' */\n')
        open(f'{d}/a.md', 'w').write('word ' * 30 + '\n| ' + 'x' * 130 + ' |\n\n```\nnothing.c\n```\n')
        found = width(d), references(d), format(d) if clang_format() else ['a.c:2: changed']
        open(f'{d}/p.md', 'w').write('one two\n' * 75 + '- ' + 'three\n' * 99 + '\n' + 'Four five\n' * 61 + '```\n' +
                                     'code ' * 300 + '\n```\n| ' + 'x' * 200 + ' | ' + 'y \\| ' * 51 +
                                     '|\none\n\ntwo\n')
        long = ['p.md:176: 609 characters in a paragraph, 600 at most',
                'p.md:240: 254 characters in a cell, 200 at most', 'p.md:243: a paragraph splits a sentence']
        if paragraphs(d) != long: bad.append(f'paragraphs finds {paragraphs(d)}')
        open(f'{d}/t.md', 'w').write('| a |\n|---|\n| b |\n\n| c |\n| d |\n\n\n```\n\n\n| e |\n```\n')
        without = ['t.md:5: a table without heads', 't.md:8: two empty lines']
        if markdown(d)[-2:] != without: bad.append(f'markdown finds {markdown(d)}')
        os.remove(f'{d}/t.md')
        open(f'{d}/l.md', 'w').write('## The `x` of [it](a.md)\n[a](#the-x-of-it) [b](b.md) [c](#none)\n' +
                                     '```\n[d](e)\n```\n')
        if links(d) != ['l.md: no file b.md', 'l.md: no heading #none']: bad.append(f'links finds {links(d)}')
        os.remove(f'{d}/l.md')
        if len(found[0]) != 4: bad.append(f'width finds {found[0]} where two lines are too wide')
        open(f'{d}/test_b.c', 'w').write('/* */\n'), open(f'{d}/test_c.c', 'w').write('/* */\n')
        open(f'{d}/README.md', 'w').write('`test_b*.c`\n')
        if tested(d) != ['README.md does not name test_c.c']: bad.append(f'tested finds {tested(d)}')
        if found[1] != ['a.c:1: no file gone.c']: bad.append(f'references finds {found[1]}')
        if len(found[2]) != 1 or not found[2][0].startswith('a.c:2'): bad.append(f'format finds {found[2]}')
    return bad


if __name__ == '__main__':
    RULES = dict(width=width, references=references, paragraphs=paragraphs, links=links, markdown=markdown,
                 tested=tested, able=able, format=format)
    wrong = 0
    for rule in sys.argv[2:] or RULES:
        for line in RULES[rule](ROOT): print(f'{rule}: {line}'); wrong += 1
    sys.exit(wrong > 0)
