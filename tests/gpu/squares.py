"""Norms of gradients that products sum, in whole programs.   squares.py SHARDC

A dump of bulk.shard for sm_90a is compiled as it is, where its gradients are too small for that, and with a fact
`squares` by which all products of weights sum the squares of their results. On the stand-in, also late, both programs
have the same losses and norms, apart from the order of sums. Both end at a norm that is infinite while the loss is not.
"""
import json, os, random, re, shutil, struct, subprocess, sys, tempfile

shardc = os.path.abspath(sys.argv[1])
here = os.path.dirname(os.path.abspath(__file__))
emulate = os.path.join(os.path.dirname(shardc), 'lib', 'shardc', 'emulate')
folder = tempfile.mkdtemp(prefix='shardc_')


def run(*command, fails=None, **env):
    e = {**os.environ, 'NO_COLOR': '1', 'SHARDC_LIBCUDA': f'{emulate}/libcuda.so.1', 'SHARDC_EMULATE_SM': '90',
         'SHARDC_EMULATE_SHARED': '232448', **env}
    p = subprocess.run(command, cwd=folder, capture_output=True, env=e, text=True)
    if fails and p.returncode and fails in p.stderr: return p.stderr
    if p.returncode or fails: sys.exit(f'{" ".join(command)}\n{p.stdout}\n{p.stderr}')
    return p.stdout


def npy(name, scale):
    values = [random.gauss(0, scale) for _ in range(152 * 4 * 136)]
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({152 * 4}, 136), }}"
    head += ' ' * (-(len(head) + 11) % 64) + '\n'
    open(f'{folder}/{name}', 'wb').write(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(head)) + head.encode()
                                         + struct.pack(f'<{len(values)}f', *values))


def programs():
    text = open(f'{here}/bulk.shard').read()
    open(f'{folder}/net.shard', 'w').write(text.replace('sgd lr = 1e-2\n  on_nan off', 'adamw lr = 1e-2\n  clip 1'))
    text = run(shardc, 'dump', 'net.shard', '--target', 'sm_90a', '--plan', 'half', '--after', 'sparse')
    for name, least in ('later', r'\g<0>'), ('summed', 'squares = 1'):
        text, n = re.subn(r'\bsquares = \d+', least, text)
        open(f'{folder}/{name}.ir', 'w').write(text)
        run(shardc, 'compile', f'{name}.ir', '--equal', 'off', '-o', name, '-q')
        after = run(shardc, 'opt', f'{name}.ir', '-p', 'fuse')
        products = re.findall(r'kernel @h\.forward\.bwd\.dot[^}]*\}[^}]*\}', after)
        sums = sum('sum[' in p for p in products)
        if n != 1 or sums != 2 * (name == 'summed'): sys.exit(f'{name}: {sums} products sum squares')


def steps(name, **env):
    run(f'./{name}', 'train', '--out', 'out', **env)
    lines = [json.loads(line) for line in open(f'{folder}/out/metrics.jsonl')]
    shutil.rmtree(f'{folder}/out')
    return [x[word] for x in lines for word in ('loss', 'grad_norm')]


try:
    random.seed(5)
    npy('x.npy', 1), npy('y.npy', 1), programs()
    want = steps('later')
    for env in {}, {'SHARDC_EMULATE_LATE': '1'}:
        have = steps('summed', **env)
        if any(abs(a / b - 1) > 1e-5 for a, b in zip(have, want, strict=True)): sys.exit(f'{have}, not {want}')
    print(f'losses and norms: {want}')
    npy('x.npy', 1e6), npy('y.npy', 1e16)
    said = [run(f'./{name}', 'train', '--out', f'{name}_out', fails='squares of gradients add up').split('R0601')[1]
            for name in ('later', 'summed')]
    if said[0] != said[1]: sys.exit(f'an infinite norm is told in two ways: {said}')
finally:
    shutil.rmtree(folder)
