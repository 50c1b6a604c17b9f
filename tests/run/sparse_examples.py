"""The examples of block-sparse attention train: small on processors, tiny on the stand-in for a GPU.

    python3 sparse_examples.py SHARDC EXAMPLES [emulate]

A kernel that left out listed blocks, or computed others, would still train: tests/codegen checks that kernels obey the
mask. This test takes the files unchanged except for sizes and steps, and the loss must fall; with `emulate` the first
losses of the GPU's kernels are those of the processor's.
"""
import json, os, random, re, shutil, struct, sys
from common import check, run, workdir

SHARDC, EXAMPLES = map(os.path.abspath, sys.argv[1:3])
EMULATE, WORK = 'emulate' in sys.argv[3:], workdir()
SIZES = {'Embed': 32, 'Heads': 2, 'Layers': 1}
STEPS = 3 if EMULATE else 30
SETTINGS = {'steps': STEPS, 'batch': 2, 'optim.lr': '5e-3', 'lr.warmup': 2}
WORDS = ['the', 'block', 'that', 'is', 'listed', 'sees', 'what', 'it', 'asks', 'for']
# example: (sizes small, sizes tiny, data, nats that the loss falls by)
ROWS = {
    'bert': ({'Seq': 512, 'Pos': 512, 'Vocab': 15}, {'Seq': 256, 'Pos': 256, 'Vocab': 15}, 'words', .1),
    'sparse_gpt': ({'Seq': 256, 'Block': 16}, {'Seq': 64, 'Block': 16}, 'text', 1),
    'longformer': ({'Seq': 256, 'Pos': 256, 'Block': 16}, {'Seq': 64, 'Pos': 64, 'Block': 16}, 'text', 1),
    'mistral': ({'Seq': 256, 'Window': 48, 'Vocab': 10, 'Mlp': 64, 'Kv': 2, 'Group': 2, 'Head': 16},
                {'Seq': 64, 'Window': 24, 'Vocab': 10, 'Mlp': 32, 'Kv': 1, 'Group': 2, 'Head': 16}, 'tokens', .1),
    'logsparse': ({'Seq': 1024}, {'Seq': 64}, 'text', 1),
}


def write_data():
    """Text, its words as tokens, and the same with a vocabulary of BERT's."""
    random.seed(5)
    numbers = random.choices(range(len(WORDS)), weights=range(1, len(WORDS) + 1), k=30000)
    with open(f'{WORK}/text', 'w') as f: f.write(' '.join(WORDS[n] for n in numbers))
    with open(f'{WORK}/tokens', 'wb') as f: f.write(struct.pack(f'<{len(numbers)}H', *numbers))
    special = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']
    pieces = [n + 5 if i % 200 else 3 for i, n in enumerate(numbers)]
    with open(f'{WORK}/words', 'wb') as f: f.write(struct.pack(f'<{len(pieces)}H', *pieces))
    with open(f'{WORK}/vocab.txt', 'w') as f: f.write('\n'.join(special + WORDS) + '\n')


def options(name, sizes):
    with open(f'{EXAMPLES}/{name}.shard') as f: text = f.read()
    more = ['--set', 'train.data.eot=3'] if name == 'bert' else []
    sizes = {k: n for k, n in {**SIZES, **sizes}.items() if re.search(rf'\b{k}\b', text.split('\nlayout ')[0])}
    return [w for k, n in sizes.items() for w in ('-D', f'{k}={n}')] + more + \
        [w for k, v in SETTINGS.items() for w in ('--set', f'train.{k}={v}')]


def losses(name, target, sizes, data):
    exe = f'{name}.{target}'
    run(SHARDC, 'compile', f'{EXAMPLES}/{name}.shard', '-o', f'./{exe}', '--target', target, '-q', '--quick',
        *options(name, sizes), cwd=WORK)
    start = [f'./{exe}'] if target != 'sm_80' else [SHARDC, 'run', '-n', '1', '--emulate', f'./{exe}', '--']
    run(*start, 'train', '--data', data, '--valid', data, '--out', f'{exe}.out', cwd=WORK)
    with open(f'{WORK}/{exe}.out/metrics.jsonl') as f: return [x['loss'] for x in map(json.loads, f) if 'loss' in x]


write_data()
for name, (small, tiny, data, falls) in ROWS.items():
    a = losses(name, 'native', tiny if EMULATE else small, data)
    check(len(a) == STEPS, f'{name}: {len(a)} steps')
    if EMULATE:
        b = losses(name, 'sm_80', tiny, data)
        check(max(abs(x - y) for x, y in zip(a, b)) < 2e-4, f'{name}: {a} on processors, {b} on the stand-in')
    else:
        check(sum(a[-5:]) / 5 < a[0] - falls, f'{name} learns: {a[0]:.3f} to {a[-5:]}')
    print(name, [round(x, 3) for x in a[:3]], '..', round(a[-1], 3))
if not EMULATE:  # a layer of BERT keeps 16 numbers of Embed a position and some per row: of gelu no more than x and y
    said, _ = run(SHARDC, 'plan', f'{EXAMPLES}/bert.shard', '--json', '--set', 'train.batch=1', '--target', 'x86_64_v3')
    saved = json.loads(said.splitlines()[0])['classes'][0]['bytes']['saved'] / (12 * 4096 * 768 * 4)
    check(16 <= saved < 16.1, f'bert keeps {saved:.2f} numbers of Embed a position')
shutil.rmtree(WORK)
