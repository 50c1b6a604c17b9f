"""Models compiled for a GPU, trained on the stand-in: losses are those of the target for processors; graphs, resuming,
evaluation, executables for several targets, ranks over NCCL.

    python3 train.py SHARDC [CASE ..]
"""
import json, os, random, shutil, struct, subprocess, sys, tempfile, time

SHARDC = os.path.abspath(sys.argv[1])
HERE = os.path.dirname(os.path.abspath(__file__))
EMULATE = os.path.join(os.path.dirname(SHARDC), 'lib', 'shardc', 'emulate')
STANDIN = {'SHARDC_LIBCUDA': f'{EMULATE}/libcuda.so.1', 'SHARDC_LIBNCCL': f'{EMULATE}/libnccl.so.2'}
D = tempfile.mkdtemp(prefix='gpu train ')
rng = random.Random(5)


def run(*command, env=None, expect=0, says=''):
    e = {**os.environ, 'NO_COLOR': '1', 'SHARDC_PATH': os.path.join(HERE, '..', '..', 'examples'), **(env or {})}
    p = subprocess.run(list(map(str, command)), cwd=D, capture_output=True, timeout=300, env=e, encoding='latin1')
    if p.returncode != expect or says not in p.stdout + p.stderr:
        sys.exit(f'{" ".join(map(str, command))}\n  exit {p.returncode}, expected {expect} and `{says}`\n{p.stdout}\n{p.stderr}')
    return p.stdout + p.stderr


def check(ok, what):
    if not ok: sys.exit('failed: ' + what)


def npy(name, type_, shape, values):
    head = f"{{'descr': '{type_}', 'fortran_order': False, 'shape': {shape}, }}"
    head += ' ' * (-(len(head) + 11) % 64) + '\n'
    form = {'<f4': 'f', '<i4': 'i'}[type_]
    open(os.path.join(D, name), 'wb').write(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(head)) + head.encode()
                                            + struct.pack(f'<{len(values)}{form}', *values))


def metrics(run_):
    return [json.loads(x) for x in open(os.path.join(D, run_, 'metrics.jsonl'))]


def losses(run_): return [(x['step'], x['loss'], x.get('valid_loss')) for x in metrics(run_)]


def weights(run_):
    newest = sorted(x for x in os.listdir(os.path.join(D, run_)) if x.startswith('step-'))[-1]
    return open(os.path.join(D, run_, newest, 'rank-00000.safetensors'), 'rb').read()


def close(a, b, most):
    for x, y in zip(metrics(a), metrics(b), strict=True):
        check(abs(x['loss'] - y['loss']) <= most, f'{a} and {b}: step {x["step"]}: {x["loss"]} and {y["loss"]}')


def case_linear():
    x = [rng.gauss(0, 1) for _ in range(640 * 16)]
    w = [rng.gauss(0, 1) for _ in range(16 * 8)]
    y = [sum(x[i * 16 + k] * w[k * 8 + o] for k in range(16)) for i in range(640) for o in range(8)]
    npy('x.npy', '<f4', (640, 16), x), npy('y.npy', '<f4', (640, 8), y)
    model = os.path.join(HERE, 'linear.shard')
    run(SHARDC, 'compile', model, '--target', 'x86,sm_80,sm_90', '-o', 'linear', says='linear (sm_90)')
    check('cuda' not in run('ldd', './linear'), 'nothing of CUDA is linked')
    run('./linear', 'train', '--out', 'cpu', says='worker')
    for out, args, env in (('gpu', [], {}), ('late', [], {'SHARDC_EMULATE_LATE': '1', 'SHARDC_EMULATE_CHECK': '1'}),
                           ('no graph', ['--no-graph'], {}), ('order', [], {'SHARDC_EMULATE_SEED': '3', 'SHARDC_EMULATE_SM': '86'})):
        run('./linear', 'train', '--out', out, *args, env={**STANDIN, **env}, says='shardc stand-in 0')
        close('cpu', out, 1e-3)
        check(losses(out) == losses('gpu') and weights(out) == weights('gpu'), f'the same bits: {out}')
    check('target sm_80' in run('./linear', 'info', '--device', 'gpu') and 'x86_64_v3' in run('./linear', 'info'), 'info')
    run('./linear', 'train', '--out', 'none', '--device', 'gpu', expect=4, says='R1001')
    run('./linear', 'train', '--out', 'cpu2', '--device', 'cpu', env=STANDIN, says='worker')
    check(losses('cpu') == losses('cpu2'), '--device cpu')
    # what one device wrote, the other goes on with
    run('./linear', 'train', '--out', 'gpu', '--resume', '--steps', '30', says='resumed at step 20')
    run('./linear', 'train', '--out', 'cpu', '--resume', '--steps', '30', env=STANDIN, says='resumed at step 20')
    close('cpu', 'gpu', 1e-3)
    run(SHARDC, 'compile', model, '--target', 'x86,native', '-o', 'no', expect=2, says='one processor at most')
    run(SHARDC, 'compile', model, '--target', 'x86,sm_80', '--emit=c', expect=2, says='only executables')
    for out, args in (('nccl', []), ('local', ['--comm', 'local'])):
        run(SHARDC, 'run', model, '--plan', 'two', '--emulate', *args, '--', 'train', '--out', out, says='2 ranks')
        close('cpu2', out, 1e-3)
    run(SHARDC, 'run', model, '--comm', 'nccl', expect=2, says='is for GPUs')


cases = {k[5:]: v for k, v in list(globals().items()) if k.startswith('case_')}
for name in sys.argv[2:] or cases:
    start = time.time()
    cases[name]()
    print(f'{name}: good, {time.time() - start:.1f} s', flush=True)
shutil.rmtree(D)
