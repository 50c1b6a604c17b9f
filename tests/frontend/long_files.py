"""Long files are checked in linear time, examples at once: long_files.py SHARDC EXAMPLES [LINES [SECONDS]]

Seven shapes of files of about LINES lines (100,000), each within SECONDS (1) of processor time. A file of half the
length takes at least a third of it (quadratic work would take a quarter), where it is long enough to measure. An
example takes at most a twentieth of SECONDS; one whose machines name their memory, so that plans are made to be judged,
at most SECONDS."""
import os, resource, subprocess, sys, tempfile

SHARDC, EXAMPLES = sys.argv[1:3]
LINES, SECONDS = int((sys.argv[3:] + [100000])[0]), float((sys.argv[4:] + [1])[0])
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


def seconds(path, status):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    r = subprocess.run([SHARDC, 'check', path], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if r.returncode != status: sys.exit(f'{path}: status {r.returncode}\n{r.stderr[:2000]}')
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def seconds_of(make, n, folder):
    path = f'{folder}/long.shard'
    open(path, 'w').write(make(n))
    return min(seconds(path, int(make in (mistakes, open_brackets))) for _ in range(2))


wrong = False
with tempfile.TemporaryDirectory() as folder:
    for make in (layers, body, params, dims, functions, mistakes, open_brackets):
        half, whole = seconds_of(make, LINES // 2, folder), seconds_of(make, LINES, folder)
        good = whole <= SECONDS and (whole < 0.2 or half > whole / 3)
        print(f'{make.__name__}: {make(LINES).count(chr(10))} lines {whole:.2f} s, half of them {half:.2f} s{"" if good else "  TOO SLOW"}')
        wrong |= not good
for name in sorted(f for f in os.listdir(EXAMPLES) if f.endswith('.shard')):
    took = min(seconds(f'{EXAMPLES}/{name}', 0) for _ in range(5))
    judged = 'memory =' in open(f'{EXAMPLES}/{name}').read()
    if took > SECONDS / (1 if judged else 20): print(f'{name}: {took:.3f} s  TOO SLOW'); wrong = True
sys.exit(wrong)
