"""Several plans in one executable: python3 several.py SHARDC

`compile --plan a,b,c` makes one file that trains under the plan for as many ranks as it is started with; a run resumes
under another plan; a number of ranks that no plan has is refused with a list of the existing ones; ambiguous lists are
refused at once.
"""
import json, os, shutil, sys
from common import check, run, text_file, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
MODEL = '''use "gpt2"
variant Small of GPT2 { Pos = 8; Vocab = 257 pad 8; Embed = 16; Heads = 2; Layers = 2 }
variant Other of GPT2 { Pos = 8; Vocab = 256; Embed = 32; Heads = 2; Layers = 1 }
train t for Small { size Seq = 8; batch 12; steps 6; data "text.txt" format = bytes; optim adamw lr = 2e-3; clip 1.0 }
train u for Other { size Seq = 8; batch 12; steps 6; data "text.txt" format = bytes; optim adamw lr = 2e-3; clip 1.0 }
plan one for Small { micro 12 }
plan three for Small { mesh dp = 3
 place Batch -> dp
 zero 3 }
plan four for Small { mesh dp = 2, tp = 2
 place Batch -> dp
 place Heads, Mlp, Vocab -> tp else Seq
 zero 1 }
machine box { node memory = 260KiB }
plan small for Small { on box }
plan pair for Small { on box nodes = 2
 mesh dp = 2
 place Batch -> dp }
plan again for Small { mesh dp = 4
 place Batch -> dp }
plan other for Other { mesh dp = 2
 place Batch -> dp }
'''


def losses(out): return [r['loss'] for r in map(json.loads, open(f'{folder}/{out}/metrics.jsonl')) if 'loss' in r]


def train(ranks, out, *args, expect=0):
    start = ['./model'] if ranks == 1 else [SHARDC, 'run', './model', '-n', str(ranks), '--']
    return ''.join(run(*start, 'train', '--out', out, '--threads', '1', *args, cwd=folder, expect=expect))


def close(a, b, what): check(len(a) == len(b) and all(abs(x - y) < 2e-5 for x, y in zip(a, b)), f'{what}: {a} and {b}')


def refused(text, *args):
    out, err = run(SHARDC, 'compile', 'm.shard', '-o', 'x', *args, cwd=folder, expect=2)
    check(text in err and not os.path.exists(f'{folder}/x'), f'{args}: {err}')


try:
    open(f'{folder}/m.shard', 'w').write(MODEL)
    text_file(f'{folder}/text.txt')
    said = run(SHARDC, 'compile', 'm.shard', '--plan', 'three,one,four', '-o', 'model', '--keep', 'kept', cwd=folder)[1]
    check(all(f'model ({p}): 10.8k parameters' in said for p in ('one', 'three', 'four')), said)
    check(sorted(os.listdir(f'{folder}/kept')) == ['four', 'one', 'three'], 'kept files, by plan')
    train(1, 'r1')
    for n in 3, 4: check(f'{n} ranks' in train(n, f'r{n}'), f'{n} ranks')
    close(losses('r1'), losses('r3'), 'three ranks')
    close(losses('r1'), losses('r4'), 'four ranks')
    train(3, 'moved', '--steps', '2')
    for n, steps in (4, '4'), (1, '6'):
        said = train(n, 'moved', '--resume', '--steps', steps)
        check('resumed at step' in said and 'another compilation' not in said, said)
    close(losses('r1'), losses('moved'), 'from plan to plan')
    said = train(2, 'no', expect=3)
    check('R0101' in said and '3 ranks (dp = 3) or 1 rank or 4 ranks (dp = 2, tp = 2)' in said, said)
    said = run(SHARDC, 'compile', 'm.shard', '--plan', 'small,pair', '-o', 'chosen', '--quick', cwd=folder)[1]
    check(said.count('micro = 2 was chosen') == 2, f'each plan has a micro-batch of its own: {said}')
    refused('two are for 4 ranks', '--plan', 'four,again')
    refused('several models', '--plan', 'four,other')
    refused('names one twice', '--plan', 'four,four')
    refused('only executables are for several', '--plan', 'one,four', '--emit', 'c')
    run(SHARDC, 'run', 'm.shard', '--plan', 'one,four', cwd=folder, expect=2)
    run(SHARDC, 'compile', 'm.shard', '--plan', 'one,fuor', '-o', 'x', cwd=folder, expect=1)
    print('one executable trains under three plans')
finally:
    shutil.rmtree(folder)
