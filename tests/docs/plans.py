"""Figures and pictures of README.md and docs/plans.md against the program: python3 plans.py SHARDC ROOT [update]

Every `$ shardc plan ..` of the pages is run, its words compared, its numbers within 10 % or 1 (passes that get better
change them a little); so are the texts of the pictures of docs/pictures. `update` writes both anew. A block of code
that begins with `# examples/NAME` holds lines of that file, in their order, comments at their ends left out or not.
"""
import os, re, subprocess, sys

SHARDC, ROOT, update = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3:] == ['update']
NUMBER = re.compile(r'\d+(?:\.\d+)?(?:e[+-]\d+)?')
UNIT = {'KiB': 1 / 1024, 'MiB': 1, 'GiB': 1024, 'TiB': 1 << 20}


def run(*words):
    p = subprocess.run([SHARDC, *words], cwd=ROOT, capture_output=True, text=True,
                       env=dict(os.environ, SHARDC_PATH=f'{ROOT}/examples', NO_COLOR='1'))
    if p.returncode not in (0, 3): sys.exit(f'shardc {" ".join(words)}: exit {p.returncode}\n{p.stderr}')
    return p.stdout


def numbers(text):
    """Sizes in MiB, so that a unit may change."""
    text = re.sub(r'([\d.]+) ([KMGT]iB)', lambda m: f'{float(m.group(1)) * UNIT[m.group(2)]:.4f} MiB', text)
    return [float(n) for n in NUMBER.findall(text)]


def words(text):
    """The text without its numbers, units and columns."""
    return re.sub(r'\s+', ' ', re.sub(r'#\s*([KMGT]i)?B\b', '#', NUMBER.sub('#', text))).strip()


def close(a, b): return abs(a - b) <= max(0.1 * abs(a), 1)


def alike(old, new):
    x, y = numbers(old), numbers(new)
    return words(old) == words(new) and len(x) == len(y) and all(map(close, x, y))


def check(name, old, new, wrong):
    if update or alike(old, new): return new if update else old
    wrong.append(f'{name} is not what the program says any more (python3 tests/docs/plans.py SHARDC ROOT update):\n--- written\n{old}\n--- now\n{new}')
    return old


def excerpts(name, text, wrong):
    """The lines of each block that says which example it is taken from, against that example."""
    bare = lambda line: re.sub(r'\s+#.*', '', line).rstrip()
    for file, block in re.findall(r'```\n# (examples/\w+\.shard)\n(.*?)```', text, flags=re.S):
        rest = iter(bare(l) for l in open(f'{ROOT}/{file}').read().split('\n'))
        for line in block.rstrip('\n').split('\n'):
            if bare(line) not in rest: wrong.append(f'{name}: not in {file}, or not there: {line}'); break


def page(name, wrong):
    path = f'{ROOT}/{name}'
    text = open(path).read()
    excerpts(name, text, wrong)
    def block(m):
        now = run(*m.group(1).split()[1:]).rstrip('\n') + '\n'
        return f'$ {m.group(1)}\n' + check(f'{name}: {m.group(1)}', m.group(2), now, wrong) + '```'
    new = re.sub(r'\$ (shardc plan [^\n]*)\n(.*?)```', block, text, flags=re.S)
    if new != text: open(path, 'w').write(new)


def texts(svg):
    """The figures of a picture: bytes allocated, the largest moment."""
    return '\n'.join(re.findall(r'(?:allocated|largest moment,) [\d.]+ \w+', svg))


def pictures(wrong):
    for stage in range(4):
        path = f'{ROOT}/docs/pictures/zero{stage}.svg'
        new = run('plan', 'examples/tiny_zero.shard', '--plan', f'zero{stage}', '--svg', '-')
        old = open(path).read() if os.path.exists(path) else ''
        check(path, texts(old), texts(new), wrong)
        if update: os.makedirs(os.path.dirname(path), exist_ok=True); open(path, "w").write(new)


wrong = []
for name in 'README.md', 'docs/plans.md', 'docs/offload.md': page(name, wrong)
pictures(wrong)
for w in wrong: print(w)
sys.exit(len(wrong) > 0)
