"""Ranks that die in the middle of a flight: python3 flights_kill.py SHARDC DIE_AT.so [KILLS [PLAN]]

A small GPT over four ranks, messages that overlap the computation, over local and MPI: `on` is ZeRO-3 that gathers a
layer ahead, `turns` a pipeline of two stages (1F1B), two ranks each with ZeRO-2. One rank kills itself where a message
is asked for, where one is over, or where it waits for one (die_at.c): points of the queue, from its first to its last
one, not of time. The others leave and name it, and the run resumes with the losses of the uninterrupted one, bit by
bit.
"""
import json, os, shutil, subprocess, sys, time
from common import MPI, check, has_mpi, preload, run, text_file, workdir

SHARDC, DIE_AT = os.path.abspath(sys.argv[1]), preload(sys.argv[2])
KILLS, PLAN, folder = int((sys.argv[3:] + ['4'])[0]), (sys.argv[4:] + ['on'])[0], workdir()
POINTS, STEPS = ('start', 'over', 'wait'), 8
MODEL = '''use "gpt2"
variant Small of GPT2 { Pos = 16; Vocab = 256; Embed = 32; Heads = 4; Layers = 4 }
train t for Small {
  size  Seq = 16
  batch 8
  steps 8
  data  "text.txt" format = bytes
  optim adamw lr = 2e-3
}
plan on for Small {
  mesh data = 2, tensor = 2
  micro 2
  place Batch -> data
  place Heads, Mlp, Vocab -> tensor
  zero 3 over data prefetch = 1 overlap = on
}
plan turns for Small {
  mesh pipe = 2, data = 2
  micro 1
  place Batch -> data
  place Layers -> pipe
  pipeline one_f_one_b
  zero 2 over data overlap = on
}
'''
OPTIONS = ['--steps', str(STEPS), '--save-every', '3', '--threads', '1']
BARE = {k: v for k, v in os.environ.items() if not k.startswith(('RANK', 'WORLD', 'LOCAL', 'OMPI', 'PMI', 'SLURM'))}
BARE['ASAN_OPTIONS'] = 'verify_asan_link_order=0:detect_leaks=0'


def start(how, out, dies):
    """Processes of a run; `dies`: what die_at.c reads."""
    train = ['train', '--out', out, *OPTIONS]
    def process(command, **env):
        return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=dict(BARE, NO_COLOR='1', **env))
    if how == 'mpi':
        words = [w for k, v in dict(dies, LD_PRELOAD=DIE_AT).items() for w in ('-x', f'{k}={v}')]
        return [process(['mpirun', '--oversubscribe', '-n', '4', *words, './mpi', *train], **MPI)]
    return [process(['./on', *train], RANK=str(r), WORLD_SIZE='4', LOCAL_RANK=str(r), LOCAL_WORLD_SIZE='4',
                    SHARDC_JOB=f'{os.getpid()} {out}', LD_PRELOAD=DIE_AT, **dies) for r in range(4)]


def ends(ps, what):
    said, began = [], time.time()
    for p in ps:
        try: text = p.communicate(timeout=max(1, began + 1200 - time.time()))[1]
        except subprocess.TimeoutExpired:
            for q in ps: q.kill()
            sys.exit(f'failed: {what}: a process does not end')
        said.append((text.decode(errors='replace'), p.returncode))
    return said


def note(out):
    try: return open(f'{folder}/{out}.note').read().split()
    except OSError: return []


def losses(out): return [r['loss'] for r in map(json.loads, open(f'{folder}/{out}/metrics.jsonl')) if 'loss' in r]


def unbroken(how):
    said = ends(start(how, f'all_{how}', {'DIE_RANK': '1', 'DIE_NOTE': f'{folder}/all_{how}.note'}), how)
    check(all(status == 0 for _, status in said), f'{how}: {said}')
    counts = dict(zip(POINTS, map(int, note(f'all_{how}'))))
    check(len(counts) == 3 and all(n > 30 for n in counts.values()), f'{how}: {counts}')
    return counts


def kill_one(k, how, counts, want):
    """Seconds from the death to the end of the last process; None: that point did not come again."""
    point, out, victim = POINTS[k % 3], f'k{k}', k * 7 % 4
    at = 1 + counts[point] * (k // 3 * 3 + 1) // (KILLS + 3)
    what = f'{how}, rank {victim} dies at {point} {at} of {counts[point]}'
    dies = {'DIE_RANK': str(victim), 'DIE_AT': f'{point}:{at}', 'DIE_NOTE': f'{folder}/{out}.note'}
    said = ends(start(how, out, dies), what)
    ended, died = time.time(), note(out)
    for r, (text, status) in enumerate(said):
        if not died or (how == 'local' and r == victim): continue
        check(status != 0 and f'rank {victim} ' in text, f'{what}: {status} {text}')
    run(SHARDC, 'run', './on', '-n', '4', '--', 'train', '--out', out, *OPTIONS, '--resume', cwd=folder)
    check(losses(out) == want, f'{what}: other losses after resuming: {losses(out)} {want}')
    shutil.rmtree(f'{folder}/{out}')
    return ended - float(died[0]) if died else None


open(f'{folder}/m.shard', 'w').write(MODEL)
text_file(f'{folder}/text.txt')
run(SHARDC, 'compile', 'm.shard', '--plan', PLAN, '-o', 'on', '-q', '--quick', cwd=folder)
hows = ['local']
if has_mpi():
    run(SHARDC, 'compile', 'm.shard', '--plan', PLAN, '--comm', 'mpi', '-o', 'mpi', '-q', '--quick', cwd=folder)
    hows.append('mpi')
counts = {how: unbroken(how) for how in hows}
want = losses('all_local')
check(all(losses(f'all_{how}') == want for how in hows), 'MPI has other losses than local')
took = {how: [] for how in hows}
for k in range(KILLS):
    how = hows[-1] if k % 4 == 3 else 'local'
    took[how].append(kill_one(k, how, counts[how], want))
shutil.rmtree(folder)
for how, all_ in took.items():
    known = [t for t in all_ if t is not None]
    check(2 * len(known) > len(all_) or not all_, f'{how}: {all_}')
    print(f'{how}: {len(known)} of {len(all_)} deaths in flight, named; the last process left '
          f'{max(known, default=0):.1f} s after; losses as without')
