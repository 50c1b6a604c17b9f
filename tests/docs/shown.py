"""Commands of the pages, as a reader would type them: shown.py SHARDC ROOT [update] PAGE..

Every block of code says what it holds, after its ```:

    console           commands after `$ `, each with its output: stdout, stderr, or both (none: not compared)
    shard file=NAME   a file that commands read; change=NAME: a layer that replaces that of the same name in the file
    shard             parts of model files; with `# examples/NAME` as first line, lines of that file in their order
    output            output that no test of the pages compares: a row of NOT_RUN says why
    python            a script for another tool, which is only parsed
    sh, ir, text      commands without output, IR, drawings

A page's commands run in one folder, which has `examples` and `tools`. Words are compared exactly, numbers within 10 %
or one in their last place (better passes change them a little), a size in any unit. `...` in an output is anything
within a line, and as a line any lines. `update` writes the lines without `...` anew, and docs/pictures.
"""
import os, re, subprocess, sys, tempfile

SHARDC, ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
update, pages = 'update' in sys.argv[3:], [a for a in sys.argv[3:] if a != 'update']
BLOCK = re.compile(r'^```(\w*)(?: (file|change)=(\S+))?\n(.*?)^```$', re.M | re.S)
SIZE = re.compile(r'(-?\d+(?:\.\d+)?(?:e[+-]\d+)?)(?: ([KMGT]?i?B)\b)?')
UNIT = {'B': 2 ** -20, 'KiB': 2 ** -10, 'MiB': 1, 'GiB': 2 ** 10, 'TiB': 2 ** 20, None: 1}
NOT_RUN = {  # page, first line: why no test of the pages compares it
    ('docs/executable.md', 'error[R0901]'): 'a rank has to be killed: runtime.ranks',
    ('docs/onebit.md', 'after 2 of 5 steps'): 'run.onebit compares the counts of this model with `--profile`',
    ('docs/plans.md', 'plan two against'): 'differences are rounding, which depends on the machine: run.verify',
    ('docs/plans.md', '  rounding alone decides'): 'the same',
}
wrong, used = [], set()


def amounts(line):
    """Of each number: its value, and one unit of its last digit; sizes are in MiB."""
    for number, unit in SIZE.findall(line):
        digits, scale = re.search(r'\.(\d+)', number), UNIT.get(unit or None, 1)
        yield float(number) * scale, scale / 10 ** len(digits.group(1) if digits else '')


def words(line): return re.sub(r'[ =:]+', ' ', SIZE.sub('#', line)).strip()


def same_line(wanted, said):
    if '...' in wanted:
        parts = map(re.escape, wanted.split('...'))
        return re.fullmatch('.*'.join(parts), said)
    pairs = zip(amounts(wanted), amounts(said))
    return words(wanted) == words(said) and all(abs(x - y) <= max(0.1 * abs(x), last) for (x, last), (y, _) in pairs)


def shown(wanted, said):
    """Lines of `said` that a page shows, with its `...`; None if they differ. A line `...` skips as few as it can."""
    if not wanted: return None if said else []
    if wanted[0] == '...':
        rests = (shown(wanted[1:], said[i:]) for i in range(len(said) + 1))
        return next((['...', *rest] for rest in rests if rest is not None), None)
    if not said or not same_line(wanted[0], said[0]): return None
    rest = shown(wanted[1:], said[1:])
    return None if rest is None else [wanted[0] if '...' in wanted[0] else said[0], *rest]


def run(folder, command):
    env = dict(os.environ, PATH=f'{os.path.dirname(SHARDC)}:{os.environ["PATH"]}', SHARDC_PATH=f'{ROOT}/examples',
               NO_COLOR='1')
    r = subprocess.run(['sh', '-c', command], cwd=folder, env=env, capture_output=True, text=True, errors='replace',
                       timeout=1200)
    texts = (re.sub(r'\x1b\[[0-9;]*[A-Za-z]', '', t.replace('\r', '\n')).rstrip('\n') for t in (r.stdout, r.stderr))
    return r.returncode, *(t.split('\n') if t else [] for t in texts)


def console(where, folder, body):
    """The block as it should be."""
    made = ''
    for step in re.split(r'^\$ ', body, flags=re.M)[1:]:
        command, *wanted = step.rstrip('\n').split('\n')
        status, out, err = run(folder, command)
        if not wanted and status: wrong.append(f'{where}: {command}: status {status}\n' + '\n'.join(err))
        if wanted:
            found = (shown(wanted, said) for said in (out, err, err + out))
            now = next((lines for lines in found if lines is not None), None)
            if update and now is None and '...' not in ''.join(wanted): now = out or err
            if now is None:
                wrong.append(f'{where}: {command}\n--- written\n' + '\n'.join([*wanted, '--- now', *out, *err]))
            elif update: wanted = now
        made += '\n'.join([f'$ {command}', *wanted]) + '\n'
    return made


def change(path, new):
    name = re.match(r'layer (\w+)', new).group(1)
    old = open(path).read()
    made = re.sub(rf'^layer {name}\(.*?^}}\n', lambda m: new, old, flags=re.M | re.S)
    if made == old: wrong.append(f'{path}: no layer {name}')
    open(path, 'w').write(made)


def excerpt(where, body):
    file, *lines = body.rstrip('\n').split('\n')
    bare = lambda line: re.sub(r'\s+#.*', '', line).rstrip()
    rest = iter(bare(l) for l in open(f'{ROOT}/{file[2:]}').read().split('\n'))
    for line in lines:
        if bare(line) not in rest: return wrong.append(f'{where}: {file[2:]} has no such line: {line}')


def block(page, where, folder, m):
    kind, how, name, body = m.groups()
    shows = re.search(r'^\$ |^(error|warning|note)\[', body, re.M)
    if kind == 'console': return f'```console\n{console(where, folder, body)}```'
    if kind == 'output':
        row = next((k for k in NOT_RUN if k[0] == page and body.startswith(k[1])), None)
        used.add(row)
        if not row: wrong.append(f'{where}: no row of NOT_RUN in tests/docs/shown.py says why it is not run')
    elif kind == 'python': compile(body, where, 'exec')
    elif kind not in ('sh', 'shard', 'ir', 'text') or shows:
        wrong.append(f'{where}: `{kind}` is no kind of block, or it shows an output (kinds: tests/docs/shown.py)')
    elif how == 'file': open(f'{folder}/{name}', 'w').write(body)
    elif how: change(f'{folder}/{name}', body)
    elif kind == 'shard' and body.startswith('# examples/'): excerpt(where, body)
    return m.group(0)


def read(page):
    text, out, at = open(f'{ROOT}/{page}').read(), '', 0
    with tempfile.TemporaryDirectory() as folder:
        for name in 'examples', 'tools': os.symlink(f'{ROOT}/{name}', f'{folder}/{name}')
        for m in BLOCK.finditer(text):
            where = f'{page}:{text[:m.start()].count(chr(10)) + 2}'
            out += text[at:m.start()] + block(page, where, folder, m)
            at = m.end()
    fences = text.count('\n```') + text.startswith('```')
    if fences != 2 * len(BLOCK.findall(text)): wrong.append(f'{page}: an open ```')
    if out + text[at:] != text: open(f'{ROOT}/{page}', 'w').write(out + text[at:])


def pictures():
    """The figures of docs/pictures: bytes allocated, the peak."""
    texts = lambda svg: re.findall(r'(?:allocated|peak,) [\d.]+ \w+', svg)
    for stage in range(4):
        path = f'{ROOT}/docs/pictures/zero{stage}.svg'
        svg = subprocess.run([SHARDC, 'plan', f'{ROOT}/examples/tiny_zero.shard', '--plan', f'zero{stage}', '--svg',
                              '-'], capture_output=True, text=True).stdout
        old = texts(open(path).read())
        if update: open(path, 'w').write(svg)
        elif shown(old, texts(svg)) is None: wrong.append(f'{path}: {old}, now {texts(svg)}')


for page in pages: read(page)
if 'docs/plans.md' in pages: pictures()
for row in NOT_RUN:
    if row[0] in pages and row not in used: wrong.append(f'{row}: the page has no such block')
for line in wrong: print(line)
sys.exit(len(wrong) > 0)
