"""Long files are checked in linear time and memory, examples at once: long_files.py SHARDC EXAMPLES [LINES]

Seven shapes of files of about LINES lines (100,000): of a quarter of the length each takes at least an eighth of the
processor's time (quadratic work would take a sixteenth), and a line takes at most 8 KiB. An example takes at most a
fifth of the time of the first shape; one whose plans are compiled to be judged, since a machine names its memory or a
line offloads layers of a stack or has a budget, at most eight times as much. Times are the least of some runs, and
only such of one run of this test are compared; a compiler with a sanitizer is not asked for its memory."""
import os, re, sys, tempfile

SHARDC, EXAMPLES = sys.argv[1:3]
LINES = int((sys.argv[3:] + [100000])[0])
SANITIZED = b'__asan_init' in open(SHARDC, 'rb').read()
TRIES, LINE = 6, 8 << 10
HEAD = 'use "std"\ndims { Batch; A = 8 }\n'


def layers(n):
    """Layers that use each other, and a model of the last ones."""
    out, count = [HEAD], n // 8
    for i in range(count):
        out.append(f'''layer L{i}(x: [*, A]) -> [*, A] with scale = 0.5 {{
  param w [A] ~ normal(0.02)  # weights of layer {i}
  param b [A] = 0  @nodecay

  y = x * w + b
  z = relu(y) * scale
  return x + z
}}''')
    out.append('model M {\n  input x [Batch, A] f32')
    out += [f'  sub s{i} = L{i}' for i in range(count - 20, count)]
    out.append('  loss mean[*](' + ' |> '.join(['x'] + [f's{i}' for i in range(count - 20, count)]) + ')\n}')
    return '\n'.join(out)


def body(n):
    """One model with very many statements."""
    return HEAD + 'model M {\n  input x [Batch, A] f32\n  param w [A] = 1\n  y = x * w\n' + \
        '\n'.join(f'  y{i} = y{i - 1 if i else ""} + {i}' for i in range(n - 6)) + f'\n  loss mean[*](y{n - 7})\n}}\n'


def params(n):
    """Very many parameters, each with its line of weights."""
    k = n // 3
    return HEAD + 'model M {\n  input x [Batch, A] f32\n' + '\n'.join(f'  param w{i} [A] = 1\n  x = x * w{i}'
                                                                      for i in range(k)) + \
        '\n  loss mean[*](x)\n}\nweights h for M {\n' + '\n'.join(f'  w{i} <- "w{i}"' for i in range(k)) + '\n}\n'


def dims(n):
    """Very many dims and constants, each from the one before."""
    k = n // 2
    return HEAD + 'dims {\n  D0 = 3\n' + '\n'.join(f'  D{i} = D{i - 1} + 1'
                                                   for i in range(1, k)) + '\n}\n' + 'const c0 = 1\n' + \
        '\n'.join(f'const c{i} = D{i} * 2 + 1' for i in range(1, k)) + '\n'


def functions(n):
    """Very many functions, each used once."""
    k = n // 2
    return HEAD + '\n'.join(f'fn f{i}(x) = x * {i} + 1'
                            for i in range(k)) + '\nmodel M {\n  input x [Batch, A] f32\n' + \
        '\n'.join(f'  x = f{i}(x)' for i in range(k)) + '\n  loss mean[*](x)\n}\n'


def mistakes(n):
    """Mistakes only: reading ends after twenty of them."""
    return HEAD + 'layer L(x: [*, A]) -> [*, A] {\n' + '\n'.join(f'  y{i} = x + q{i}'
                                                                 for i in range(n - 5)) + '\n  return x\n}\n'


def open_brackets(n):
    return HEAD + '\n'.join(f'const c{i} = (' for i in range(n - 2)) + '\n'


def used(path, status=0):
    """Processor time and memory of one check."""
    pid = os.fork()
    if pid == 0:
        nowhere = os.open('/dev/null', os.O_WRONLY)
        os.dup2(nowhere, 1), os.dup2(nowhere, 2)
        os.execv(SHARDC, [SHARDC, 'check', path])
    _, ended, r = os.wait4(pid, 0)
    if os.waitstatus_to_exitcode(ended) != status: sys.exit(f'{path}: status {ended}')
    return r.ru_utime + r.ru_stime, r.ru_maxrss << 10


def within(path, most, other, status=0):
    """The least times for `path` and for another file, measured until the first is at most `most` times the second."""
    a, b = used(path, status), used(other[0], other[1])
    for _ in range(TRIES):
        if a[0] <= most * b[0]: break
        a, b = min(a, used(path, status)), min(b, used(other[0], other[1]))
    return a[0] <= most * b[0], a, b


wrong = False
with tempfile.TemporaryDirectory() as folder:
    for make in (layers, body, params, dims, functions, mistakes, open_brackets):
        status, paths = int(make in (mistakes, open_brackets)), [f'{folder}/{make.__name__}{n}.shard' for n in (1, 4)]
        for path, n in zip(paths, (LINES // 4, LINES)): open(path, 'w').write(make(n))
        good, whole, quarter = within(paths[1], 8, (paths[0], status), status)
        line = (whole[1] - quarter[1]) / (LINES * 3 / 4)
        good &= SANITIZED or line <= LINE
        print(f'{make.__name__}: {whole[0] / quarter[0]:.1f} times as long as a quarter, {line:.0f} bytes a line'
              + '  WRONG' * (not good))
        wrong |= not good
    first = f'{folder}/layers4.shard', 0
    for name in sorted(f for f in os.listdir(EXAMPLES) if f.endswith('.shard')):
        judged = re.search(r'memory =|offload .* of .*\[|budget =', open(f'{EXAMPLES}/{name}').read())
        good, own, long = within(f'{EXAMPLES}/{name}', 8 if judged else 0.2, first)
        if not good: print(f'{name}: {own[0] / long[0]:.2f} times the time of {LINES} lines  WRONG'); wrong = True
sys.exit(wrong)
