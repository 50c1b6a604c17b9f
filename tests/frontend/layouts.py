"""Figures and pictures of layouts, compared with a plain definition of the patterns in this file.   layouts.py SHARDC
ROOT

`check --json`, `plan --json` and the module's line must say the numbers of blocks and scores that the definition
counts; the text picture must be the definition's blocks letter by letter, the areas of the SVG's colours their
numbers; the same file gives the same bytes. A picture of 1,024 rows of blocks is a smaller one that says so.
"""
import json, os, re, struct, subprocess, sys, tempfile
import xml.dom.minidom

SHARDC, ROOT = map(os.path.abspath, sys.argv[1:3])
wrong = []


def philox_word(c, r, h, seed):
    x, k = [c, r, h, 0], [seed & 0xffffffff, seed >> 32]
    for _ in range(10):
        a, b = 0xd2511f53 * x[0], 0xcd9e8d57 * x[2]
        x = [b >> 32 ^ x[1] ^ k[0], b & 0xffffffff, a >> 32 ^ x[3] ^ k[1], a & 0xffffffff]
        k = [k[0] + 0x9e3779b9 & 0xffffffff, k[1] + 0xbb67ae85 & 0xffffffff]
    return x[0]


def drawn(k, seed, r, columns): return sorted(range(columns), key=lambda c: (philox_word(c, r, 0, seed), c))[:k]


def window(w): return 'W', lambda r, c, h, n: abs(r - c) <= w // 2
def globals_(g): return 'G', lambda r, c, h, n: r < g or c < g
def table(bits): return 'T', lambda r, c, h, n: bits[r][c]
def strided(s): return 'S', lambda r, c, h, n: (r - c) % s == 0


def random(k, seed):
    rows = {}
    def listed(r, c, h, n):
        if (r, n) not in rows: rows[r, n] = drawn(k, seed, r, n)
        return c in rows[r, n]
    return 'R', listed


BITS = [[(r * 7 + c * 3) % 5 == 0 for c in range(7)] for r in range(7)]
# name, Seq, block, heads, text, per head its parts in the order written, causal
LAYOUTS = [
    ('bigbird', 1024, 16, 1, 'blocks(16) & (window(3) | global(2) | random(3, seed = 42))',
     [[window(3), globals_(2), random(3, 42)]], False),
    ('decoder', 1000, 64, 1, 'blocks(64) & (window(3) | global(1)) & causal', [[window(3), globals_(1)]], True),
    ('file', 100, 16, 1, 'blocks(16) & (table("t.npy") | window(1))', [[table(BITS), window(1)]], False),
    ('mixed', 130, 16, 3, 'blocks(16) & per_head([window(3), strided(4) & causal, global(1)])',
     [[window(3)], [strided(4)], [globals_(1)]], None),
]


def definition(seq, unit, parts, causal):
    """Per block its letter (capital, P where causal cuts it) or a dot, and the three counts."""
    n, picture = -(-seq // unit), []
    full = partial = listed = admitted = 0
    for r in range(n):
        line = ''
        for c in range(n):
            letter = next((l for l, f in parts if f(r, c, 0, n)), '.')
            high, wide = min(unit, seq - r * unit), min(unit, seq - c * unit)
            if causal and c > r: letter = '.'
            cut = causal and c == r and letter != '.' and high > 1
            if letter != '.':
                full, partial, listed = full + (not cut), partial + cut, listed + high * wide
                admitted += high * (high + 1) // 2 if cut else high * wide
            line += 'P' if cut else letter
        picture.append(line)
    return picture, full, partial, listed, admitted


def expect(what, got, want):
    if got != want: wrong.append(f'{what}: {got}, wanted {want}')


def run(folder, *args, status=0):
    r = subprocess.run([SHARDC, *args], cwd=folder, capture_output=True, text=True, timeout=1200)
    if r.returncode != status: wrong.append(f'{args}: status {r.returncode}: {r.stderr}')
    return r.stdout if status == 0 else r.stderr


def model(name, seq, heads, text):
    axes = 'Heads, Seq, Key' if heads > 1 else 'Seq, Key'
    return f'''use "std"
dims {{ Batch; In = 8; Heads = {heads}; Seq; Key like Seq }}
layout {name} [{axes}] = {text}
model M {{
  input q [Batch, Heads, Seq, In] f32
  param w [In] = 1
  loss mean[*](attention[Seq -> Key; In](q * w, q, q, mask = {name}))
}}
train t {{ size Seq = {seq}; batch 1; steps 1; optim sgd lr = 1; data columns(q = "q.npy") }}
'''


def write(path, text):
    with open(path, 'w') as f: f.write(text)


def write_table(path, bits):
    header = f"{{'descr': '|b1', 'fortran_order': False, 'shape': ({len(bits)}, {len(bits[0])}), }}".ljust(117) + '\n'
    with open(path, 'wb') as f:
        f.write(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(header)) + header.encode())
        f.write(bytes(int(b) for row in bits for b in row))


# ---- areas of the colours of an SVG ----

LETTERS = {'window': 'W', 'global': 'G', 'random': 'R', 'table': 'T', 'strided': 'S', 'partial': 'P'}


def areas(svg, pictures):
    """Cells per letter: widths of all rectangles of its paths, in cells."""
    side, found = 448 / len(pictures[0]), {}
    for path in xml.dom.minidom.parseString(svg).getElementsByTagName('path'):
        titles = path.getElementsByTagName('title')
        if not titles: continue
        letter = LETTERS[titles[0].firstChild.data]
        widths = re.findall(r'M[\d.e+-]+ [\d.e+-]+h([\d.e+-]+)', path.getAttribute('d'))
        found[letter] = found.get(letter, 0) + round(sum(map(float, widths)) / side)
    return found


def counted(pictures):
    return {l: n for l in LETTERS.values() if (n := sum(row.count(l) for p in pictures for row in p))}


# ---- one layout ----

def check_layout(folder, name, seq, unit, heads, text, parts, causal):
    write(f'{folder}/{name}.shard', model(name, seq, heads, text))
    cut = [causal] * heads if causal is not None else [False, True, False]
    found = [definition(seq, unit, p, c) for p, c in zip(parts, cut)]
    pictures, full, partial, listed, admitted = [f[0] for f in found], *(sum(f[i] for f in found) for i in range(1, 5))
    blocks = heads * (-(-seq // unit)) ** 2
    want = {'name': name, 'queries': seq, 'keys': seq, 'heads': heads, 'block': unit,
            'blocks': {'full': full, 'partial': partial, 'listed': full + partial, 'total': blocks},
            'scores': {'listed': listed, 'admitted': admitted, 'total': heads * seq * seq}}
    for command in 'check', 'plan':
        got = json.loads(run(folder, command, '--json', f'{name}.shard'))['layouts'][0]
        expect(f'{command} {name}', {k: got[k] for k in want}, want)
        expect(f'{command} {name}, density', round(got['density'], 8), round((full + partial) / blocks, 8))
        expect(f'{command} {name}, FLOP', round(got['flop_share'], 8), round(listed / (heads * seq * seq), 8))
    words = f'{full + partial} of {blocks} blocks of {unit} x {unit}'
    for command in 'check', 'plan': expect(f'{command} in words', words in run(folder, command, f'{name}.shard'), True)
    line = re.search(rf'^set layout.{name} = "(.*)"$', run(folder, 'dump', f'{name}.shard'), re.M).group(1)
    expect('line', [int(n) for n in re.findall(r'(\d+) full and (\d+) partial', line)[0]], [full, partial])
    drawn_text = run(folder, 'dump', f'{name}.shard', '--layout', name)
    expect(f'text of {name}', re.findall(r'^ *\d+ ([A-Za-z.?]+)$', drawn_text, re.M), [l for p in pictures for l in p])
    svg = [run(folder, 'dump', f'{name}.shard', '--layout', name, '--format', 'svg') for _ in range(2)]
    expect('svg twice', svg[0] == svg[1], True)
    expect(f'areas of {name}', areas(svg[0], pictures), counted(pictures))


# ---- large ones, layouts without blocks, mistakes ----

def check_large(folder):
    write(f'{folder}/large.shard', model('large', 65536, 1, 'blocks(64) & (window(3) | global(2))'))
    text = run(folder, 'dump', 'large.shard', '--layout', 'large')
    expect('blocks of 1,024 rows', '7156 of 1048576 blocks' in text, True)
    expect('note', 'a letter is a square of 16 x 16 blocks' in text, True)
    rows = re.findall(r'^ *\d+ ([A-Za-z.?]+)$', text, re.M)
    expect('rows', [len(rows), rows[0], rows[9]], [64, 'g' * 64, 'g' + '.' * 7 + 'www' + '.' * 53])
    svg = run(folder, 'dump', 'large.shard', '--layout', 'large', '--format', 'svg')
    expect('size', [len(svg) < 40000, 'a cell is 5 x 5 blocks' in svg], [True, True])


def check_unblocked(folder):
    write(f'{folder}/far.shard', model('far', 256, 1, 'causal & sliding(32)'))
    got = json.loads(run(folder, 'check', '--json', 'far.shard'))['layouts'][0]
    admitted = sum(min(q + 1, 32) for q in range(256))
    expect('without blocks', [got['block'], got['scores']['admitted']], [None, admitted])
    expect('unit', 'drawn in blocks of 4 x 4' in run(folder, 'dump', 'far.shard', '--layout', 'far'), True)


def check_mistakes(folder):
    for args, words in [(['far.shard', '--layout', 'fur'], 'did you mean `far`'),
                        (['far.shard', '--layout', 'far', '--format', 'json'], 'drawn as text or svg'),
                        (['far.shard', '--format', 'svg'], '--layout NAME'),
                        (['far.shard', '--layout', 'far', '--after', 'fuse'], 'before all passes')]:
        expect(args, words in run(folder, 'dump', *args, status=2), True)
    page = run(folder, 'dump', 'far.shard', '--format', 'html')
    expect('page', '"layouts":[{"name":"far","svg":"\\u003csvg' in page, True)


with tempfile.TemporaryDirectory() as folder:
    write_table(f'{folder}/t.npy', BITS)
    for layout in LAYOUTS: check_layout(folder, *layout)
    check_large(folder)
    check_unblocked(folder)
    check_mistakes(folder)
print('\n'.join(wrong))
sys.exit(len(wrong) > 0)
