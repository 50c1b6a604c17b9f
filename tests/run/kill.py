"""Ranks that are killed: python3 kill.py SHARDC [KILLS [stages]]

A small GPT over data and tensor, ZeRO-3, as four processes; one of them is killed at a random instant, start and end
included: the others leave and name it; the run resumes from its last checkpoint with the losses of the uninterrupted
run, bit by bit. At the end it resumes under two ranks and under one, within rounding. `stages`: instead of the one plan
pipelines of four ranks, kill by kill under another schedule (SCHEDULES). The test prints how long the others ran after
the kill.
"""
import json, os, random, re, shutil, subprocess, sys, time
from common import check, run, text_file, workdir

SHARDC, KILLS, folder = os.path.abspath(sys.argv[1]), int((sys.argv + ['4'])[2]), workdir()
RANKS, STEPS = {'two': 2, 'one': 1}, 120
MODEL = '''use "gpt2"
variant Small of GPT2 { Pos = 16; Vocab = 256; Embed = 32; Heads = 4; Layers = 4 }
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
SCHEDULES = {'f_b': ('pipe = 4', 'one_f_one_b', 0), 'chunks': ('pipe = 2, tensor = 2', 'interleaved chunks = 2', 0),
             'bubble': ('pipe = 2, data = 2', 'zero_bubble', 1), 'rings': ('data = 2, pipe = 2', 'interleaved', 2),
             'steep': ('data = 2, pipe = 2', 'zero_bubble memory = 2', 3),
             'ragged': ('pipe = 3', 'zero_bubble uneven = on', 0), 'all': ('tensor = 2, pipe = 2', 'gpipe', 0)}
SPLITS = {'data': 'Batch', 'tensor': 'Heads, Mlp', 'pipe': 'Layers'}
OPTIONS = ['--steps', str(STEPS), '--save-every', '10', '--keep', '3', '--threads', '1']
rng = random.Random(23)


def pipeline(name):
    mesh, schedule, zero = SCHEDULES[name]
    lines = [f'mesh {mesh}', 'micro 1', f'pipeline {schedule}'] + ([f'zero {zero} over data'] if zero else [])
    lines += [f'place {dims} -> {axis}' for axis, dims in SPLITS.items() if axis in mesh]
    return f'plan {name} for Small {{ ' + '; '.join(lines) + ' }\n'


def ranks_of(plan): return RANKS.get(plan, 3 if plan == 'ragged' else 4)


def start(plan, out, job):
    e = {k: v for k, v in os.environ.items() if not k.startswith(('RANK', 'WORLD', 'LOCAL', 'OMPI', 'PMI', 'SLURM'))}
    n = ranks_of(plan)
    return [subprocess.Popen([f'./{plan}', 'train', '--out', out, *OPTIONS], cwd=folder, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE,
                             env=dict(e, RANK=str(r), WORLD_SIZE=str(n), LOCAL_RANK=str(r), LOCAL_WORLD_SIZE=str(n),
                                      SHARDC_JOB=f'{os.getpid()} {job}', SHARDC_MEET='20', NO_COLOR='1'))
            for r in range(n)]


def whole(plan, out, *more):
    command = (f'./{plan}',) if plan == 'one' else (SHARDC, 'run', f'./{plan}', '-n', str(ranks_of(plan)), '--')
    run(*command, 'train', '--out', out, *(OPTIONS[2:] if '--steps' in more else OPTIONS), *more, cwd=folder)


def losses(out): return [r['loss'] for r in map(json.loads, open(f'{folder}/{out}/metrics.jsonl')) if 'loss' in r]


def reported(out, victim):
    """The flight recorders name the dead rank and where each was, also if its recorder has no event yet."""
    def page():
        text = run(SHARDC, 'report', out, '-o', 'page.html', cwd=folder)[0]
        at = re.search(fr'^  rank {victim} .*(waits in|after|no events).* <--$', text, re.M)
        check(re.search(fr'^rank {victim} \(.*\) died ', text, re.M) and at, f'rank {victim}: {text}')
        last = f'the last events of rank {victim} (' in text
        check(last == (at[1] != 'no events'), f'rank {victim}: {text}')
        return at[1]
    page()
    os.truncate(f'{folder}/{out}/flight-{victim:05}', 0)
    check(page() == 'no events', 'an empty flight recorder')


def flights(out):
    if not os.path.isdir(f'{folder}/{out}'): return []  # killed before there was a run directory
    return [f for f in os.listdir(f'{folder}/{out}') if f.startswith('flight-')]


def kill_one(k, plan, span, want):
    """Its folder, and seconds until the last of those that named the dead rank had left; 0: none had to."""
    out, victim, last = f'k{k}', rng.randrange(ranks_of(plan)), 0
    ps = start(plan, out, k)
    time.sleep(rng.uniform(0, span))
    began = time.time()
    ps[victim].kill()
    said = []
    for r, p in enumerate(ps):
        try:
            said.append((p.communicate(timeout=max(1, began + 1200 - time.time()))[1].decode(errors='replace'),
                         p.returncode))
        except subprocess.TimeoutExpired:
            for q in ps: q.kill()
            sys.exit(f'kill {k}, {plan}: rank {r} lives 20 minutes after rank {victim} died')
    took, ended = time.time() - began, said[victim][1] == 0    # it was faster
    for r, (text, status) in enumerate(said):
        if r == victim or ended: continue
        named = f'rank {victim} (' in text and 'R0901' in text
        early = status == 3 and ('R0107' in text or 'R0901' in text)     # ranks had not met yet
        check(status == 0 or named or early, f'kill {k}, {plan}: rank {r} after rank {victim}: {status} {text}')
        if named: last = took
    if last and len(flights(out)) == len(ps): reported(out, victim)
    whole(plan, out, '--resume')
    check(not flights(out), f'kill {k}, {plan}: {flights(out)} after a good end')
    check(losses(out) == want, f'kill {k}, {plan}: other losses after resuming')
    return out, last


def begun(plan):
    """How long an unbroken run takes, and its losses."""
    run(SHARDC, 'compile', 'm.shard', '--plan', plan, '-o', plan, '--quick', '-q', cwd=folder)
    began = time.time()
    whole(plan, f'want_{plan}')
    return time.time() - began, losses(f'want_{plan}')


def goes_on(out):
    """The last run under two ranks and one."""
    for plan in ('two', 'one'):
        run(SHARDC, 'compile', 'm.shard', '--plan', plan, '-o', plan, '--quick', '-q', cwd=folder)
        shutil.copytree(f'{folder}/{out}', f'{folder}/on_{plan}')
        whole(plan, f'on_{plan}', '--resume', '--steps', str(STEPS + 20))
        whole('four', out, '--resume', '--steps', str(STEPS + 20)) if plan == 'two' else None
        a, b = losses(f'on_{plan}')[STEPS:], losses(out)[STEPS:]
        check(len(a) == len(b) == 20 and all(abs(x - y) < 1e-4 * x for x, y in zip(a, b)), f'under {plan}: {a} {b}')


try:
    plans, wants, lived = list(SCHEDULES) if 'stages' in sys.argv else ['four'], {}, []
    open(f'{folder}/m.shard', 'w').write(MODEL + ''.join(map(pipeline, SCHEDULES)))
    text_file(f'{folder}/text.txt')
    for k in range(KILLS):
        plan = plans[k % len(plans)]
        if plan not in wants: wants[plan] = begun(plan)
        out, last = kill_one(k, plan, *wants[plan])
        lived.append(last)
        if k + 1 < KILLS: shutil.rmtree(f'{folder}/{out}')
    if plans == ['four']: goes_on(out)
    named = [t for t in lived if t]
    print(f'{KILLS} kills in runs of {max(w[0] for w in wants.values()):.1f} s: {len(named)} with ranks that named it, '
          f'the last one left {max(named, default=0):.1f} s after; runs went on with the same losses')
finally:
    shutil.rmtree(folder)
