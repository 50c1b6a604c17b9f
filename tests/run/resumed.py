"""A resumed run reports its changes: each setting of the train block with both values, and nothing of another number of
ranks. Tokens are those of the model, whatever the format of the data.

    python3 resumed.py SHARDC
"""
import json, os, shutil, sys
from common import check, npy, run, workdir

SHARDC = os.path.abspath(sys.argv[1])
D = workdir()
MODEL = '''use "std"
dims { Batch, Seq; Vocab = 128; Embed = 8 }
model M {
  input tokens, targets [Batch, Seq] of Vocab
  param w [Vocab, Embed] ~ normal(1)
  loss cross_entropy[Vocab](dot[Embed](w[Vocab = tokens], w), targets)
}
model Image {
  input x [Batch, Seq] f32
  input y [Batch] of Vocab
  param w [Seq, Vocab] ~ normal(1)
  loss cross_entropy[Vocab](dot[Seq](x, w), y)
}
train t for M { size Seq = 8; batch 4; steps 40; data "a.txt"
 optim adamw lr = 1e-2 betas = [0.9, 0.98]
 lr cosine warmup = 5
 clip 1 }
train i for Image { size Seq = 8; batch 4; steps 3; data columns(x = "x.npy", y = "y.npy"); optim sgd lr = 1e-2 }
plan one for M { }
plan two for M { mesh data = 2; place Batch -> data }
'''
CHANGES = {'optim.lr': ('0.01', '0.02'), 'optim.betas': ('0.9 0.98', '0.9 0.95'), 'optim.eps': ('1e-08', '1e-06'),
           'optim.weight_decay': ('0.01', '0.1'), 'lr': ('cosine', 'linear'), 'lr.warmup': ('5', '9'),
           'steps': ('40', '80'), 'clip': ('1', '9'), 'batch': ('4', '2'), 'on_nan': ('stop', 'skip')}


def compile(out, *more): run(SHARDC, 'compile', 'm.shard', '-o', out, '--quick', '-q', *more, cwd=D)


def resumed(*command):
    shutil.rmtree(f'{D}/r2', True)
    _, said = run(*command, 'train', '--out', 'r2', '--resume=r', '--steps', '41', '--quiet', cwd=D)
    return [line for line in said.splitlines() if line.startswith('note:') and 'compiled for' not in line]


def differences():
    compile('one', '--model', 'M', '--plan', 'one')
    run('./one', 'train', '--out', 'r', '--quiet', cwd=D)
    check(resumed('./one') == [], 'the same executable')
    for key, (old, new) in CHANGES.items():
        value = f'[{new.replace(" ", ", ")}]' if ' ' in new else new
        compile('other', '--model', 'M', '--plan', 'one', f'--set=train.{key}={value}')
        notes = resumed('./other')
        check(any(f'train.{key} was {old} in the resumed run, it is {new} now' in n for n in notes), f'{key}: {notes}')
        check(all(f'note: train.{key}' in n for n in notes), f'{key}: {notes}')
    compile('other', '--model', 'M', '--plan', 'one', '--set=train.optim=sgd')
    notes = resumed('./other', )
    check(any('train.optim was adamw in the resumed run, it is sgd now' in n for n in notes)
          and any('train.optim.eps was 1e-08 in the resumed run, it is not set now' in n for n in notes), f'{notes}')
    shutil.rmtree(f'{D}/r2', True)  # the other way, states are missing: its parameters alone
    run('./other', 'train', '--out', 'r2', '--quiet', cwd=D)
    _, said = run('./one', 'train', '--out', 'r2', '--resume', cwd=D, expect=4)
    check('R0503' in said and 'w.m is not' in said and 'with --init a run starts' in said, said)
    losses = [json.loads(run(f'./{exe}', 'eval', '--valid', 'a.txt', '--json', more, cwd=D)[0])['loss']
              for exe, more in (('other', '--resume=r2'), ('one', '--init=r2'), ('one', '--init=r2/step-000040'))]
    check(losses[0] == losses[1] == losses[2], f'{losses}')
    compile('other', '--model', 'M', '--plan', 'one', '--set=train.seed=7')
    notes = resumed('./other')
    check(len(notes) == 1 and 'train.seed was 0 in the resumed run and stays so: 7 is not used' in notes[0], f'{notes}')
    compile('two', '--model', 'M', '--plan', 'two')
    check(resumed(SHARDC, 'run', './two', '-n', '2', '--') == [], 'another number of ranks is no difference')
    text = open(f'{D}/m.shard').read()
    open(f'{D}/m.shard', 'w').write(text.replace('loss cross', 'loss 2 * cross', 1))
    compile('other', '--model', 'M', '--plan', 'one')
    open(f'{D}/m.shard', 'w').write(text)
    check(['another version of the model file' in n for n in resumed('./other')] == [True], 'another model file')


def tokens():
    """As columns or as text: a sample has 8 tokens. Images have none."""
    npy(f'{D}/t.npy', '<i4', (40, 8), [i % 100 for i in range(320)])
    _, said = run('./one', 'train', '--out', 'c', '--data', 'tokens=t.npy,targets=t.npy', '--steps', '6', cwd=D)
    rows = [json.loads(line) for line in open(f'{D}/c/metrics.jsonl')]
    check([r['tokens'] for r in rows] == [32 * (i + 1) for i in range(6)] and ' tok/s' in said, f'{rows} {said}')
    check('"tokens":192,' in open(f'{D}/c/step-000006/state.json').read(), 'state.json')
    npy(f'{D}/x.npy', '<f4', (40, 8), [i / 320 for i in range(320)]), npy(f'{D}/y.npy', '<i4', (40,), list(range(40)))
    compile('image', '--model', 'Image')
    _, said = run('./image', 'train', '--out', 'i', cwd=D)
    rows = [json.loads(line) for line in open(f'{D}/i/metrics.jsonl')]
    check([r['samples'] for r in rows] == [4, 8, 12] and not any('tokens' in r for r in rows), f'{rows}')
    check(' samples/s' in said and 'tok/s' not in said, said)
    run(SHARDC, 'report', 'c', 'i', '-o', 'page.html', cwd=D)
    page = open(f'{D}/page.html').read()
    check(' tokens</td>' in page and ' samples</td>' in page, 'the report tells them apart')


def valid_file():
    _, said = run('./one', 'train', '--out', 'v', '--valid', 'nowhere.txt', cwd=D, expect=4)
    check('R0201' in said and '--valid FILE' in said and '--data' not in said, said)
    _, said = run('./one', 'train', '--out', 'v', '--data', 'nowhere.txt', cwd=D, expect=4)
    check('R0201' in said and '--data FILE' in said, said)


open(f'{D}/m.shard', 'w').write(MODEL)
open(f'{D}/a.txt', 'w').write('some text\n' * 100)
differences()
tokens()
valid_file()
shutil.rmtree(D)
