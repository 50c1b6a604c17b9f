"""Ranks that are killed: python3 kill.py SHARDC [KILLS]

A small GPT over data and tensor, ZeRO-3, as four processes; one of them is killed at a random instant, start and end
included: the others leave within 30 s and name it; the run goes on from its last checkpoint with the losses of the
unbroken run, to the bit. At the end it goes on under two ranks and under one, within rounding.
"""
import json, os, random, shutil, subprocess, sys, time
from common import EXAMPLES, check, run, text_file, workdir

SHARDC, KILLS, folder = os.path.abspath(sys.argv[1]), int((sys.argv + ['4'])[2]), workdir()
RANKS, STEPS = {'four': 4, 'two': 2, 'one': 1}, 120
MODEL = '''use "gpt2"
variant Small of GPT2 { Pos = 16; Vocab = 256; Embed = 32; Heads = 4; Layers = 2 }
train t for Small {
  size  Seq = 16
  batch 8
  steps 120
  data  "text.txt" format = bytes
  optim adamw lr = 2e-3
  clip  1.0
}
plan one for Small { micro 8 }
plan two for Small { mesh data = 2
 place Batch -> data
 zero 2 over data }
plan four for Small { mesh data = 2, tensor = 2
 micro 2
 place Batch -> data
 place Heads, Mlp, Vocab -> tensor else Seq
 zero 3 over data }
'''
OPTIONS = ['--steps', str(STEPS), '--save-every', '10', '--keep', '3', '--threads', '1']
rng = random.Random(23)


def start(out, job):
    e = {k: v for k, v in os.environ.items() if not k.startswith(('RANK', 'WORLD', 'LOCAL', 'OMPI', 'PMI', 'SLURM'))}
    return [subprocess.Popen(['./four', 'train', '--out', out, *OPTIONS], cwd=folder, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE,
                             env=dict(e, RANK=str(r), WORLD_SIZE='4', LOCAL_RANK=str(r), LOCAL_WORLD_SIZE='4',
                                      SHARDC_JOB=f'{os.getpid()} {job}', SHARDC_MEET='20', NO_COLOR='1'))
            for r in range(4)]


def whole(plan, out, *more):
    command = (f'./{plan}',) if plan == 'one' else (SHARDC, 'run', f'./{plan}', '-n', str(RANKS[plan]), '--')
    run(*command, 'train', '--out', out, *OPTIONS, *more, cwd=folder)


def losses(out): return [r['loss'] for r in map(json.loads, open(f'{folder}/{out}/metrics.jsonl')) if 'loss' in r]


def kill_one(k, span, want):
    out, victim = f'k{k}', rng.randrange(4)
    ps = start(out, k)
    time.sleep(rng.uniform(0, span))
    began = time.time()
    ps[victim].kill()
    said = []
    for r, p in enumerate(ps):
        try:
            said.append((p.communicate(timeout=max(1, began + 32 - time.time()))[1].decode(errors='replace'),
                         p.returncode))
        except subprocess.TimeoutExpired:
            for q in ps: q.kill()
            sys.exit(f'kill {k}: rank {r} lives 30 s after rank {victim} died')
    ended = said[victim][1] == 0              # it was faster
    for r, (text, status) in enumerate(said):
        if r == victim or ended: continue
        named = f'rank {victim} (' in text and 'R0901' in text
        early = status == 3 and ('R0107' in text or 'R0901' in text)     # ranks had not met yet
        check(status == 0 or named or early, f'kill {k}: rank {r} after rank {victim}: {status} {text}')
    whole('four', out, '--resume')
    check(losses(out) == want, f'kill {k}: other losses after resuming')
    return out, time.time() - began


try:
    open(f'{folder}/m.shard', 'w').write(MODEL)
    text_file(f'{folder}/text.txt')
    for plan in RANKS: run(SHARDC, 'compile', 'm.shard', '--plan', plan, '-o', plan, '--quick', '-q', cwd=folder)
    began = time.time()
    whole('four', 'want')
    span, want = time.time() - began, losses('want')
    for k in range(KILLS):
        out, took = kill_one(k, span, want)
        if k + 1 < KILLS: shutil.rmtree(f'{folder}/{out}')
    for plan in ('two', 'one'):
        shutil.copytree(f'{folder}/{out}', f'{folder}/on_{plan}')
        whole(plan, f'on_{plan}', '--resume', '--steps', str(STEPS + 20))
        whole('four', out, '--resume', '--steps', str(STEPS + 20)) if plan == 'two' else None
        a, b = losses(f'on_{plan}')[STEPS:], losses(out)[STEPS:]
        check(len(a) == len(b) == 20 and all(abs(x - y) < 1e-4 * x for x, y in zip(a, b)), f'under {plan}: {a} {b}')
    print(f'{KILLS} kills in runs of {span:.1f} s: all others left and named it; runs went on with the same losses, and under two ranks and one')
finally:
    shutil.rmtree(folder)
