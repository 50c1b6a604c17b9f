"""Products by wgmma at every width of a tile.   widths.py SHARDC

A module has one product for each width of tiles and each order of its second operand, whose dims are
whole tiles. Each has instructions of that width, and as many branches as the product of 256 columns: only a rest of 8,
16 or 24 columns adds one for each half of a warp's rows. Some widths are built with ragged tiles as well, and with bulk
copies in place of those of threads; others with results that leave by bulk copies, which store nothing else, and with
elements that come so, which load nothing else. With ptxas on PATH, no kernel keeps registers in memory or runs its
products one after the other, else `compile` warns.
"""
import os, re, shutil, sys, tempfile
from cubin import compiled

shardc = os.path.abspath(sys.argv[1])
folder = tempfile.mkdtemp(prefix='shardc_')
ROWS, K, SHARED, RAGGED = 128 * 200, 640, 232448, (128, 152, 200, 216, 256)
TARGET = ('target sm_90a {sm = 90, wgmma = true, shared = 232448, shared_most = 232448, shared_per_multiprocessor = '
          '233472, multiprocessors = 132, ..}')


def tile(width, turned, bulk, rooms=0, elements=0):
    """The numbers of the cut with as many stages as fit, and its bytes of shared memory."""
    panels = -(-width // 64) * 64 if not turned else -(-width // 16) * 16
    stage, out = 2 * 64 * (128 + panels), 8 * (2048 * rooms if rooms else 8 * 136 * 4)
    stages = min(6, (SHARED - out - 128 * bulk - elements) // stage)
    signals = -(-16 * stages // 64) * 64 * bulk + elements
    way, copy = 1 + bulk + (rooms > 0), 3 if turned else 4
    return [128, width, 64, 64, width, stages, 1, way, 3, copy, 8], stages * stage + out + signals


def product(width, turned, ragged, bulk=0):
    """A product: its name, its kernel, the types of its operands and results, and how many are operands."""
    n, m, (cut, shared) = 4 * width - 8 * ragged, ROWS - ragged, tile(width, turned, bulk)
    a, b, y = f'bf16[M:{m}, K:{K}]', f'bf16[N:{n}, K:{K}]' if turned else f'bf16[K:{K}, N:{n}]', f'bf16[M:{m}, N:{n}]'
    name = f'w{width}{"t" * turned}{"r" * ragged}{"b" * bulk}'
    kernel = (f'kernel @{name}(%0 : {a}, %1 : {b}, %2 : {y}) {{family = "contract", variant = "wgmma", tile = {cut}, '
              f'chunks = [132], threads = [384], shared = [{shared}], apart = [0, 1, 3]}} {{\n'
              f'  %3 = dot[K] %0, %1 : {y}\n  %4 = add %2, %3 : {y}\n  return %4\n}}\n')
    return name, kernel, (a, b, y, y), 3


def left(width, turned, ragged):
    """As `product`, with results that leave by bulk copies: the sum with a bias, and a function of it."""
    n, m, (cut, shared) = 4 * width - 8 * ragged, ROWS - ragged, tile(width, turned, 1, -(-width // 64))
    a, b, y = f'bf16[M:{m}, K:{K}]', f'bf16[{"N" if turned else "K"}:{n if turned else K}, ' + (
        f'K:{K}]' if turned else f'N:{n}]'), f'bf16[M:{m}, N:{n}]'
    name, bias, f = f'l{width}{"t" * turned}{"r" * ragged}', f'f32[N:{n}]', f'f32[M:{m}, N:{n}]'
    kernel = (f'kernel @{name}(%0 : {a}, %1 : {b}, %2 : {bias}) {{family = "contract", variant = "wgmma", '
              f'tile = {cut}, chunks = [132], threads = [384], shared = [{shared}], apart = [0, 1, 2, 3, 4]}} {{\n'
              f'  %3 = dot[K] %0, %1 : {f}\n  %4 = add %3, %2 : {f}\n  %5 = cast %4 : {y}\n  %6 = tanh %4 : {f}\n'
              f'  %7 = cast %6 : {y}\n  return %5, %7\n}}\n')
    return name, kernel, (a, b, bias, y, y), 3


def module(products):
    lines, body, v = ['shardc-ir 1', 'model T', 'after select', TARGET], [], 0
    for name, _, types, n in products:
        lines += [f'{"output" if i >= n else "input"} @{name}{i} : {t}' for i, t in enumerate(types)]
        body += [f'  %{v + i} = load @{name}{i} : {t}' for i, t in enumerate(types[:n])]
        args, results = (', '.join(f'%{v + i}' for i in some) for some in (range(n), range(n, len(types))))
        body += [f'  {results} = kernel @{name}, {args} : {", ".join(types[n:])}']
        body += [f'  store @{name}{i}, %{v + i}' for i in range(n, len(types))]
        v += len(types)
    return '\n'.join(lines + [''] + [kernel for _, kernel, _, _ in products] + ['entry @step {'] + body + ['}', ''])


def branches(name):
    text = open(f'{folder}/kept/k_{name}.ptx').read()
    width = re.match(r'w(\d+)', name)[1]
    if set(re.findall(r'wgmma\.mma_async\.\S*?m64n(\d+)k16', text)) != {width}: sys.exit(f'{name}: other widths')
    return len(re.findall(r'@!?%p\d+ bra', text))


def brought(width, elements, results):
    """As `left`, with arguments that come by bulk copies: kept values, and residuals."""
    rooms = -(-width // 64) * elements + max(results - elements, 0)
    n, m, (cut, shared) = 4 * width - 8, ROWS - 8, tile(width, True, 1, rooms, 64)
    a, b, y, f = f'bf16[M:{m}, K:{K}]', f'bf16[N:{n}, K:{K}]', f'bf16[M:{m}, N:{n}]', f'f32[M:{m}, N:{n}]'
    name, kept, other = f'e{width}x{elements}{results}', f'%2 : {y}', f', %3 : {y}' * (elements - 1)
    kernel = (f'kernel @{name}(%0 : {a}, %1 : {b}, {kept}{other}) {{family = "contract", variant = "wgmma", '
              f'tile = {cut}, chunks = [132], threads = [384], shared = [{shared}]}} {{\n'
              f'  %4 = dot[K] %0, %1 : {f}\n  %5 = cast %2 : {f}\n  %6 = cast %{1 + elements} : {f}\n'
              f'  %7 = tanh %5 : {f}\n  %8 = mul %7, %4 : {f}\n  %9 = add %8, %6 : {f}\n  %10 = cast %9 : {y}\n'
              f'  %11 = mul %4, %6 : {f}\n  %12 = cast %11 : {y}\n  return %10{", %12" * (results - 1)}\n}}\n')
    return name, kernel, (a, b, *[y] * (elements + results)), 2 + elements


try:
    widths = [*range(128, 225, 8), 256]
    products = [product(w, t, r) for w in widths for t in (False, True) for r in (False, True) if not r or w in RAGGED]
    products += [product(w, t, True, 1) for w in RAGGED for t in (False, True)]
    products += [brought(*x) for x in ((256, 1, 1), (256, 1, 2), (200, 1, 1), (192, 2, 2), (136, 2, 1))]
    products += [left(w, t, r) for w, t, r in zip(RAGGED, (0, 1, 0, 1, 0), (0, 1, 1, 0, 1))]
    open(f'{folder}/m.ir', 'w').write(module(products))
    compiled([shardc, 'compile', 'm.ir', '--keep', 'kept', '-o', 'exe'], folder)
    for turned in '', 't':
        base = branches(f'w256{turned}')
        have = {w: branches(f'w{w}{turned}') - base for w in widths}
        wrong = {w: n for w, n in have.items() if n != 2 * (w % 32 > 0)}
        if wrong: sys.exit(f'branches more than {base} of 256 columns{", turned" * (turned == "t")}: {wrong}')
    for name in [name for name, *_ in products if name.endswith('b')]:
        text = open(f'{folder}/kept/k_{name}.ptx').read()
        if 'cp.async.cg' in text or 'bar.arrive' in text or text.count('cp.async.bulk.tensor') != 1 + (
                1 if 't' in name else -(-int(re.match(r'w(\d+)', name)[1]) // 64)):
            sys.exit(f'{name}: other copies than one for an operand or a panel')
    for name in [name for name, *_ in products if name[0] == 'l']:
        text, panels = open(f'{folder}/kept/k_{name}.ptx').read(), -(-int(re.match(r'l(\d+)', name)[1]) // 64)
        if 'st.global' in text or 'st.shared' in text or (text.count('stmatrix'), text.count('tile.bulk_group')) != (
                8 * panels, 2 * panels):
            sys.exit(f'{name}: sums pass through shared memory, or other copies than one for a panel of a result')
    for name in [name for name, *_ in products if name[0] == 'e']:
        text, (width, elements, results) = open(f'{folder}/kept/k_{name}.ptx').read(), map(
            int, re.match(r'e(\d+)x(.)(.)', name).groups())
        panels = -(-width // 64)
        counts = [text.count(x) for x in ('ldmatrix', 'stmatrix', 'tile.bulk_group', 'cp.async.bulk.tensor')]
        if re.search(r'\b(ld|st)\.(global|shared)', text) or counts != [
                4 * panels * elements, 4 * panels * results, panels * results, 2 + panels * (elements + results)]:
            sys.exit(f'{name}: elements are loaded otherwise, or by other copies than one for a panel: {counts}')
    print(f'{len(products)} products, {branches("w256")} branches of 256 columns; ptxas: {shutil.which("ptxas")}')
finally:
    shutil.rmtree(folder)
