"""Models compiled for a GPU, trained on the stand-in: losses are those of the target for processors; graphs, resuming,
evaluation, executables for several targets, ranks over NCCL. Without ptxas, which is slow: that its code is good is seen
where kernels are tested.

    python3 train.py SHARDC [CASE ..]
"""
import json, os, random, shutil, struct, subprocess, sys, tempfile, time

SHARDC = os.path.abspath(sys.argv[1])
HERE = os.path.dirname(os.path.abspath(__file__))
EMULATE = os.path.join(os.path.dirname(SHARDC), 'lib', 'shardc', 'emulate')
STANDIN = {'SHARDC_LIBCUDA': f'{EMULATE}/libcuda.so.1', 'SHARDC_LIBNCCL': f'{EMULATE}/libnccl.so.2'}
EXAMPLES = os.path.join(HERE, '..', '..', 'examples')
D = tempfile.mkdtemp(prefix='gpu train ')
rng = random.Random(5)


def run(*command, env=None, expect=0, says=''):
    e = {**os.environ, 'NO_COLOR': '1', 'PATH': '/usr/bin:/bin', 'SHARDC_PATH': EXAMPLES, **(env or {})}
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
    """The largest difference of their losses."""
    worst = 0
    for x, y in zip(metrics(a), metrics(b), strict=True):
        check(abs(x['loss'] - y['loss']) <= most, f'{a} and {b}: step {x["step"]}: {x["loss"]} and {y["loss"]}')
        worst = max(worst, abs(x['loss'] - y['loss']))
    return worst


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


def text():
    words = [''.join(rng.choice('etaoinshrdlu') for _ in range(rng.randint(2, 7))) for _ in range(60)]
    open(os.path.join(D, 'text.txt'), 'w').write(' '.join(rng.choice(words) for _ in range(4000)))


def compare(file, *args, most, steps, ranks=0):
    """The same model on a processor and on the stand-in."""
    text()
    run(SHARDC, 'compile', file, '--target', 'x86,sm_80', '-o', 'both', *args)
    go = [SHARDC, 'run', './both', '-n', ranks, '--'] if ranks else ['./both']
    data = ['--data', 'text.txt', '--valid', '5%', '--eval-batches', '1', '--steps', steps]
    for out in 'a', 'b': shutil.rmtree(os.path.join(D, out), ignore_errors=True)
    run(*go, 'train', *data, '--device', 'cpu', '--out', 'a')
    gpus = {**STANDIN, 'SHARDC_EMULATE_DEVICES': str(ranks or 1)}
    start = time.time()
    run(*go, 'train', *data, '--out', 'b', env=gpus, says='shardc stand-in')
    print(f'  losses differ by {close("a", "b", most):.1e} at most, {steps} steps took {time.time() - start:.1f} s')
    check(time.time() - start < 60 or steps > 20, f'{steps} steps took {time.time() - start:.0f} s')


SMALL = ['-D', 'Layers=2', '-D', 'Embed=64', '-D', 'Heads=2', '-D', 'Vocab=256', '-D', 'Pos=64']


def gpt2(plan):
    path = os.path.join(D, 'small.shard')
    open(path, 'w').write('use "gpt2"\ntrain small for GPT2 { size Seq = 32; batch 4; steps 20; seed 7; clip 1.0\n'
                          '  data "text.txt" format = bytes\n  optim adamw lr = 1e-3\n}\n'
                          f'plan p for GPT2 {{ {plan} }}\n')
    return [path, '--train', 'small', '--plan', 'p', *SMALL]


def case_gpt2():
    compare(*gpt2('precision f32'), most=1e-3, steps=20)
    data = ['--data', 'text.txt', '--valid', '5%', '--eval-batches', '1']
    shutil.copytree(os.path.join(D, 'b'), os.path.join(D, 'c'))
    run('./both', 'train', *data, '--out', 'b', '--resume', '--steps', '24', env=STANDIN)
    run('./both', 'train', *data, '--out', 'c', '--resume', '--steps', '24', '--no-graph', env={**STANDIN, 'SHARDC_EMULATE_LATE': '1'})
    check([x[:2] for x in losses('b')] == [x[:2] for x in losses('c')] and weights('b') == weights('c'), 'resumed to the same bits')
    # races, reads of what nobody wrote, late arrivals: none in any kernel of a step and of an evaluation
    run('./both', 'train', *data, '--out', 'd', '--steps', '2', env={**STANDIN, 'SHARDC_EMULATE_CHECK': '1', 'SHARDC_EMULATE_LATE': '1', 'SHARDC_EMULATE_SEED': '5'})
    check([x[:2] for x in losses('d')] == [x[:2] for x in losses('b')][:2], 'the same bits when everything is late')
    words = [run('./both', 'sample', '--out', 'b', '--prompt', 'the', '--tokens', '12', '--temperature', '0', *args, env=env)
             for args, env in (([], STANDIN), (['--cache', 'off'], STANDIN), (['--device', 'cpu'], {}))]
    check(words[0] == words[1] == words[2], f'the same sample: {words}')


def case_bf16(): compare(*gpt2('precision bf16'), most=2e-2, steps=20)


ONE = ['-D', 'Layers=1', '-D', 'Seq=32', '--set', 'train.batch=2']


def case_llama(): compare(os.path.join(EXAMPLES, 'tiny_llama.shard'), *ONE, most=1e-3, steps=20)
def case_bert(): compare(os.path.join(EXAMPLES, 'tiny_bert.shard'), *ONE, most=1e-3, steps=20)


def case_ranks():
    compare(os.path.join(EXAMPLES, 'tiny_ranks.shard'), '--plan', 'two', *ONE, '-D', 'Embed=48', '-D', 'Heads=2',
            most=1e-3, steps=5, ranks=2)


cases = {k[5:]: v for k, v in list(globals().items()) if k.startswith('case_')}
for name in sys.argv[2:] or cases:
    start = time.time()
    cases[name]()
    print(f'{name}: good, {time.time() - start:.1f} s', flush=True)
shutil.rmtree(D)
