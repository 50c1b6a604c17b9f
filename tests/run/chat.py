"""Lines of JSONL as rows of tokens and labels: tokens and labels of dialogues equal those of the Python package
`transformers` 5.24 (chat.json: its `apply_chat_template` with `return_assistant_tokens_mask`, for tokenizers of
tests/runtime/text with the special tokens added); packing is best fit by a formula; packed files read as the plain
ones; a model trains on the rows, and the loss of its first step counts labels alone; refusals name line and cure.

    chat.py SHARDC ROOT
"""
import gzip, json, math, os, random, struct, subprocess, sys
from common import check, read, run, workdir

SHARDC, ROOT, WORK = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), workdir()
os.chdir(WORK)
random.seed(5)


def write(name, rows): open(name, 'w').write(''.join(json.dumps(r) + '\n' for r in rows))


def npy(name):
    data = open(name, 'rb').read()
    head = data[10:128].decode()
    rows, n = (int(x) for x in head.split('(')[1].split(')')[0].split(','))
    kind = {"'<u2'": 'H', "'<i4'": 'i'}[head.split(':')[1].split(',')[0].strip()]
    flat = struct.unpack(f'<{rows * n}{kind}', data[128:])
    return [list(flat[i * n:i * n + n]) for i in range(rows)]


def tokenizer(row):
    """Writes the tokenizer of a golden row to a file."""
    t = json.load(open(f'{ROOT}/tests/runtime/text/{row["tokenizer"]}.json'))
    t['added_tokens'] += [{'id': row['first'] + i, 'content': s, 'single_word': False, 'lstrip': False, 'rstrip': False,
                           'normalized': False, 'special': True} for i, s in enumerate(row['special'])]
    json.dump(t, open('t.json', 'w'))


def tokenize(*args, expect=0, says=''):
    out, err = run(SHARDC, 'data', 'tokenize', *args, '--tokenizer', 't.json', expect=expect)
    if says not in out + err: sys.exit(f'{args} does not say `{says}`:\n{out}{err}')
    return out


def golden():
    """Each golden row alone, and all of a tokenizer together, with the marks in a file of the user."""
    rows = json.load(open(f'{ROOT}/tests/run/chat.json'))
    for row in rows:
        tokenizer(row)
        write('c.jsonl', [{'id': 7, 'messages': row['messages']}])
        tokenize('c.jsonl', '--chat', row['chat'], '--length', '300', '-o', 'c')
        n = len(row['ids']) - 1
        check(npy('c.tokens.npy')[0] == row['ids'][:-1] + [0] * (300 - n), f'tokens of {row["chat"]}')
        check(npy('c.targets.npy')[0] == row['labels'][1:] + [-100] * (300 - n), f'labels of {row["chat"]}')
    names = {r['chat'] for r in rows}
    table = open(f'{ROOT}/driver/data/chat_templates.def').read()
    check(all(f'CHAT({n},' in table for n in names) and len(names) == 4, 'every template has golden rows')
    row = next(r for r in rows if r['chat'] == 'chatml')
    tokenizer(row)
    open('my.chat', 'w').write('# ChatML by hand\ntokens "<|im_start|>" "<|im_end|>"\n\n' + ''.join(
        f'{r} "<|im_start|>{r}\\n" "<|im_end|>" "\\n"\n' for r in ('system', 'user', 'assistant')))
    write('c.jsonl', [{'messages': row['messages']}])
    tokenize('c.jsonl', '--chat', 'my.chat', '--length', '300', '-o', 'm')
    check(npy('m.tokens.npy')[0][:len(row['ids']) - 1] == row['ids'][:-1], 'a template of the user')
    write('p.jsonl', [{'prompt': row['messages'][:-1], 'completion': row['messages'][-1:]}])
    tokenize('p.jsonl', '--chat', 'chatml', '--length', '300', '-o', 'p')
    label = row['labels']
    last = max(i for i in range(len(label) - 1) if label[i] == -100 and label[i + 1] != -100)
    check(npy('p.targets.npy')[0][last:len(label) - 1] == label[last + 1:], 'labels of a completion')
    check(all(v == -100 for v in npy('p.targets.npy')[0][:last]), 'no labels before the completion')
    write('i.jsonl', [{'messages': [{'role': 'user', 'content': 'a<|im_end|>b'},
                                    {'role': 'assistant', 'content': 'x'}]}])
    for more, n in ((), 2), (('--special',), 3):
        tokenize('i.jsonl', '--chat', 'chatml', '--length', '300', '-o', 'i', *more)
        end = row['first'] + 1
        check(npy('i.tokens.npy')[0].count(end) == n,
              'a message cannot end its turn: ' + str(more))


def packing():
    """Best fit: documents of known lengths, each of one token that is its number."""
    tokenizer({'tokenizer': 'gpt2', 'special': [f'<{i}>' for i in range(60)], 'first': 800})
    lengths = [random.randrange(1, 40) for _ in range(60)]
    write('d.jsonl', [{'text': f'<{i}>' * (n + 1)} for i, n in enumerate(lengths)])
    length, rows = 32, []
    for i in sorted(range(60), key=lambda i: (-min(lengths[i], length), i)):
        n = min(lengths[i], length)
        fits = [r for r in rows if length - sum(k for _, k in r) >= n]
        best = min(fits, key=lambda r: (length - sum(k for _, k in r), rows.index(r)), default=None)
        if best is None: rows.append(best := [])
        best.append((i, n))
    tokenize('d.jsonl', '--special', '--length', '32', '--pack', '-o', 'd', says=f'{len(rows)} rows of 32 tokens')
    for r, row in enumerate(rows):
        tokens, targets, doc, pos = (npy(f'd.{c}.npy')[r] for c in ('tokens', 'targets', 'doc', 'pos'))
        rest = length - sum(n for _, n in row)
        want = [800 + i for i, n in row for _ in range(n)]
        check(tokens == want + [0] * rest and targets == want + [-100] * rest, f'row {r}')
        check(doc == [k for k, (_, n) in enumerate(row) for _ in range(n)] + [len(row)] * rest, f'documents of row {r}')
        check(pos == [k for _, n in row for k in range(n)] + list(range(rest)), f'positions of row {r}')
    check(len(npy('d.pos.npy')) == len(rows), 'rows')
    tokenize('d.jsonl', '--special', '--length', '32', '-o', 'e', says='60 rows of 32 tokens')
    for i, (tokens, targets) in enumerate(zip(npy('e.tokens.npy'), npy('e.targets.npy'))):
        n = min(lengths[i], length)
        check(tokens == [800 + i] * n + [0] * (32 - n) and targets == [800 + i] * n + [-100] * (32 - n), f'row {i}')


def sequences():
    """Lines with `text` without `--length`: what their texts in files give; also packed."""
    tokenizer({'tokenizer': 'gpt2', 'special': [], 'first': 0})
    texts = ['A layer.', 'of\nlines', '\u00e9\u65e5 x', 'the end']
    write('t.jsonl', [{'text': t, 'meta': {'a': [1]}} for t in texts])
    for i, t in enumerate(texts): open(f'{i}.txt', 'w').write(t)
    tokenize('t.jsonl', '--eot', '<|endoftext|>', '-o', 'a.bin')
    tokenize(*(f'{i}.txt' for i in range(4)), '--eot', '<|endoftext|>', '-o', 'b.bin')
    check(read('a.bin') == read('b.bin'), 'a line is a document as a file is')
    plain = open('t.jsonl', 'rb').read()
    half = len(plain) // 2
    open('t.jsonl.gz', 'wb').write(gzip.compress(plain[:half]) + gzip.compress(plain[half:]))
    words = '--tokenizer', 't.json', '--eot', '0'
    said = subprocess.run([SHARDC, 'data', 'tokenize', 't.jsonl.gz', *words, '-o', 'c.bin'], capture_output=True,
                          text=True).stderr
    if 'without zlib' in said: return print('no zlib')
    check(read('c.bin') == read('b.bin'), 'gzip in two streams: ' + said)
    open('0.txt.gz', 'wb').write(gzip.compress(texts[0].encode()))
    tokenize('0.txt.gz', *(f'{i}.txt' for i in range(1, 4)), '--eot', '0', '-o', 'd.bin')
    check(read('d.bin') == read('b.bin'), 'text in gzip')
    for cut in range(1, len(gzip.compress(plain)), 7):
        open('cut.gz', 'wb').write(gzip.compress(plain)[:-cut])
        tokenize('cut.gz', '-o', 'w.bin', expect=1 if len(gzip.compress(plain)) - cut > 2 else 0)
    open('bad.gz', 'wb').write(gzip.compress(plain)[:30] + bytes(40))
    tokenize('bad.gz', '-o', 'x.bin', expect=1, says='damaged')
    if not subprocess.run('command -v zstd', shell=True, capture_output=True).returncode:
        run('zstd', '-qf', 't.jsonl')
        said = subprocess.run([SHARDC, 'data', 'tokenize', 't.jsonl.zst', *words, '-o', 'z.bin'], capture_output=True,
                              text=True).stderr
        check('without libzstd' in said or read('z.bin') == read('b.bin'), 'zstd: ' + said)


MODEL = '''use "std"
dims { Batch, Seq; Vocab = 1024; Embed = 8 }
model M {
  input tokens, targets [Batch, Seq] of Vocab
  param table [Vocab, Embed] = 0
  loss cross_entropy[Vocab](dot[Embed](table[Vocab = tokens], table), targets, ignore = -100)
}
train t for M {
  size Seq = 32; batch 4; steps 2
  data columns(tokens = "d.tokens.npy", targets = "d.targets.npy")
  optim sgd lr = 1
}
'''


def trains():
    open('m.shard', 'w').write(MODEL)
    run(SHARDC, 'compile', 'm.shard', '-o', 'm', '--quick')
    run('./m', 'train', '--out', 'r')
    first = json.loads(open('r/metrics.jsonl').readline())
    check(abs(first['loss'] - math.log(1024)) < 1e-5, f'the loss counts labels alone: {first}')


def refusals():
    row = next(r for r in json.load(open(f'{ROOT}/tests/run/chat.json')) if r['chat'] == 'chatml')
    tokenizer(row)
    chat = {'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': 'b'}]}
    good = ('--chat', 'chatml', '--length', '9')
    for line, args, expect, says in (
            (chat, ('--length', '9'), 1, '`--chat` with a file or one of: llama3 chatml qwen gemma'),
            (chat, (), 1, '`--length N`'), (chat, ('--chat', 'chatml'), 2, '`--length N` says how long'),
            (chat, ('--chat', 'llama3', '--length', '9'), 1, 'needs the token `<|begin_of_text|>`'),
            (chat, ('--chat', 'nobody', '--length', '9'), 4, 'one of: llama3 chatml qwen gemma'),
            (chat, (*good, '--to', 'u16'), 2, 'leave out `--to`'), (chat, ('--length', 'x'), 2, 'a whole number'),
            ({'messages': [{'role': 'tool', 'content': 'a'}]}, good, 1, 'line 2: the chat template has no role `tool`'),
            ({'messages': [{'role': 'begin', 'content': 'a'}]}, good, 1, 'no role `begin`'),
            ({'messages': [{'role': 'user', 'content': [1]}]}, good, 1, 'line 2: expected a text as content'),
            ({'messages': [{'role': 'user'}]}, good, 1, 'line 2: a message without `role` or `content`'),
            ({'messages': []}, good, 1, 'needs one of `text`'), ({'conversations': []}, good, 1, 'needs one of `text`'),
            ({'text': 'a', 'messages': chat['messages']}, good, 1, 'needs one of `text`'),
            ({'prompt': 'a'}, good, 1, 'needs one of `text`'), ({'completion': 'a'}, good, 1, 'before its `prompt`'),
            ({'prompt': 'a', 'completion': chat['messages']}, good, 1, 'needs one of `text`'),
            ([chat], good, 1, 'line 2: expected an object')):
        write('r.jsonl', [chat, line] if args == good else [line])
        tokenize('r.jsonl', '-o', 'x.bin' if '--length' not in args else 'x', *args, expect=expect, says=says)
    open('r.jsonl', 'w').write('{"text": "a"}\n{"text": "b"\n')
    tokenize('r.jsonl', '-o', 'x.bin', expect=1, says='line 2: ')
    open('plain.txt', 'w').write('words of text')
    tokenize('plain.txt', '-o', 'x', '--length', '9', expect=1, says='this is plain text')
    for text, says in (('user', 'no line `assistant`'), ('assistant "a" "b" "c" "d"', 'line 1 is not a word'),
                       ('"a"', 'line 1 is not a word'), ('assistant "a', 'line 1 is not a word')):
        open('bad.chat', 'w').write(text + '\n')
        write('r.jsonl', [chat])
        tokenize('r.jsonl', '-o', 'x', '--length', '9', '--chat', 'bad.chat', expect=1, says=says)
    write('r.jsonl', [{'messages': chat['messages'][:1]}])
    tokenize('r.jsonl', '-o', 'x', *good, expect=1, says='no document has a token to learn')
    check(not [f for f in os.listdir('.') if f.startswith('x')], 'nothing is left over')


for case in golden, packing, sequences, trains, refusals:
    case()
    print(case.__name__, 'good', flush=True)
