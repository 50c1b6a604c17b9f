"""Products in 8 bits by wgmma, in whole programs.   eights.py SHARDC

`precision fp8` for sm_90a keeps operands of products as codes of 8 bits and multiplies these. On the stand-in the loss
and the weights after a step are those of the processor, which multiplies the same numbers in bf16: at least 99.9 % of
the weights differ by less than a millionth of the largest. Sizes with whole blocks, ragged tiles, sizes of which only
some products have blocks, weights of several dims, rotated heads, recomputed layers; gradients in both formats; late,
in random order with all checks.
Sizes without any block are warned of; a dump whose kernels disagree about a value is refused, as are kernels in two
orders of another variant or target. Mutants of the product are noticed (the scale of another row or column, a sum added
to the wrong one, another format, a missing wait), and those of kernels that write codes (no barrier, a largest number
of half a block, the scale of another one); one kernel writes codes of a gradient in both orders. With ptxas on PATH,
kernels assemble without registers in memory, else the warning W1316 fails the test.
"""
import array, json, os, random, re, shutil, struct, subprocess, sys, tempfile
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'run'))
from common import npy

shardc = os.path.abspath(sys.argv[1])
emulate = os.path.join(os.path.dirname(shardc), 'lib', 'shardc', 'emulate')
folder = tempfile.mkdtemp(prefix='shardc_')
DOTS = '''use "std"
dims { Batch; Feat = FEAT; Out = OUT; Layers = 2 }
layer Two(x: [Batch, Feat]) -> [Batch, Feat] {
  param w [Feat, Out] ~ normal(0.1)
  param v [Out, Feat] ~ normal(0.1)
  return dot[Out](relu(dot[Feat](x, w)), v)
}
model Net {
  input x, t [Batch, Feat] f32
'''
HEADS = '''use "std"
dims { Batch; Seq = 128; Feat = FEAT; Heads = 3; Head = OUT; Layers = 1 }
layer Two(x: [Batch, Seq, Feat]) -> [Batch, Seq, Feat] {
  param w [Feat, Heads, Head] ~ normal(0.1)
  param v [Heads, Head, Feat] ~ normal(0.1)
  return dot[Heads, Head](dot[Feat](x, w), v)
}
model Net {
  input x, t [Batch, Seq, Feat] f32
'''
ROPE = HEADS.replace('dot[Feat](x, w)', 'rope[Seq; Head](dot[Feat](x, w))')
REST = '''  stack h [Layers] of Two
  loss mean[*](h(x) * t) * 1000
}
train t for Net {
  batch BATCH
  steps 1
  data columns(x = "x.npy", t = "t.npy") shuffle = off
  optim sgd lr = 1
}
plan p for Net { precision fp8WORDS }
'''
# model, batch, rows of a sample, Feat, Out, words, how many products are of codes, kernels of codes in both orders
CASES = {'whole blocks': (DOTS, 256, (), 256, 384, '', 6, 2),
         'e5m2 backward': (DOTS, 256, (), 256, 384, ' backward = e5m2', 6, 2),
         'recompute': (DOTS, 128, (), 128, 128, '\n  recompute h.* keep = input', 7, 2),
         'ragged': (DOTS, 200, (), 384, 130, '', 2, 0), 'several dims': (HEADS, 2, (128,), 256, 64, '', 4, 1),
         'heads of 128': (HEADS, 2, (128,), 128, 128, '', 6, 2), 'rope': (ROPE, 2, (128,), 128, 128, '', 6, 2)}
BOTH = r'kernel @([\w.]+)\([^\n]*variant = "turned"[^\n]* codes = \[1, \d, \d+, 2,'


def run(*command, fails=None, may_fail=False, **env):
    e = {**os.environ, 'NO_COLOR': '1', 'SHARDC_LIBCUDA': f'{emulate}/libcuda.so.1', 'SHARDC_EQUAL': 'off',
         'SHARDC_EMULATE_SM': '90', 'SHARDC_EMULATE_SHARED': '232448', **env}
    p = subprocess.run([str(x) for x in command], cwd=folder, capture_output=True, env=e, encoding='latin1')
    if fails and fails in p.stderr: return p.stderr
    if p.returncode and may_fail: return None
    if p.returncode or fails or 'W1316' in p.stderr: sys.exit(f'{" ".join(command)}\n{p.stdout}\n{p.stderr}')
    return p.stdout + p.stderr


def drawn(name, shape):
    n = 1
    for s in shape: n *= s
    draw = random.Random(name)
    apart = [2 ** (3 * i % 7 - 3) for i in range(shape[-1])]     # scales of neighbours differ
    values = [draw.gauss(0, 1) * 2 ** draw.uniform(-4, 2) * apart[i % shape[-1]] for i in range(n)]
    npy(f'{folder}/{name}', '<f4', shape, values)


def weights(path):
    raw = open(f'{folder}/{path}', 'rb').read()
    n = struct.unpack('<Q', raw[:8])[0]
    at = {k: v['data_offsets'] for k, v in json.loads(raw[8:8 + n]).items() if k.startswith('h.*') or k == 'loss'}
    return {k: array.array('f', raw[8 + n + a:8 + n + b]) for k, (a, b) in sorted(at.items())}


def apart(have, want):
    """Of the tensor that differs most: share of numbers that differ (0 for a loss), largest difference, name."""
    worst = 0, 0, ''
    for k, b in want.items():
        most = max(map(abs, b))
        off = [abs(x - y) / most if x == x else 1e9 for x, y in zip(have[k], b)]
        worst = max(worst, (sum(o > 1e-6 for o in off) / len(off) if len(off) > 1 else 0, max(off), k))
    return worst


def equal(have, want): return (lambda share, most, _: share < 1e-3 and most < .02)(*apart(have, want))


def train(exe, **env):
    """The weights after training; None if the program fails, which is allowed."""
    shutil.rmtree(f'{folder}/out', ignore_errors=True)
    said = run(f'./{exe}', 'train', '--out', 'out', '--save-every', '0', '--dump', 'out.st', **env)
    return weights('out.st') if said is not None else None


def write(model, batch, rows, feat, out, words, *_):
    text = (model + REST).replace('FEAT', str(feat)).replace('OUT', str(out)).replace('BATCH', str(batch))
    open(f'{folder}/net.shard', 'w').write(text.replace('WORDS', words))
    for name in 'x.npy', 't.npy': drawn(name, (batch, *rows, feat))


def case(name, *of):
    write(*of)
    run(shardc, 'compile', 'net.shard', '--plan', 'p', '-o', 'cpu', '-q')
    said = run(shardc, 'compile', 'net.shard', '--plan', 'p', '-o', 'gpu', '-q', '--target', 'sm_90a', '--keep', 'kept')
    if 'W0709' in said: sys.exit(f'{name}: {said}')
    text = run(shardc, 'dump', 'net.shard', '--plan', 'p', '--target', 'sm_90a', '--after', 'select', '-q')
    step = set(re.findall(r'kernel @(h\.forward\.(?:fwd|bwd)\.dot\d+)\([^\n]*codes = ', text))
    both = re.findall(BOTH, text)
    if (len(step), len(both)) != of[-2:]: sys.exit(f'{name}: products of codes: {sorted(step)}, in both orders: {both}')
    for k in step:
        ptx = open(f'{folder}/kept/k_{k.replace(".", "_")}.ptx').read()
        if ptx.count('m64n128k32') != 4 or 'k16' in ptx: sys.exit(f'{name}: {k} multiplies otherwise')
    shutil.rmtree(f'{folder}/kept')
    want = train('cpu')
    for mode, env in {'': {}, 'late': {'SHARDC_EMULATE_LATE': '1'},
                      'random': {'SHARDC_EMULATE_CHECK': '1', 'SHARDC_EMULATE_SEED': '3'}}.items():
        have = train('gpu', **env)
        if not equal(have, want): sys.exit(f'{name} {mode}: off by {apart(have, want)}')
    print(f'{name}: {len(step)} products, off by {apart(have, want)}', flush=True)
    return want


def rounding():
    """Values and weights are read in bf16 for each of two products, gradients once for both."""
    said = json.loads(run(shardc, 'plan', 'net.shard', '--plan', 'p', '--target', 'sm_90a', '--json'))
    codes, two, layers = 1 + 4 / 128, 2, 2
    value, hidden, weight = 256 * 256, 256 * 384, 256 * 384
    want = layers * (two * (2 + codes) * (value + hidden + 2 * weight) + (2 + 2 * codes) * (value + hidden))
    if said['eights']['rounding'] != want: sys.exit(f'rounding moves {said["eights"]["rounding"]} bytes, not {want}')


def by_threads(want):
    """The same products filled by threads in place of bulk tensor copies: the same bits."""
    def cut(m):
        shared = 6 * 2 * 128 * 128 + 8 * 8 * 136 * 4  # stages, rows of sums on their way out
        return f'{m[1]}, 1, 3, 3, {m[3]}], chunks = [{m[4]}], threads = [384], shared = [{shared}]'

    text = run(shardc, 'dump', 'net.shard', '--plan', 'p', '--target', 'sm_90a', '--after', 'select', '-q')
    text, n = re.subn(r'(tile = \[128, 128, 128, 64, 128, 6, \d+), ([23]), 3, 3, (\d+)\], chunks = \[([^]]*)\], '
                      r'threads = \[384\], shared = \[(\d+)\]', cut, text)
    open(f'{folder}/threads.ir', 'w').write(text)
    run(shardc, 'compile', 'threads.ir', '-o', 'threads', '-q', '--keep', 'kept')
    if n < 6 or '.nmaps = ' in open(f'{folder}/kept/host.c').read(): sys.exit(f'{n} products in bulk')
    shutil.rmtree(f'{folder}/kept')
    have, bulk = train('threads', SHARDC_EMULATE_CHECK='1', SHARDC_EMULATE_SEED='5'), train('gpu')
    if have != bulk or not equal(have, want): sys.exit(f'by threads: off by {apart(have, bulk)}')
    print(f'{n} kernels by bulk tensor copies and by threads: the same bits', flush=True)


def mutants(want):
    """Of the gradient of a weight, whose operands have blocks of one row."""
    ir = run(shardc, 'dump', 'net.shard', '--plan', 'p', '--target', 'sm_90a', '--after', 'select', '-q')
    text = open(f'{folder}/gpu', 'rb').read()

    def start(pattern):
        return text.index(f'.entry k_{re.search(pattern, ir)[1].replace(".", "_")}_p0('.encode())

    product = text.index(b'm64n128k32', start(r'kernel @([\w.]+)\([^\n]*\n[^\n]*= dot\[Batch\]')) - 60
    both = start(BOTH)

    def change(pattern, to):
        m = re.compile(pattern).search(text, both if re.match(rb'bar|shfl|st', pattern) else product)
        new = to(m) if m else None
        if not m or len(new) != len(m[0]) or new == m[0]: sys.exit(f'no place for {pattern}')
        return text[:m.start()] + new + text[m.end():]

    def other(register):  # of the same length
        number = int(register[2:])
        return b'%f' + str(number - 1 if number % 10 else number + 1).encode()

    of = {'format': (rb'f32\.e4m3\.e4m3', lambda m: b'f32.e5m2.e4m3'),
          'wait': (rb'wgmma\.wait_group\.sync\.aligned 0', lambda m: b'wgmma.wait_group.sync.aligned 1'),
          'barrier': (rb'bar(rier)?\.sync[^;]*;', lambda m: b' ' * len(m[0])),
          'exchange': (rb'shfl\.sync\.bfly[^;]*, 16,', lambda m: m[0][:-3] + b' 8,'),
          'scale of a block': (rb'(st\.global\.f32[^;]*, )(%f\d+);', lambda m: m[1] + other(m[2]) + b';'),
          'scale of a row': (rb'(mul\.rn\.f32[^;]*, )(%f\d+);', lambda m: m[1] + other(m[2]) + b';'),
          'scale of a column': (rb'(fma\.rn\.f32[^,;]*,[^,;]*, )(%f\d+)(,[^;]*;)', lambda m: m[1] + other(m[2]) + m[3]),
          'sum': (rb'(fma\.rn\.f32[^,;]*,[^,;]*,[^,;]*, )(%f\d+);', lambda m: m[1] + other(m[2]) + b';')}
    for name, (pattern, to) in of.items():
        open(f'{folder}/mutant', 'wb').write(change(pattern, to))
        os.chmod(f'{folder}/mutant', 0o755)
        have = train('mutant', may_fail=True, SHARDC_EMULATE_LATE='1', SHARDC_EMULATE_CHECK='1')
        noticed = have is None or not equal(have, want)
        print(f'mutant of the {name}: {"noticed" if noticed else "NOT NOTICED"}', flush=True)
        if not noticed: sys.exit(1)


def refusals():
    text = run(shardc, 'dump', 'net.shard', '--plan', 'p', '--target', 'sm_90a', '--after', 'select', '-q')
    for what, to in {r'(dot\d+\([^\n]*codes = \[\d+, )0': r'\g<1>1',
                     r'(rmax\d+\([^\n]*)(, codes = \[[^]]*\])': r'\1'}.items():
        open(f'{folder}/changed.ir', 'w').write(re.sub(what, to, text, count=1))
        run(shardc, 'compile', 'changed.ir', '-o', 'none', fails='select-c10')
    held = re.sub(BOTH, lambda m: m[0].replace('"turned"', '"held"'), text, count=1)
    open(f'{folder}/changed.ir', 'w').write(held)
    run(shardc, 'compile', 'changed.ir', '-o', 'none', fails='select-c2')
    text = run(shardc, 'dump', 'net.shard', '--plan', 'p', '--target', 'sm_90a', '--after', 'order', '-q')
    open(f'{folder}/changed.ir', 'w').write(re.sub(r'(?m)^target sm_90a.*', 'target x86_64_v3 {..}', text))
    run(shardc, 'opt', '-p', 'select', 'changed.ir', fails='select-c10')
    write(DOTS, 96, (), 96, 96, '', 0)
    said = run(shardc, 'compile', 'net.shard', '--plan', 'p', '--target', 'sm_90a', '-o', 'none', '-q')
    if said.count('W0709') != 1 or 'multiple of 128' not in said: sys.exit(said)


try:
    for name, of in CASES.items():
        want = case(name, *of)
        if name == 'whole blocks': rounding(), by_threads(want), mutants(want), refusals()
finally:
    shutil.rmtree(folder)
