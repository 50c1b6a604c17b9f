"""Checkpoints by time, and the best one: python3 keeping.py SHARDC

`--keep-best` keeps the checkpoint of the smallest validation loss, also when `--keep` would remove it, over resumes,
and on several ranks; `--save-time` and `save time` of a file save between the steps of `--save-every`. What cannot be
is refused.
"""
import json, os, shutil, sys
from common import check, run, text_file, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
MODEL = '''use "gpt2"
variant Small of GPT2 { Pos = 8; Vocab = 257 pad 8; Embed = 16; Heads = 2; Layers = 1 }
train t for Small { size Seq = 8; batch 4; steps 24; data "text.txt" format = bytes valid = "valid.txt"
  eval every = 2; save keep = 1; optim adamw lr = 4e-2; clip 1.0 }
plan two for Small { mesh dp = 2
 place Batch -> dp }
'''
steps = lambda out: sorted(int(x[5:]) for x in os.listdir(f'{folder}/{out}') if x.startswith('step-'))


def best(out):
    """The step that `best` leads to, which is that of the smallest validation loss."""
    told = [json.loads(x) for x in open(f'{folder}/{out}/metrics.jsonl')]
    least = min((r['valid_loss'], r['step']) for r in told if r.get('valid_loss') is not None)[1]
    check(os.readlink(f'{folder}/{out}/best') == f'step-{least:06}', f'{out}: {os.listdir(f"{folder}/{out}")}, {least}')
    check(os.path.exists(f'{folder}/{out}/best/state.json'), f'{out}: the best checkpoint is whole')
    return least


def train(exe, out, *words, expect=0):
    nodes = ['--nnodes', '1'] if exe == 'two' else []
    return ''.join(run(f'./{exe}', 'train', '--out', out, '--quiet', *nodes, *words, cwd=folder, expect=expect))


try:
    open(f'{folder}/m.shard', 'w').write(MODEL)
    text_file(f'{folder}/text.txt', 4000), text_file(f'{folder}/valid.txt', 900)
    run(SHARDC, 'compile', '--quick', 'm.shard', '-o', 'one', '-q', cwd=folder)
    run(SHARDC, 'compile', '--quick', 'm.shard', '--plan', 'two', '-o', 'two', '-q', cwd=folder)
    for exe in 'one', 'two':
        out = f'{exe}-run'
        train(exe, out, '--keep-best', '--steps', '9')
        at = best(out)
        check(steps(out) == sorted({at, 9}), f'{exe}: {steps(out)}')
        train(exe, out, '--keep-best', '--resume', '--steps', '24')
        at = best(out)
        check(steps(out) == sorted({at, 24}), f'{exe}: {steps(out)}')
        nodes = ['--nnodes', '1'] if exe == 'two' else []
        said = run(f'./{exe}', 'eval', *nodes, '--resume', f'{out}/best', '--json', cwd=folder)[0]
        check(json.loads(said)['loss'] > 0, said)
        train(exe, f'{exe}t', '--save-time', '0.000001s', '--keep', '100', '--steps', '5')
        check(steps(f'{exe}t') == [1, 2, 3, 4, 5], f'{exe}: {steps(f"{exe}t")}')
        train(exe, f'{exe}h', '--save-time', '2h', '--keep', '100', '--save-every', '2', '--steps', '5')
        check(steps(f'{exe}h') == [2, 4, 5], f'{exe}: {steps(f"{exe}h")}')
    open(f'{folder}/timed.shard', 'w').write(MODEL.replace('save keep = 1', 'save keep = 100 time = 1us'))
    run(SHARDC, 'compile', '--quick', 'timed.shard', '-o', 'timed', '-q', cwd=folder)
    train('timed', 'of file', '--steps', '5'), train('timed', 'over it', '--save-time', '2h', '--steps', '5')
    check((steps('of file'), steps('over it')) == ([1, 2, 3, 4, 5], [5]), f'{steps("of file")} {steps("over it")}')
    for words in ['--keep', '0'], ['--save-every', '0']:
        check('R0104' in train('one', 'no', '--keep-best', *words, expect=2), f'{words}')
        check('R0104' in train('one', 'no', '--save-time', '1m', *words, expect=2), f'{words}')
    print('the best checkpoints at', best('one-run'), best('two-run'))
finally:
    shutil.rmtree(folder)
