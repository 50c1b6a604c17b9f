"""Runs that die in the middle of the work of `offload`: python3 offload_kill.py SHARDC DIE_ON_HOST.so [KILLS [WHERE]]

A small GPT whose optimizer, gradients, parameters and saved inputs are in host memory, with and without `delay`, or the
optimizer, gradients and parameters of one of two layers, over two ranks on processors and on one GPU of the stand-in,
which executes copies late; on processors also over two stages, of which only the first has its layer on the host. A
rank kills itself half way through a copy between both memories, or when an update reaches a page of the states
(die_on_host.c): KILLS instants of each run from its first copy to its last, including first weights and checkpoints.
The run resumes from the files on disk with the losses, weights and states of the uninterrupted run, bit by bit. WHERE:
processor or gpu.
"""
import json, os, shutil, subprocess, sys
from common import EXAMPLES, check, preload, read, run, text_file, workdir

SHARDC, DIE = os.path.abspath(sys.argv[1]), preload(sys.argv[2])
KILLS, WHERE, folder = int((sys.argv[3:] + ['4'])[0]), (sys.argv[4:] + ['processor'])[0], workdir()
MODEL = '''use "gpt2"
variant Small of GPT2 { Pos = 16; Vocab = 256; Embed = 32; Heads = 4; Layers = 2 }
train t for Small {
  size  Seq = 16
  batch 4
  steps 7
  data  "text.txt" format = bytes
  optim adamw lr = 2e-3
  clip  1.0
  %s
}
machine box { node gpus = 1 arch = sm_80 memory = 40GiB; host memory = 1GiB cores = 2 }
plan processor for Small { %s }
plan gpu for Small { on box; %s }
'''
PLAN = '''mesh data = %d; place Batch -> data; zero 3 over data; micro 1; precision bf16
  offload optimizer, grads, params%s -> host; recompute h keep = input offload = host'''
STAGES = '''mesh pipe = 2; place Layers -> pipe; micro 1; precision bf16
  offload optimizer, grads, params%s -> host; recompute h.* keep = input offload = host'''
RANKS, EMULATE = (2, []) if WHERE == 'processor' else (1, ['--emulate'])
OPTIONS = ['--save-every', '2', '--threads', '1']


def train(out, expect=0, resume=(), **env):
    """One rank dies or none; `expect` None: whatever comes."""
    if EMULATE: env |= {'SHARDC_EMULATE_LATE': '1', 'SHARDC_EMULATE_ORDER': '3'}
    if env.get('DIE_ARENAS') and RANKS > 1: env |= {'DIE_RANK': '1', **env}
    p = subprocess.run([SHARDC, 'run', '-n', str(RANKS), *EMULATE, f'./{WHERE}', '--', 'train', '--out', out, *OPTIONS,
                        *resume], cwd=folder, capture_output=True, text=True, timeout=1200,
                       env=dict(os.environ, SHARDC_PATH=EXAMPLES, NO_COLOR='1', **env))
    check(expect is None or p.returncode == expect, f'{out}: exit {p.returncode}\n{p.stdout}{p.stderr}')
    return p.returncode, p.stderr


def came_to(out):
    rows = [r['loss'] for r in map(json.loads, open(f'{folder}/{out}/metrics.jsonl')) if 'loss' in r]
    last = f'{folder}/{out}/step-000007'  # weights and states as each rank has them
    return rows, [read(f'{last}/rank-0000{r}.safetensors') for r in range(RANKS)]


def note(): return int(read(f'{folder}/note')) if os.path.exists(f'{folder}/note') else None


def instant(k, copies):
    """The k-th of KILLS: copies and updates in turn, from the first copy to the last."""
    n = 1 + copies * k // KILLS
    return f'update:{n}:{997 * (2 * k + 1) // (2 * KILLS)}' if k % 2 else f'copy:{n}'


def kills(delay, of):
    stages = of.startswith(' of h.0')
    plan = STAGES % of if stages else PLAN % (RANKS, of)
    open(f'{folder}/m.shard', 'w').write(MODEL % (delay, plan, plan))
    run(SHARDC, 'compile', 'm.shard', '--plan', WHERE, '-o', WHERE, '-q', '--quick', cwd=folder)
    program = json.loads(run(f'./{WHERE}', 'info', '--json', cwd=folder)[0])
    arenas = ' '.join(str(program['arenas'][a]) for a in ('host_states', 'host_weights', 'host_work'))
    die = {'LD_PRELOAD': DIE, 'DIE_ARENAS': arenas, 'DIE_NOTE': f'{folder}/note', 'ASAN_OPTIONS':
           'verify_asan_link_order=0:detect_leaks=0', **({'DIE_RANK': '0'} if stages else {})}
    train('whole', **die)
    copies, want, died = note(), came_to('whole'), {'copy': 0, 'update': 0}
    check(copies and copies > 100, f'{copies} copies')
    for k in range(KILLS):
        at = instant(k, copies)
        os.remove(f'{folder}/note')
        status, said = train('out', None, **die, DIE_AT=at)
        died[at.split(':')[0]] += note() is not None
        told = f'rank {1 - stages}' in said or RANKS == 1
        check(note() is None or status != 0 and told, f'{at}: exit {status}: {said}')
        if note() is None: open(f'{folder}/note', 'w')
        train('out', resume=['--resume'] if os.path.isdir(f'{folder}/out') else [])
        got = came_to('out')
        check(got[0] == want[0], f'{delay}{of}, {at}: other losses after it went on: {got[0]}, {want[0]}')
        check(got[1] == want[1], f'{delay}{of}, {at}: other weights or states after it went on')
        shutil.rmtree(f'{folder}/out')
    shutil.rmtree(f'{folder}/whole')
    os.remove(f'{folder}/note')
    return copies, died


text_file(f'{folder}/text.txt')
KINDS = [('', ''), ('delay after = 2', ''), ('', ' of h[0..0], wte')] + [('', ' of h.0')] * (WHERE == 'processor')
for delay, of in KINDS:
    copies, died = kills(delay, of)
    check(all(2 * n > KILLS // 2 for n in died.values()), f'{died} of {KILLS}')
    print(f'{WHERE}, {delay or of.strip() or "no delay"}: of {KILLS} instants {died["copy"]} deaths in the {copies} '
          f'copies, {died["update"]} in updates; all went on to the same bits')
shutil.rmtree(folder)
