"""The runtime on a GPU, without the compiler: toy_gpu.c on the stand-in. Learning, graphs, resuming, sampling, check
runs, traces, altered kernels, and everything that a driver may refuse.

    python3 toy_gpu.py TOY LIBCUDA
"""
import json, os, random, resource, shutil, subprocess, sys, tempfile

TOY, LIBCUDA = map(os.path.abspath, sys.argv[1:3])
D = tempfile.mkdtemp(prefix='toy gpu ')
rng = random.Random(3)
open(os.path.join(D, 'text.txt'), 'wb').write(bytes(rng.choice(b'etaoinshrdlu ') for _ in range(9000)))


def toy(*args, expect=0, says='', env=None):
    e = {**os.environ, 'NO_COLOR': '1', 'SHARDC_LIBCUDA': LIBCUDA, **(env or {})}
    p = subprocess.run([TOY, *args], cwd=D, capture_output=True, timeout=1200, env=e, encoding='latin1')
    if p.returncode != expect or says not in p.stdout + p.stderr:
        sys.exit(f'toy {" ".join(args)}\n  exit {p.returncode}, expected {expect} and `{says}`\n{p.stdout}\n{p.stderr}')
    return p.stdout + p.stderr


def train(*args, **kw): return toy('train', '--data', 'text.txt', *args, **kw)
def check(ok, what):
    if not ok: sys.exit('failed: ' + what)


def losses(run):
    return [(x['step'], x['loss'], x.get('valid_loss')) for x in map(json.loads,
                                                                     open(os.path.join(D, run, 'metrics.jsonl')))]


def tensors(run):
    newest = sorted(x for x in os.listdir(os.path.join(D, run)) if x.startswith('step-'))[-1]
    return open(os.path.join(D, run, newest, 'rank-00000.safetensors'), 'rb').read()


def kernel(name):
    """The code that the driver gets, from the executable's data."""
    text = open(TOY, 'rb').read()
    at = text.index(f'.visible .entry {name}_p0'.encode())
    start = text.rindex(b'.version', 0, at)
    return text[start:text.index(b'\0', at)].decode()


# ---- what works ----
out = train('--out', 'a', '--eval-every', '10', '--save-every', '10')
check('shardc stand-in 0 (sm_90, driver 12.4)' in out, 'the device is named')
check(losses('a')[-1][1] < losses('a')[0][1] / 4, 'the loss falls')
for run, args, env in (('b', ['--no-graph'], {}), ('c', [], {'SHARDC_EMULATE_LATE': '1'}),
                       ('d', [], {'SHARDC_EMULATE_CHECK': '1', 'SHARDC_EMULATE_SEED': '9'}),
                       ('e', [], {'SHARDC_DEBUG': 'launch'}), ('f', ['--check-memory'], {}), ('g', ['--profile'], {})):
    train('--out', run, '--eval-every', '10', *args, env=env)
    check(losses('a') == losses(run) and tensors('a') == tensors(run), f'the same bits: {args} {env}')
# bytes outside the view (832 bytes) are copied through the window (256), for checkpoints, samples, weights files
check(len(tensors('a')) > 2 * 1024, 'the checkpoint holds what is larger than the window')
account = os.path.join(D, 'account')
train('--out', 'y', '--save-every', '3', '--dump', 'y.st', env={'SHARDC_EMULATE_ACCOUNT': account})
toy('export', '--resume=y', '--out', 'yx', env={'SHARDC_EMULATE_ACCOUNT': account})
train('--out', 'z', '--init', 'yx', '--steps', '1', '--dump', 'z.st', env={'SHARDC_EMULATE_ACCOUNT': account})
check([line.split()[1:] for line in open(account)] == 3 * [['1088', '20736']], 'no more than was planned: '
      + open(account).read())
check(losses('z')[0][1] < losses('a')[0][1] / 4, 'it goes on from the weights file')
shutil.copytree(os.path.join(D, 'a'), os.path.join(D, 'r'))
shutil.rmtree(os.path.join(D, 'r', 'step-000020'))
train('--out', 'r', '--resume', '--eval-every', '10')
check(losses('a') == losses('r') and tensors('a') == tensors('r'), 'resumed to the same bits')
check('validation loss' in toy('eval', '--out', 'a', '--data', 'text.txt', '--valid', '10%'), 'eval')
check(toy('sample', '--out', 'a', '--prompt', 'the ', '--tokens', '20').startswith('the '), 'sample')
toy('export', '--resume=a', '--out', 'x', says='1 tensors')
check('step.learn' in train('--out', 'p', '--profile') and 'toy.shard:7' in train('--out', 'q', '--profile'), 'profile')
check('1280           1280' in train('--out', 'm', '--check-memory'), 'touched bytes')
train('--out', 't', '--trace', 't.json:2..3')
events = json.load(open(os.path.join(D, 't.json')))['traceEvents']
check(sum(e['name'] == 'step.learn' for e in events) == 4, 'two phases of two steps in the trace')
before = resource.getrusage(resource.RUSAGE_CHILDREN)
log = toy('sample', '--out', 'a', '--tokens', '1', env={'SHARDC_EMULATE_LOG': '1'})
after = resource.getrusage(resource.RUSAGE_CHILDREN)
# of a processor, which others may be using
spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
check('show_p0' in log, log)
print(f'{spent:.2f} s of a processor from the start to the end of the first launch')
check('libcuda' not in subprocess.run(['ldd', TOY], capture_output=True, text=True).stdout, 'nothing of CUDA is linked')
train('--out', 'h', '--device', 'gpu:1', env={'SHARDC_EMULATE_DEVICES': '2'}, says='shardc stand-in 1')

# ---- other kernels ----
os.mkdir(os.path.join(D, 'k'))
open(os.path.join(D, 'k', 'learn.ptx'), 'w').write(kernel('learn').replace('0f3D4CCCCD', '0f00000000'))
train('--out', 'k1', '--kernels', 'k')
check(losses('k1')[-1][1] > 4 * losses('a')[-1][1], 'an altered kernel learns nothing')
open(os.path.join(D, 'k', 'learn.ptx'), 'w').write('.version 7.0\n.target sm_80\nnonsense')
train('--out', 'k2', '--kernels', 'k', expect=1,
      says='R1006]: the driver refused the code of kernel step.learn (toy.shard:7)')

# ---- what goes wrong ----
none = {'SHARDC_LIBCUDA': '/nowhere/libcuda.so.1'}
train('--out', 'n', expect=4, says='R1001', env=none)
train('--out', 'n', expect=4, says='R1002]: the CUDA driver', env={'SHARDC_EMULATE_DEVICES': '0'})
train('--out', 'n', '--device', 'gpu:3', expect=4, says='R1002]: there is no GPU 3', env={})
train('--out', 'n', expect=4, says='R1003]: this executable is for sm_80, and GPU', env={'SHARDC_EMULATE_SM': '75'})
train('--out', 'n', expect=4, says='R1003]: a kernel needs 60000 bytes of shared memory',
      env={'SHARDC_EMULATE_SHARED': '49152'})
train('--out', 'n', expect=4,
      says='R1005]: this executable needs 0.02 MiB on the GPU, and 0.00 MiB of 0.01 MiB are free',
      env={'SHARDC_EMULATE_MEMORY': '10000', 'SHARDC_EMULATE_USED': '9000'})
train('--out', 'n', '--device', 'cpu', expect=2, says='R0103')
train('--out', 'n', '--device', 'gpu:x', expect=2, says='R0103')
train('--out', 'n', expect=4, says='R1004]: the driver refused the code of kernel init.elem1',
      env={'SHARDC_EMULATE_DRIVER': '10020'})
check('the code is PTX 7.0, which drivers for CUDA 11 read; this one is for CUDA 10.2' in
      train('--out', 'n', expect=4, says='R1004', env={'SHARDC_EMULATE_DRIVER': '10020'}), 'both versions')
for call, result, code, status, text in (
        ('cuInit', 34, 'R1001', 4, 'links with, no driver'), ('cuInit', 802, 'R1001', 4, 'fabric manager'),
                                         ('cuInit', 803, 'R1001', 4, 'reboot'),
        ('cuInit', 304, 'R1001', 4, '--gpus all'), ('cuInit', 999, 'R1001', 4, 'dmesg'),
                                         ('cuInit', 3, 'R1001', 4, 'does not start'),
        ('cuDevicePrimaryCtxRetain', 46, 'R1002', 4, 'for itself'),
                                         ('cuDevicePrimaryCtxRetain', 2, 'R1005', 4, 'nvidia-smi'),
        ('cuDevicePrimaryCtxRetain', 214, 'R1008', 1, 'ECC'), ('cuModuleLoadDataEx', 2, 'R1005', 4, 'init.elem1'),
        ('cuModuleLoadDataEx', 200, 'R1006', 1, 'init.elem1 (toy.shard:4)')):
    said = train('--out', 'n', expect=status, says=code, env={'SHARDC_EMULATE_FAIL': f'{call}={result}'})
    check(text in said, f'{call} {result}: {said}')
for folder in ('nowhere', D):
    train('--out', 'n', '--kernels', folder, expect=2, says='no file for any kernel of this executable')
check('stand-in GPU' in train('--out', 'v', expect=1,
                              says='R1007]: kernel step.learn (toy.shard:7) failed on the GPU: CUDA_ERROR_ILLEGAL_ADDRESS',
                              env={'TOY_FAULT': str(1 << 30)}), 'the stand-in tells the line')
check('phase 0: 1 CTAs of 1 threads, 60000 bytes' in train('--out', 'w', expect=1, says='MISALIGNED',
                                                           env={'TOY_FAULT': '2'}), 'the launch')
check(not os.path.exists(os.path.join(D, 'n')), 'no run directory without a device')
shutil.rmtree(D)
print('ok')
