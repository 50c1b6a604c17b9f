"""Products by wgmma whose operands come by bulk tensor copies, in whole programs.   bulk.py SHARDC

The products of bulk.shard are cut for wgmma in the dump after pass `select`: with operands that threads copy, with bulk
copies, and with bulk copies of results and of residuals as well (`tile`, GEMM_BY), on one multiprocessor, so that a CTA
takes several tiles. The generated C has the tensor maps, the PTX has no cp.async. On the stand-in these programs give
the same losses and the same weights, bit for bit, one kernel after the other, late and in random order; a program in
equal shares of three CTAs has bits of its own in all of these. Kernels that leave multiprocessors to messages give the
bits of as many CTAs on a smaller GPU.
"""
import os, re, shutil, subprocess, sys, tempfile, random
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'run'))
from common import npy

shardc = os.path.abspath(sys.argv[1])
here = os.path.dirname(os.path.abspath(__file__))
emulate = os.path.join(os.path.dirname(shardc), 'lib', 'shardc', 'emulate')
folder = tempfile.mkdtemp(prefix='shardc_')
WIDTH, STAGES, OUT, LEFT = 136, 4, 8 * 8 * 136 * 4, 8 * 3 * 2048


def run(*command, fails=None, **env):
    e = {**os.environ, 'NO_COLOR': '1', 'PATH': '/usr/bin:/bin', 'SHARDC_LIBCUDA': f'{emulate}/libcuda.so.1',
         'SHARDC_EMULATE_SM': '90', 'SHARDC_EMULATE_SHARED': '232448', **env}
    p = subprocess.run([str(x) for x in command], cwd=folder, capture_output=True, env=e, encoding='latin1')
    if fails and fails in p.stderr: return p.stderr
    if p.returncode or fails: sys.exit(f'{" ".join(command)}\n{p.stdout}\n{p.stderr}')
    return p.stdout


def recut(text, by, ctas=1, spare=0):
    """The dump with all products of layers cut for wgmma; several CTAs have equal shares."""
    def cut(m):
        a, b, lanes = m[2].split(', ')[-3:]
        signals = 64 * (by > 1) + 64 * (by == 3 and '%2 :' in m[1])  # something is read for each element
        stage = 128 * (128 + (-(-WIDTH // 16) * 16 if b == '3' else -(-WIDTH // 64) * 64))
        shared = STAGES * stage + (LEFT if by == 3 else OUT) + signals + 64 * (ctas > 1)
        tile = f'128, {WIDTH}, 64, 64, {WIDTH}, {STAGES}, {65536 if ctas > 1 else 1}, {by}, {a}, {b}, {lanes}'
        words = f'variant = "wgmma", tile = [{tile}], chunks = [{ctas}], threads = [384], shared = [{shared}]'
        if ctas > 1: words += f', workspace = {ctas * 128 * WIDTH * 4}'
        if spare: words += f', spare = {spare}'
        return m[1] + words + m[3] + m[4]
    text = re.sub(r'multiprocessors = \d+', f'multiprocessors = {ctas + spare}', text)
    text, n = re.subn(r'(kernel @h\.[^\n]*family = "contract", )variant = "(?:wg)?mma", tile = \[([^]]*)\], '
                      r'chunks = \[\d+\], threads = \[\d+\], shared = \[\d+\]'
                      r'([^\n]*\n(?:(?!\}\n)[^\n]*\n)*?)([^\n]*= dot\[[^\n]*)',
                      cut, text)
    if n != 8: sys.exit(f'{n} products of layers')
    return text


def draw(name):
    values = [random.Random(7).gauss(0, 1)] + [random.gauss(0, 1) for _ in range(152 * 4 * 136 - 1)]
    npy(f'{folder}/{name}', '<f4', (152 * 4, 136), values)


def weights(out):
    newest = sorted(x for x in os.listdir(f'{folder}/{out}') if x.startswith('step-'))[-1]
    return open(f'{folder}/{out}/{newest}/rank-00000.safetensors', 'rb').read()


def losses(out): return re.findall(r'"loss": ?([^,]*)', open(f'{folder}/{out}/metrics.jsonl').read())


try:
    random.seed(5)
    draw('x.npy'), draw('y.npy')
    text = run(shardc, 'dump', f'{here}/bulk.shard', '--target', 'sm_90a', '--plan', 'half', '--after', 'select')
    for by, ctas, name, spare in ((1, 1, 'threads', 0), (2, 1, 'bulk', 0), (3, 1, 'leave', 0), (1, 3, 'shares', 0),
                                  (3, 1, 'spare', 4), (1, 3, 'spare_shares', 4)):
        open(f'{folder}/{name}.ir', 'w').write(recut(text, by, ctas, spare))
        run(shardc, 'compile', f'{name}.ir', '--equal', 'off', '--keep', f'kept_{name}', '-o', name, '-q')
        run(f'./{name}', 'train', '--out', f'{name}_out')
    if 'made.channels = 4' not in run('./spare', 'info') or 'made.channels' in run('./leave', 'info'):
        sys.exit('the executable does not know how many CTAs of messages its kernels have room for')
    left = [x for x in os.listdir(f'{folder}/kept_leave') if x.endswith('.ptx') and
            'bulk_group' in open(f'{folder}/kept_leave/{x}').read()]
    brought = [x for x in left if 'ldmatrix' in open(f'{folder}/kept_leave/{x}').read()]
    if len(left) != 8 or len(brought) != 4: sys.exit(f'results leave from {left}, elements come to {brought}')
    for file in os.listdir(f'{folder}/kept_bulk'):
        if not re.match(r'k_h_.*dot\d\w*\.ptx$', file): continue
        ptx = open(f'{folder}/kept_bulk/{file}').read()
        if 'cp.async.bulk.tensor' not in ptx or 'cp.async.cg' in ptx: sys.exit(f'{file}: its copies are others')
    modes = {'one by one': (['--no-graph'], {}), 'late': ([], {'SHARDC_EMULATE_LATE': '1'}),
             'random': ([], {'SHARDC_EMULATE_CHECK': '1', 'SHARDC_EMULATE_SEED': '3'})}
    for name, (words, env) in modes.items():
        for way in 'bulk', 'leave', 'spare':
            shutil.rmtree(f'{folder}/{way}_out'), run(f'./{way}', 'train', '--out', f'{way}_out', *words, **env)
            if losses(f'{way}_out') != losses('threads_out') or weights(f'{way}_out') != weights('threads_out'):
                sys.exit(f'{name}: {losses(f"{way}_out")} by bulk copies ({way}), {losses("threads_out")} by threads')
    # shares add in another order than one CTA does, and in the same order however CTAs run
    first = losses('shares_out'), weights('shares_out')
    if first[1] == weights('threads_out') or any(abs(float(a) / float(b) - 1) > 1e-3 for a, b in
                                                 zip(first[0], losses('threads_out'), strict=True)):
        sys.exit(f'{first[0]} by shares, {losses("threads_out")} by threads')
    for name, (words, env) in modes.items():
        shutil.rmtree(f'{folder}/shares_out'), run('./shares', 'train', '--out', 'shares_out', *words, **env)
        if first != (losses('shares_out'), weights('shares_out')): sys.exit(f'{name}: other bits by shares')
    # of seven multiprocessors four are left to messages: the bits are those of three
    if first != (losses('spare_shares_out'), weights('spare_shares_out')): sys.exit('other bits by fewer CTAs')
    # a driver before CUDA 12 has no tensor maps: said at the start, not as a mistake of shardc
    old = open(f'{emulate}/libcuda.so.1', 'rb').read()
    open(f'{folder}/old.so', 'wb').write(old.replace(b'\0cuTensorMapEncodeTiled\0', b'\0cuTensorMapEncodeNever\0'))
    said = run('./bulk', 'train', '--out', 'none', fails='R1004]: the CUDA driver', SHARDC_LIBCUDA=f'{folder}/old.so')
    if 'has no cuTensorMapEncodeTiled' not in said or 'CUDA 12.0 or newer' not in said: sys.exit(said)
    run('./threads', 'train', '--out', 'old_out', SHARDC_LIBCUDA=f'{folder}/old.so')
    # the stand-in has the shared memory that all GPUs of sm_90a have
    run(shardc, 'run', f'{here}/../../examples/tiny.shard', '--target', 'sm_90a', '--emulate', '--equal', 'off', '-q',
        '--set', 'plan.precision=bf16', '-D', 'Layers=1', '-D', 'Heads=2', '-D', 'Vocab=256', '--set', 'train.batch=2',
        '--', 'train', '--data', f'{here}/bulk.py', '--steps', '0', '--out', 'fits', SHARDC_EMULATE_SHARED='',
        SHARDC_LIBCUDA='')
    run(shardc, 'run', './threads', '--emulate', '--', 'train', '--out', 'given_out', SHARDC_EMULATE_SHARED='',
        SHARDC_LIBCUDA='')
    print(f'losses {", ".join(losses("bulk_out"))}: the same bits')
finally:
    shutil.rmtree(folder)
