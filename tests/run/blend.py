"""`shardc data blend`: the file is that of the formula in driver/data/data_blend.c, for random sources, weights and
lengths, with documents by a token or by an index; a run reads samples of three epochs in one order, under 1, then 4,
then 2 ranks; refusals.

    blend.py SHARDC
"""
import json, os, random, re, subprocess, sys
from common import check, read, run, workdir

SHARDC, WORK = os.path.abspath(sys.argv[1]), workdir()
os.chdir(WORK)
EOT = 7


def documents(rng, n):
    """Lists of tokens that end in EOT; the last one of a file may lack it."""
    docs = [[rng.randrange(7) for _ in range(rng.randrange(12))] + [EOT] for _ in range(n)]
    return docs if rng.random() < 0.5 else docs[:-1] + [[rng.randrange(7) for _ in range(5)]]


def tokens(path):
    data = read(path)
    return [int.from_bytes(data[i:i + 2], 'little') for i in range(0, len(data), 2)]


def save(path, docs): open(path, 'wb').write(b''.join(t.to_bytes(2, 'little') for d in docs for t in d))


def blended(sources, weights, most):
    total = sum(weights)
    shares, taken, at, out = [w / total for w in weights], [0] * len(weights), [0] * len(weights), []
    while not most or len(out) < most:
        lags = [w * (len(out) + 1) - t for w, t in zip(shares, taken)]
        i = lags.index(max(lags))
        if at[i] == len(sources[i]):
            if not most: break
            at[i] = 0
        out += sources[i][at[i]]
        taken[i] += len(sources[i][at[i]])
        at[i] += 1
    return out, taken


def formula():
    rng = random.Random(5)
    for case in range(40):
        n = rng.randrange(1, 5)
        sources = [documents(rng, rng.randrange(1, 30)) for _ in range(n)]
        weights = [rng.choice((0.1, 0.5, 1, 2, 7.25)) for _ in range(n)]
        most = rng.choice((0, 1, 300, 900))
        for i, docs in enumerate(sources):                          # in two files, which a pattern takes in name order
            save(f's{i}_0.bin', docs[:1]), save(f's{i}_1.bin', docs[1:] or docs[:1])
            if not docs[1:]: sources[i] = docs * 2
        said = run(SHARDC, 'data', 'blend', *(f's{i}_*.bin={w}' for i, w in enumerate(weights)), '--from', 'u16',
                   '--eot', str(EOT), '-o', 'mix.u16', '--to', 'u16', *(['--tokens', str(most)] if most else []))[0]
        want, taken = blended(sources, weights, most)
        check(tokens('mix.u16') == want, f'case {case}: {weights}, {most}')
        for i, t in enumerate(taken): check(f's{i}_*.bin: {t} tokens' in said, f'{taken}: {said}')


def indexed():
    """Documents of Megatron's index, which the blend's index has as well."""
    rng = random.Random(6)
    for name in 'ab':
        docs = [[rng.randrange(100) for _ in range(rng.randrange(1, 9))] for _ in range(20)]
        save(f'{name}.u16', docs)
        lines = [json.dumps({'text': ' '.join(f'w{t}' for t in d)}) for d in docs]
        open(f'{name}.jsonl', 'w').write('\n'.join(lines))
    open('vocab.txt', 'w').write('[PAD]\n[UNK]\n' + ''.join(f'w{i}\n' for i in range(100)))
    for name in 'ab':
        run(SHARDC, 'data', 'tokenize', f'{name}.jsonl', '--tokenizer', 'vocab.txt', '--to', 'megatron', '-o',
            f'{name}.bin')
    run(SHARDC, 'data', 'blend', 'a=3', 'b=1', '--tokens', '200', '--to', 'megatron', '-o', 'mix.bin')
    files = json.loads(run(SHARDC, 'data', 'info', 'mix.bin', '--json')[0])['files'][0]
    check(files['format'] == 'megatron' and files['documents'] > 20 and 200 <= files['numbers'] < 209, str(files))


MODEL = '''use "std"
dims { Batch, Seq; Vocab = 8; Embed = 4 }
model M {
  input tokens, targets [Batch, Seq] of Vocab
  param w [Vocab, Embed] ~ normal(1)
  sub out = Linear[Embed -> Vocab] with init = normal(1)
  loss cross_entropy[Vocab](out(w[Vocab = tokens]), targets)
}
train t for M { size Seq = 4; batch 4; steps 30; data "run.u16" format = u16; optim sgd lr = 1e-9; save every = 8 }
plan one for M { micro 4 }
plan four for M { mesh data = 4; place Batch -> data; zero 2 }
plan two for M { mesh data = 2; place Batch -> data; micro 1 }
'''


def order():
    """40 samples are 10 steps: the losses of 30 steps say which samples each step had, as the rate changes nothing."""
    open('m.shard', 'w').write(MODEL)
    rng = random.Random(9)
    save('run.u16', [[rng.randrange(8) for _ in range(161)]])
    for plan in 'one', 'four', 'two': run(SHARDC, 'compile', 'm.shard', '--plan', plan, '-o', plan, '--quick')
    told = run('./one', 'train', '--out', 'whole', '--profile')[1]
    check(re.search(r'data: .* ms of reading .* waited for; \S+ tokens/s', told), told)
    run('./one', 'train', '--out', 'r', '--steps', '8')
    run(SHARDC, 'run', './four', '-n', '4', '--', 'train', '--out', 'r', '--resume', '--steps', '19')
    run(SHARDC, 'run', './two', '-n', '2', '--', 'train', '--out', 'r', '--resume')
    losses = lambda out: [json.loads(x)['loss'] for x in open(f'{out}/metrics.jsonl') if '"loss"' in x]
    have, want = losses('r'), losses('whole')
    check(len(have) == len(want) == 30 and max(abs(a - b) for a, b in zip(have, want)) < 1e-6, f'{have}, not {want}')
    epochs = [want[i:i + 10] for i in (0, 10, 20)]
    check(epochs[0] != epochs[1] != epochs[2] and max(abs(sum(e) - sum(epochs[0])) for e in epochs) < 1e-4, f'{epochs}')


def refusals():
    save('s.bin', [[1, 2, EOT]]), open('empty.u16', 'wb').write(b'')
    for words, says in ((['s.bin', '-o', 'x.bin'], 'FILES=WEIGHT'), (['s.bin=0', '-o', 'x.bin'], 'FILES=WEIGHT'),
                        (['s.bin=nan', '-o', 'x.bin'], 'FILES=WEIGHT'), (['s.bin=1', '-o', 'x.bin'], '--eot ID'),
                        (['s.bin=1', '--eot', 'x', '-o', 'x.bin'], 'whole number'),
                        (['s.bin=1', '--eot', '7', '--tokens', '0', '-o', 'x.bin'], 'whole number'),
                        (['none.bin=1', '--eot', '7', '-o', 'x.bin'], 'none.bin'),
                        (['s.bin=1', '--eot', '30000', '-o', 'x.bin'], 'has no token 30000'),
                        (['s.bin=1', '--eot', str(EOT), '-o', 's.bin'], 'would overwrite the input'),
                        (['s.bin=1', '--eot', '7', '--pack', '-o', 'x.bin'], 'no option `--pack`')):
        p = subprocess.run([SHARDC, 'data', 'blend', *words], capture_output=True, text=True)
        check(p.returncode and says in p.stderr and not os.path.exists('x.bin'), f'{words}: {p.stderr}')


for case in formula, indexed, order, refusals:
    case()
    print(case.__name__, 'good', flush=True)
