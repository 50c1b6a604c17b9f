"""A small GPT-2 in bf16 compared with the same in f32, on the same data: losses of 100 steps within 1e-2, also cut into
micro-batches; the work arena is smaller and predicted to the byte; weights stay f32 in checkpoints and a run goes on
from one bit by bit.

    python3 precision.py SHARDC REFERENCE_FOLDER
"""
import json, os, shutil, sys
from common import check, run, workdir

SHARDC, FOLDER, WORK = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), workdir()
DATA = os.path.join(FOLDER, 'gpt2_small.bin')


def build(name, *options):
    exe = os.path.join(WORK, name)
    run(SHARDC, 'compile', os.path.join(FOLDER, 'gpt2_small.shard'), '-o', exe, '--quick', *options)
    return exe


def train(exe, out, steps, *options):
    out = os.path.join(WORK, out)
    text = ''.join(run(exe, 'train', '--data', DATA, '--out', out, '--steps', str(steps), *options))
    lines = [json.loads(line) for line in open(os.path.join(out, 'metrics.jsonl'))]
    return [x['loss'] for x in lines if 'loss' in x], text


def worst(a, b): return max(abs(x - y) for x, y in zip(a, b))


def predicted(text):
    row = next(line.split() for line in text.splitlines() if line.startswith('step ') and 'exact' in line)
    return int(row[1])


wide = build('wide', '--set', 'plan.precision=f32')
narrow = build('narrow', '--set', 'plan.precision=bf16')
parts = build('parts', '--set', 'plan.precision=bf16', '--set', 'plan.micro=2')
want, _ = train(wide, 'a', 100)
got, _ = train(narrow, 'b', 100)
check(len(got) == 100 and worst(want, got) <= 1e-2, f'bf16 is {worst(want, got):.4f} away from f32')
check(worst(want, got) > 0, 'nothing was rounded')
cut, _ = train(parts, 'c', 100)
check(worst(want, cut) <= 1e-2, f'micro-batches in bf16 are {worst(want, cut):.4f} away from f32')

sizes = [predicted(train(exe, f'm{i}', 2, '--check-memory')[1]) for i, exe in enumerate((wide, narrow))]
check(sizes[1] < sizes[0], f'bf16 works in {sizes[1]} bytes, f32 in {sizes[0]}')

whole, _ = train(narrow, 'd', 12)
train(narrow, 'e', 6)
again, _ = train(narrow, 'e', 12, '--resume')
check(again == whole, 'a resumed run differs')
print(f'100 steps: {worst(want, got):.1e} from f32, {worst(want, cut):.1e} in micro-batches; {sizes[1]} bytes of work against {sizes[0]}')
shutil.rmtree(WORK)
