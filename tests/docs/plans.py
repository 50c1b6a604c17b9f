"""Figures and pictures of docs/plans.md against the program: python3 plans.py SHARDC ROOT [update]

Every `$ shardc plan ..` of the page is run, its words compared, its numbers within 10 % or 1 (passes that get better change them a little);
so are the texts of the pictures of docs/pictures. `update` writes both anew.
"""
import os, re, subprocess, sys

SHARDC, ROOT, update = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3:] == ['update']
NUMBER = re.compile(r'\d+(?:\.\d+)?(?:e[+-]\d+)?')
UNIT = {'KiB': 1 / 1024, 'MiB': 1, 'GiB': 1024}


def run(*words):
    p = subprocess.run([SHARDC, *words], cwd=ROOT, capture_output=True, text=True, env=dict(os.environ, SHARDC_PATH=f'{ROOT}/examples', NO_COLOR='1'))
    if p.returncode not in (0, 3): sys.exit(f'shardc {" ".join(words)}: exit {p.returncode}\n{p.stderr}')
    return p.stdout


def numbers(text):
    """Sizes in MiB, so that a unit may change."""
    text = re.sub(r'([\d.]+) (KiB|MiB|GiB)', lambda m: f'{float(m.group(1)) * UNIT[m.group(2)]:.4f} MiB', text)
    return [float(n) for n in NUMBER.findall(text)]


def close(a, b): return abs(a - b) <= max(0.1 * abs(a), 1)


def alike(old, new):
    x, y = numbers(old), numbers(new)
    return len(x) == len(y) and all(map(close, x, y))


def check(name, old, new, wrong):
    if update or alike(old, new): return new if update else old
    wrong.append(f'{name} is not what the program says any more (python3 tests/docs/plans.py SHARDC ROOT update):\n--- written\n{old}\n--- now\n{new}')
    return old


def page(wrong):
    path = f'{ROOT}/docs/plans.md'
    text = open(path).read()
    def block(m): return f'$ {m.group(1)}\n' + check('docs/plans.md: ' + m.group(1), m.group(2), run(*m.group(1).split()[1:]).rstrip('\n') + '\n', wrong) + '```'
    new = re.sub(r'\$ (shardc plan [^\n]*)\n(.*?)```', block, text, flags=re.S)
    if new != text: open(path, 'w').write(new)


def texts(svg):
    """What a picture says in figures: bytes allocated, the largest moment."""
    return '\n'.join(re.findall(r'(?:allocated|largest moment,) [\d.]+ \w+', svg))


def pictures(wrong):
    for stage in range(4):
        path = f'{ROOT}/docs/pictures/zero{stage}.svg'
        new = run('plan', 'examples/tiny_zero.shard', '--plan', f'zero{stage}', '--svg', '-')
        old = open(path).read() if os.path.exists(path) else ''
        check(path, texts(old), texts(new), wrong)
        if update: os.makedirs(os.path.dirname(path), exist_ok=True); open(path, "w").write(new)


wrong = []
page(wrong), pictures(wrong)
for w in wrong: print(w)
sys.exit(len(wrong) > 0)
