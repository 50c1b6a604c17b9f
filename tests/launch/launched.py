"""Shared by the tests of launching: a small model under plans of eight, four and two ranks for the stand-in GPU."""
import json, os, subprocess, sys, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'run'))
from common import EXAMPLES, MPI, check, run, text_file, workdir

SHARDC = os.path.abspath(sys.argv[1])
EMULATE = os.path.join(os.path.dirname(SHARDC), 'lib', 'shardc', 'emulate')
OTHERS = ('RANK', 'WORLD', 'LOCAL', 'OMPI', 'PMI', 'SLURM', 'SHARDC', 'MASTER', 'TORCHELASTIC', 'PET', 'JOB_COMPLETION')
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(OTHERS)}
CLEAN.update(MPI, NO_COLOR='1', SHARDC_PATH=EXAMPLES, SHARDC_LIBCUDA=f'{EMULATE}/libcuda.so.1',
             SHARDC_LIBNCCL=f'{EMULATE}/libnccl.so.2', SHARDC_EMULATE_DEVICES='8')
SAVE = 5
MODEL = '''use "gpt2"
variant Small of GPT2 { Pos = 8; Vocab = 257 pad 8; Embed = 16; Heads = 2; Layers = 2 }
train t for Small { size Seq = 8; batch 8; steps 6; data "text.txt" format = bytes; optim adamw lr = 1e-3
  save every = %d keep = 2 }
plan eight for Small { mesh dp = 4, tp = 2
 place Batch -> dp
 place Heads, Mlp, Vocab -> tp else Seq
 zero 1 }
plan four for Small { mesh dp = 2, tp = 2
 place Batch -> dp
 place Heads, Mlp, Vocab -> tp else Seq
 zero 1 }
plan two for Small { mesh dp = 2
 place Batch -> dp
 zero 3 }
''' % SAVE
PLANS = ['--plan', 'eight,four,two', '--target', 'sm_80']


def compiled(folder):
    open(f'{folder}/m.shard', 'w').write(MODEL)
    text_file(f'{folder}/text.txt')
    run(SHARDC, 'compile', 'm.shard', *PLANS, '-o', 'm', '-q', cwd=folder)


def script(folder, kind, *words, plans=PLANS):
    """What `shardc launch` writes, with two ranks on a node."""
    words = [*plans, '--nproc-per-node', '2', '-o', f'{kind}.sh', '--', *words]
    run(SHARDC, 'launch', kind, 'm.shard', *words, cwd=folder)
    return f'{folder}/{kind}.sh'


def losses(folder, out):
    try: return [json.loads(x)['loss'] for x in open(f'{folder}/{out}/metrics.jsonl') if x.endswith('\n')]
    except FileNotFoundError: return []


def unbroken(folder, steps, out='whole'):
    subprocess.run(['./m', '--nproc-per-node', '8', '--steps', str(steps), '--out', out, '--quiet'], cwd=folder,
                   env=CLEAN, check=True, stdout=subprocess.DEVNULL)
    return losses(folder, out)


def ranks_of(folder):
    """Processes of the executable in the folder that are ranks."""
    found, exe = [], os.path.realpath(f'{folder}/m')
    for p in filter(str.isdigit, os.listdir('/proc')):
        try:
            if os.readlink(f'/proc/{p}/exe') != exe: continue
            names = {v.split(b'=')[0] for v in open(f'/proc/{p}/environ', 'rb').read().split(b'\0')}
        except OSError: continue
        if names & {b'RANK', b'SLURM_PROCID', b'OMPI_COMM_WORLD_RANK'}: found.append(int(p))
    return found


def until(fine, what, seconds=240):
    end = time.time() + seconds
    while not (value := fine()):
        if time.time() > end: sys.exit(f'failed: waited for {what() if callable(what) else what}')
        time.sleep(0.05)
    return value
