"""A masked language model, end to end: it learns, micro-batches and a resumed run see the same masks, evaluation sees
the same masks each time, and a document can be a sample.

    python3 mlm.py SHARDC EXAMPLES
"""
import json, os, random, shutil, sys
from common import check, read, run, workdir

SHARDC, EXAMPLES, WORK = os.path.abspath(sys.argv[1]), sys.argv[2], workdir()
SMALL = ['-D', 'Layers=2', '-D', 'Embed=48', '-D', 'Heads=2', '-D', 'Pos=32', '-D', 'Seq=32', '--set', 'train.steps=60',
         '--set', 'train.lr.warmup=5', '--set', 'train.optim.lr=5e-3']


def losses(out): return [json.loads(line) for line in open(f'{WORK}/{out}/metrics.jsonl')]


def compile_to(name, *more):
    run(SHARDC, 'compile', f'{EXAMPLES}/tiny_bert.shard', '-o', f'{WORK}/{name}', '--quick', *SMALL, *more)


def train(exe, out, *more): run(f'{WORK}/{exe}', 'train', '--data', f'{WORK}/text', '--out', f'{WORK}/{out}', *more)


def weights(out):
    last = sorted(x for x in os.listdir(f'{WORK}/{out}') if x.startswith('step-'))[-1]
    return [read(f'{WORK}/{out}/{last}/{f}') for f in sorted(os.listdir(f'{WORK}/{out}/{last}'))
            if f.endswith('.safetensors')]


random.seed(3)
WORDS = [bytes(random.choices(range(97, 103), k=random.randrange(2, 7))) for _ in range(5)]
with open(f'{WORK}/text', 'wb') as f:
    for _ in range(2500): f.write(b' '.join(random.choices(WORDS, k=random.randrange(2, 9))) + b'\n')

compile_to('whole'), compile_to('parts', '--set', 'plan.micro=4')
train('whole', 'a'), train('parts', 'b')
a, b = ([x['loss'] for x in losses(o) if 'loss' in x] for o in 'ab')
check(a[-1] < a[0] - 2.5, f'it learns: {a[0]:.3f} to {a[-1]:.3f}')
check(max(abs(x - y) for x, y in zip(a[:20], b[:20])) < 2e-4, 'micro-batches see the same masks')

train('whole', 'c', '--steps', '30'), train('whole', 'c', '--steps', '60', '--resume=auto')
train('whole', 'd', '--steps', '60', '--eval-every', '7')
check(weights('c') == weights('d'), 'a resumed run sees the masks of the unbroken one, whatever was evaluated between')

LINES = [f'train.data.{x}' for x in ('pack=off', 'eot=10', 'pad_id=1')]
compile_to('lines', *[w for x in LINES for w in ('--set', x)])
train('lines', 'e')
e = [x['loss'] for x in losses('e') if 'loss' in x]
check(e[-1] < e[0] - 2.5, f'it learns from lines: {e[0]:.3f} to {e[-1]:.3f}')
shutil.rmtree(WORK)
