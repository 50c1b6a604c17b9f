"""Models compiled for a GPU, trained on the stand-in: losses equal those of the target for processors; graphs,
resuming, evaluation, executables for several targets, ranks over NCCL. Runs without ptxas, which is slow: the kernel
tests check its code.

    python3 train.py SHARDC [CASE ..]
"""
import json, os, random, re, resource, shutil, struct, subprocess, sys, tempfile, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'run'))
from common import check, npy

SHARDC = os.path.abspath(sys.argv[1])
HERE = os.path.dirname(os.path.abspath(__file__))
EMULATE = os.path.join(os.path.dirname(SHARDC), 'lib', 'shardc', 'emulate')
STANDIN = {'SHARDC_LIBCUDA': f'{EMULATE}/libcuda.so.1', 'SHARDC_LIBNCCL': f'{EMULATE}/libnccl.so.2'}
EXAMPLES = os.path.join(HERE, '..', '..', 'examples')
D = tempfile.mkdtemp(prefix='gpu train ')
rng = random.Random(5)


def run(*command, env=None, expect=0, says=''):
    e = {**os.environ, 'NO_COLOR': '1', 'PATH': '/usr/bin:/bin', 'SHARDC_PATH': EXAMPLES, **(env or {})}
    p = subprocess.run(list(map(str, command)), cwd=D, capture_output=True, timeout=1200, env=e, encoding='latin1')
    if p.returncode != expect or says not in p.stdout + p.stderr:
        sys.exit(f'{" ".join(map(str, command))}\n  exit {p.returncode}, expected {expect} and `{says}`\n{p.stdout}\n{p.stderr}')
    return p.stdout + p.stderr


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
    npy(f'{D}/x.npy', '<f4', (640, 16), x), npy(f'{D}/y.npy', '<f4', (640, 8), y)
    model = os.path.join(HERE, 'linear.shard')
    run(SHARDC, 'compile', model, '--target', 'x86,sm_80,sm_90', '-o', 'linear', says='linear (sm_90)')
    check('cuda' not in run('ldd', './linear'), 'nothing of CUDA is linked')
    run('./linear', 'train', '--out', 'cpu', says='worker')
    for out, args, env in (('gpu', [], {}), ('late', [], {'SHARDC_EMULATE_LATE': '1', 'SHARDC_EMULATE_CHECK': '1'}),
                           ('no graph', ['--no-graph'], {}), ('order', [],
                                                              {'SHARDC_EMULATE_SEED': '3', 'SHARDC_EMULATE_SM': '86'})):
        run('./linear', 'train', '--out', out, *args, env={**STANDIN, **env}, says='shardc stand-in 0')
        close('cpu', out, 1e-3)
        check(losses(out) == losses('gpu') and weights(out) == weights('gpu'), f'the same bits: {out}')
    check('target sm_80' in run('./linear', 'info', '--device', 'gpu') and 'x86_64_v3' in run('./linear', 'info'),
          'info')
    run('./linear', 'train', '--out', 'none', '--device', 'gpu', expect=4, says='R1001')
    run('./linear', 'train', '--out', 'cpu2', '--device', 'cpu', env=STANDIN, says='worker')
    check(losses('cpu') == losses('cpu2'), '--device cpu')
    # a GPU that cannot run it is reported, and the processor is used, unless the user asked for the GPU
    for env, text in (({'SHARDC_EMULATE_SM': '75'},
                       'the GPU is not used: shardc stand-in 0 has compute capability 7.5, this executable is for sm_80'),
                      ({'SHARDC_EMULATE_FAIL': 'cuInit=803'}, 'the GPU is not used: the CUDA driver')):
        run('./linear', 'train', '--out', 'else', '--steps', '1', env={**STANDIN, **env}, says=text)
        run('./linear', 'train', '--out', 'none', '--device', 'gpu', env={**STANDIN, **env}, expect=4,
            says='error[R100')
        shutil.rmtree(os.path.join(D, 'else'))
    check('note' not in run('./linear', 'train', '--out', 'else', '--steps', '20', '--device', 'gpu:1',
                            env={**STANDIN, 'SHARDC_EMULATE_DEVICES': '2'}, says='shardc stand-in 1'), 'gpu:1')
    # either device resumes from the other's checkpoints
    run('./linear', 'train', '--out', 'gpu', '--resume', '--steps', '30', says='resumed at step 20')
    run('./linear', 'train', '--out', 'cpu', '--resume', '--steps', '30', env=STANDIN, says='resumed at step 20')
    close('cpu', 'gpu', 1e-3)
    run(SHARDC, 'compile', model, '--target', 'x86,native', '-o', 'no', expect=2, says='at most one CPU target')
    run(SHARDC, 'compile', model, '--target', 'x86,sm_80', '--emit=c', expect=2, says='only executables')
    for out, args in (('nccl', []), ('local', ['--comm', 'local'])):
        run(SHARDC, 'run', model, '--plan', 'two', '--emulate', *args, '--', 'train', '--out', out, says='2 ranks')
        close('cpu2', out, 1e-3)
    run(SHARDC, 'run', model, '--comm', 'nccl', expect=2, says='is for GPUs')


def text():
    words = [''.join(rng.choice('etaoinshrdlu') for _ in range(rng.randint(2, 7))) for _ in range(60)]
    open(os.path.join(D, 'text.txt'), 'w').write(' '.join(rng.choice(words) for _ in range(4000)))


def worked():
    """Seconds that commands have kept a core busy: neighbours do not count."""
    r = resource.getrusage(resource.RUSAGE_CHILDREN)
    return r.ru_utime + r.ru_stime


def compare(file, *args, most, steps, ranks=0, apart=False):
    """Compares a model on a processor and on the stand-in. `apart`: the processor has an executable of its own, whose
    kernels are not optimized."""
    text()
    run(SHARDC, 'compile', file, '--target', 'sm_80' if apart else 'x86,sm_80', '-o', 'both', *args)
    if apart: run(SHARDC, 'compile', file, '--target', 'x86', '--quick', '-o', 'near', *args)
    go = [SHARDC, 'run', './both', '-n', ranks, '--'] if ranks else ['./both']
    data = ['--data', 'text.txt', '--valid', '5%', '--eval-batches', '1', '--steps', steps]
    for out in 'a', 'b': shutil.rmtree(os.path.join(D, out), ignore_errors=True)
    run(*(['./near'] if apart else go), 'train', *data, '--device', 'cpu', '--out', 'a')
    gpus = {**STANDIN, 'SHARDC_EMULATE_DEVICES': str(ranks or 1)}
    before = worked()
    run(*go, 'train', *data, '--out', 'b', env=gpus, says='shardc stand-in')
    took = worked() - before
    print(f'  losses differ by {close("a", "b", most):.1e} at most, {steps} steps took {took:.1f} s of a core')


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
    run('./both', 'train', *data, '--out', 'c', '--resume', '--steps', '24', '--no-graph',
        env={**STANDIN, 'SHARDC_EMULATE_LATE': '1'})
    check([x[:2] for x in losses('b')] == [x[:2] for x in losses('c')] and weights('b') == weights('c'),
          'resumed to the same bits')
    # no kernel of a step or an evaluation has races, reads of unwritten memory, or late arrivals
    run('./both', 'train', *data, '--out', 'd', '--steps', '2',
        env={**STANDIN, 'SHARDC_EMULATE_CHECK': '1', 'SHARDC_EMULATE_LATE': '1', 'SHARDC_EMULATE_SEED': '5'})
    check([x[:2] for x in losses('d')] == [x[:2] for x in losses('b')][:2], 'the same bits when everything is late')
    words = [run('./both', 'sample', '--out', 'b', '--prompt', 'the', '--tokens', '12', '--temperature', '0', *args,
                 env=env)
             for args, env in (([], STANDIN), (['--cache', 'off'], STANDIN), (['--device', 'cpu'], {}))]
    check(words[0] == words[1] == words[2], f'the same sample: {words}')


SPARSE = '''use "std"
dims { Batch, Seq; Key like Seq; Vocab = 256; Embed = 16; Heads = 2; Head = 8; Layers = 2 }
layout near [Heads, Seq, Key] = blocks(8) & (window(3) | global(1) | random(1, seed = 3))
layer Attn(x: [Batch, Seq, Embed]) -> [Batch, Seq, Embed] {
  sub norm = RMSNorm[Embed]
  sub query = Linear[Embed -> Heads, Head] with init = normal(0.3)
  sub key   = Linear[Embed -> Heads, Head] with init = normal(0.3)
  sub value = Linear[Embed -> Heads, Head] with init = normal(0.3)
  sub out   = Linear[Heads, Head -> Embed] with init = normal(0.3)
  n = norm(x)
  return x + out(attention[Seq -> Key; Head](query(n), key(n), value(n), mask = near & causal))
}
model M {
  input tokens, targets [Batch, Seq] of Vocab
  param word [Vocab, Embed] ~ normal(0.3)
  stack h [Layers] of Attn
  logits = dot[Embed](h(word[Vocab = tokens]), word)
  output logits
  loss cross_entropy[Vocab](logits, targets)
}
train t for M { size Seq = 64; batch 4; steps 4; data "text.txt" valid = 10%; optim adamw lr = 1e-2 }
'''


def case_caches():
    """Sampling under a layout: what caches do not hold yet is read by no kernel as it was found in memory."""
    open(os.path.join(D, 'caches.shard'), 'w').write(SPARSE)
    compare('caches.shard', most=1e-3, steps=4)
    args = ['sample', '--out', 'b', '--prompt', 'the', '--tokens', '20', '--temperature', '0']
    words = [run('./both', *args, *more, env=env)
             for more, env in (([], {**STANDIN, 'SHARDC_EMULATE_CHECK': '1'}), (['--cache', 'off'], STANDIN),
                               (['--device', 'cpu'], {}))]
    check(words[0] == words[1] == words[2], f'the same sample: {words}')


def case_bf16(): compare(*gpt2('precision bf16'), most=2e-2, steps=20, apart=True)


def case_shared():
    """Heads of 128: where a CTA may have 163 KiB of shared memory other variants of the same kernels run, with the same
    losses."""
    model = ['-D', 'Layers=1', '-D', 'Embed=128', '-D', 'Heads=1', '-D', 'Seq=128', '-D', 'Pos=128', '--set',
             'train.batch=1']
    text()
    run(SHARDC, 'compile', *gpt2('precision bf16'), *model, '--target', 'sm_80', '-o', 'wide')
    data = ['--data', 'text.txt', '--valid', '5%', '--eval-batches', '1', '--steps', '2', '--no-graph']
    for out, shared in (('less', 101376), ('more', 166912)):
        env = {**STANDIN, 'SHARDC_EMULATE_SHARED': str(shared), 'SHARDC_EMULATE_LOG': '1', 'SHARDC_EMULATE_CHECK': '1'}
        said = run('./wide', 'train', *data, '--out', out, env=env)
        launched = set(re.findall(r'\w*_attention\d+(?:_larger)?_p\d', said))
        check(launched and all(('_larger' in x) == (out == 'more') for x in launched), f'{shared}: {launched}')
    close('less', 'more', 1e-3)


def case_launches():
    """A step launches as many kernels as its forecast counts: each phase of a kernel is one."""
    text()
    model = gpt2('precision bf16; on box')
    open(model[0], 'a').write('machine box { node gpus = 1 arch = sm_80 memory = 40GB }\n')
    forecast = json.loads(run(SHARDC, 'plan', *model, '--json'))['forecast']
    run(SHARDC, 'compile', *model, '-o', 'counted')
    data = ['--data', 'text.txt', '--valid', '5%', '--eval-batches', '1', '--no-graph']
    said = [run('./counted', 'train', *data, '--out', f'steps {n}', '--steps', n,
                env={**STANDIN, 'SHARDC_EMULATE_LOG': '1'}) for n in (2, 3)]
    two, three = (re.findall(r'(\w+)_p(\d)\b', x) for x in said)
    check(len(three) - len(two) == forecast['launches'], f'{len(three) - len(two)} launches, forecast {forecast}')
    check(any(int(phase) for _, phase in two), 'no kernel of several phases')


def case_padded():
    """A vocabulary that a GPU keeps in its padded size; both devices read the other's checkpoint."""
    file, *rest = gpt2('precision bf16')
    compare(file, *rest, '-D', 'Vocab=251', most=2e-2, steps=6)
    check('[Vocab:256' in run(SHARDC, 'dump', file, *rest, '-D', 'Vocab=251', '--target', 'sm_80', '--after', 'pad'),
          'padded')
    data = ['--data', 'text.txt', '--valid', '5%', '--eval-batches', '1', '--resume', '--steps', '8']
    run('./both', 'train', *data, '--out', 'a', env=STANDIN, says='resumed at step 6')
    run('./both', 'train', *data, '--out', 'b', '--device', 'cpu', says='resumed at step 6')
    close('a', 'b', 2e-2)


def case_f16():
    """From 65536, where nothing overflows, and from a scale that the device halves, with graphs and without, resumed to
    the same bits."""
    compare(*gpt2('precision f16'), most=2e-2, steps=20, apart=True)
    compare(*gpt2('precision f16 init_scale = 1e8 growth_interval = 6'), most=2e-2, steps=20, apart=True)
    left = [[('skipped' in x, x['scale']) for x in metrics(out)] for out in 'ab']
    check(left[0] == left[1] and left[0][3][0] and not left[0][-1][0], f'the same steps are left out: {left}')
    data = ['--data', 'text.txt', '--valid', '5%', '--eval-batches', '1']
    run('./both', 'train', *data, '--out', 'f', '--steps', '7', env=STANDIN)
    run('./both', 'train', *data, '--out', 'f', '--resume', '--steps', '20', '--no-graph',
        env={**STANDIN, 'SHARDC_EMULATE_LATE': '1'})
    check([x[:2] for x in losses('b')] == [x[:2] for x in losses('f')] and weights('b') == weights('f'),
          'resumed to the same bits')
    run('./both', 'train', *data, '--out', 'g', '--steps', '2',
        env={**STANDIN, 'SHARDC_EMULATE_CHECK': '1', 'SHARDC_EMULATE_LATE': '1', 'SHARDC_EMULATE_SEED': '5'})
    check([x[:2] for x in losses('g')] == [x[:2] for x in losses('b')][:2], 'the same bits when everything is late')


def case_f16_mlp():
    x = [rng.gauss(0, 1) for _ in range(640 * 20)]
    npy(f'{D}/mlp.x.npy', '<f4', (640, 20), x), npy(f'{D}/mlp.y.npy', '<i4', (640,),
                                               [int(abs(x[20 * i]) * 9) % 5 for i in range(640)])
    model = os.path.join(HERE, '..', 'reference', 'mlp.shard')
    run(SHARDC, 'compile', model, '--target', 'x86', '-o', 'mlp_wide')
    run(SHARDC, 'compile', model, '--target', 'sm_80', '-o', 'mlp_half', '--set', 'plan.precision=f16')
    run('./mlp_wide', 'train', '--out', 'mlp_a')
    run('./mlp_half', 'train', '--out', 'mlp_b', env=STANDIN)
    print(f'  f16 on the stand-in is {close("mlp_a", "mlp_b", 2e-2):.1e} from f32 on a processor')


def case_tf32():
    """Products rounded on a GPU; a processor computes as in f32."""
    compare(*gpt2('precision tf32'), most=2e-2, steps=5, apart=True)
    run(SHARDC, 'compile', *gpt2('precision f32'), '--target', 'x86', '--quick', '-o', 'exact')
    run('./exact', 'train', '--data', 'text.txt', '--valid', '5%', '--eval-batches', '1', '--steps', '5', '--out', 'h')
    check(losses('h') == losses('a'), 'tf32 on a processor is f32')
    check(losses('a') != losses('b'), 'tf32 on a GPU rounds')


def case_start():
    """A real size: nothing of CUDA is linked, and the first kernel that is launched is one of init."""
    run(SHARDC, 'compile', os.path.join(EXAMPLES, 'gpt2.shard'), '--model', 'GPT2', '--set', 'train.batch=1', '--set',
        'plan.precision=bf16',
        '--target', 'sm_80', '-o', 'gpt2', says='124.4M parameters')
    check('cuda' not in run('ldd', './gpt2'), 'nothing of CUDA is linked')
    text()
    log = {**os.environ, **STANDIN, 'SHARDC_EMULATE_LOG': '1', 'SHARDC_EMULATE_MEMORY': str(32 << 30)}
    before = worked()
    p = subprocess.Popen(['./gpt2', 'train', '--data', 'text.txt', '--valid', '10%', '--format', 'bytes', '--out',
                          'large'], cwd=D, env=log, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    line = next((x for x in p.stderr if 'CTAs of' in x), '')
    p.kill(), p.communicate()
    check('k_init' in line, f'a kernel of init is the first: {line}')
    print(f'  {worked() - before:.2f} s of a processor from the start to the first launch')


ONE = ['-D', 'Layers=1', '-D', 'Seq=32', '--set', 'train.batch=2']


def case_weights():
    """Weights files have the logical size of a vocabulary that a GPU pads, and whole tensors where ranks hold parts:
    read by every plan, and written as a processor writes them."""
    reference = os.path.join(HERE, '..', 'reference')
    text = open(os.path.join(reference, 'hf_gpt2.shard')).read()
    open(os.path.join(D, 'weights.shard'), 'w').write(
        text + '\nplan one for Files { }\n'
        'plan tensor for Files { mesh t = 2\n place Mlp, Vocab -> t }\n'
        'plan zero for Files { mesh data = 2\n place Batch -> data\n zero 3 }\n')
    init = os.path.join(reference, 'hf_gpt2.safetensors')
    open(os.path.join(D, 'ids.bin'), 'wb').write(struct.pack('<600H', *(rng.randrange(67) for _ in range(600))))
    train = ['train', '--init', init, '--data', 'ids.bin', '--format', 'u16', '--steps', '2']
    for plan in 'one', 'tensor', 'zero':
        run(SHARDC, 'compile', 'weights.shard', '--model', 'Files', '--train', 't', '--plan', plan, '--target',
            'x86,sm_80', '-o', 'weigh')
        go = ['./weigh'] if plan == 'one' else [SHARDC, 'run', './weigh', '-n', '2', '--']
        gpus = {**STANDIN, 'SHARDC_EMULATE_DEVICES': '2'}
        for device, env in (('cpu', {}), ('gpu', gpus)):
            run(*go, 'export', '--init', init, '--out', f'{device} {plan}', '--device', device, env=env)
            run(*go, *train, '--device', device, '--out', f'{device} {plan} run', '--dump', f'{device}.st', env=env)
        files = [open(os.path.join(D, f'{x} {plan}', 'model.safetensors'), 'rb').read() for x in ('cpu', 'gpu')]
        check(files[0] == files[1] and b'"shape":[67,24]' in files[0].replace(b' ', b''),
              f'{plan}: exports have 67 rows')
        close(f'cpu {plan} run', f'gpu {plan} run', 1e-5)
        heads = [open(os.path.join(D, f'{x}.st'), 'rb').read()[8:].split(b'}}')[0] for x in ('cpu', 'gpu')]
        check(heads[0] == heads[1], f'{plan}: dumps have the same shapes')


def case_llama(): compare(os.path.join(EXAMPLES, 'tiny_llama.shard'), *ONE, most=1e-3, steps=20, apart=True)
def case_bert(): compare(os.path.join(EXAMPLES, 'tiny_bert.shard'), *ONE, most=1e-3, steps=20, apart=True)


def case_sparse():
    """A layout of blocks: kernels walk lists, with the losses of the target for processors; every check is on."""
    path, mask = os.path.join(D, 'sparse.shard'), 'causal & blocks(16) & (window(3) | global(1) | random(1, seed = 3))'
    model = open(os.path.join(EXAMPLES, 'tiny.shard')).read()
    check('mask = causal)' in model, 'tiny.shard is causal')
    open(path, 'w').write(model.replace('mask = causal)', f'mask = {mask})') + 'plan half for Tiny { precision bf16 }\n')
    size = ['-D', 'Layers=1', '-D', 'Embed=64', '-D', 'Heads=2', '-D', 'Seq=112', '--set', 'train.batch=2']
    compare(path, *size, '--plan', 'half', most=2e-2, steps=3, apart=True)
    run('./both', 'train', '--data', 'text.txt', '--out', 'sparse late', '--steps', '2',
        env={**STANDIN, 'SHARDC_EMULATE_CHECK': '1', 'SHARDC_EMULATE_LATE': '1', 'SHARDC_EMULATE_SEED': '5'})
    check([x[:2] for x in losses('sparse late')] == [x[:2] for x in losses('b')][:2],
          'the same bits when everything is late')


def case_ranks():
    compare(os.path.join(EXAMPLES, 'tiny_ranks.shard'), '--plan', 'two', *ONE, '-D', 'Embed=48', '-D', 'Heads=2',
            most=1e-3, steps=5, ranks=2)


cases = {k[5:]: v for k, v in list(globals().items()) if k.startswith('case_')}
for name in sys.argv[2:] or cases:
    start = time.time()
    cases[name]()
    print(f'{name}: good, {time.time() - start:.1f} s', flush=True)
shutil.rmtree(D)
