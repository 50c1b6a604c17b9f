"""`shardc data`, and an executable that was trained on its tokens: info, convert, tokenize, sampling by a
prompt.   data.py SHARDC ROOT"""
import json, os, re, struct, subprocess, sys, tempfile

SHARDC, ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
TEXT = f'{ROOT}/tests/runtime/text'
D = tempfile.mkdtemp(prefix='shardc data ')


def run(*args, expect=0, says='', exe=SHARDC):
    p = subprocess.run([exe, *args], cwd=D, capture_output=True, timeout=1200, env=dict(os.environ, NO_COLOR='1'))
    out = p.stdout.decode('utf-8', 'replace') + p.stderr.decode('utf-8', 'replace')
    if p.returncode != expect or says not in out: sys.exit(f'{" ".join(args)}\n  exit {p.returncode}, expected {expect} and `{says}`\n{out}')
    return out


def data(*args, **kw): return run('data', *args, **kw)
def path(name): return os.path.join(D, name)
def read(name): return open(path(name), 'rb').read()


def check(ok, what):
    if not ok: sys.exit('failed: ' + what)


def vectors(name):
    """Strings and ids that the reference gave, as in test_text.c."""
    for line in open(f'{TEXT}/vectors.txt'):
        w = line.split()
        if w[0] == name and w[1] == '0' and w[2].rstrip(':') not in ('mixed', 'every', '-'):
            yield bytes.fromhex(w[2].rstrip(':')), [int(x) for x in w[3:]]


def tokenize():
    end = 0
    for tokenizer, name in ('gpt2.json', 'gpt2'), ('llama3.json', 'llama3'), ('bert.json', 'bert'), ('gpt2-vocab.json',
            'gpt2'), ('bert-vocab.txt', 'bert'):
        files, want = [], []
        for i, (text, ids) in enumerate(vectors(name)):
            open(path(f'{i}.txt'), 'wb').write(text)
            files.append(f'{i}.txt'); want += [*ids, end]
        data('tokenize', *files, '--tokenizer', f'{TEXT}/{tokenizer}', '--eot', str(end), '-o', 't.bin',
             '--from', 'bytes', says=f't.bin: {len(want)} tokens')
        b = read('t.bin')
        check(struct.unpack('<3i', b[:12]) == (20240520, 1, len(want)), 'head of llm.c')
        check(list(struct.unpack(f'<{len(want)}H', b[1024:])) == want, f'tokens of {tokenizer}')
        data('tokenize', *files, '--tokenizer', f'{TEXT}/{tokenizer}', '--eot', str(end), '-o', 'p.bin', '--to',
             'megatron', '--from', 'bytes')
        check(f'{len(files)} documents' in data('info', 'p.bin'), 'a document per file')
    open(path('s.txt'), 'w').write('a<|endoftext|>b')
    for more, n in ([], 8), (['--special'], 3):
        data('tokenize', 's.txt', '--tokenizer', f'{TEXT}/gpt2.json', '-o', 's.u16', *more)
        check((len(read('s.u16')) // 2 == 3) == (n == 3), 'names of special tokens')
    text = data('info', 's.u16', '--head', '9', '--tokenizer', f'{TEXT}/gpt2.json', says='a<|endoftext|>b')
    check('s.u16: u16, u16, 3 numbers, 0 to ' in text, 'info')


def convert():
    tokens = [7 * i % 60000 for i in range(10000)]
    open(path('all.bin'), 'wb').write(struct.pack('<10000H', *tokens))
    data('convert', 'all.bin', '-o', 'all.npy')
    data('convert', 'all.npy', '-o', 'c.bin', '--to', 'llmc')
    data('convert', 'c.bin', '-o', 'm.bin', '--to', 'megatron')
    data('convert', 'm', '-o', 'w.u32')
    data('convert', 'w.u32', '-o', 'back.bin', '--to', 'u16')
    check(read('back.bin') == read('all.bin'), 'around all formats')
    data('convert', 'all.bin', '-o', 'part.bin', '--shard', '3000',
         says='part_000003.bin and 3 before it: 10000 tokens')
    info = json.loads(data('info', 'part_*.bin', '--json'))
    check([f['numbers'] for f in info['files']] == [3000, 3000, 3000, 1000] and info['files'][0]['format'] == 'llmc',
          'shards')
    check('4 files, 10000 numbers' in data('info', 'part_*.bin'), 'sum of shards')
    data('convert', 'part_*.bin', '-o', 'again.bin', '--to', 'u16')
    check(read('again.bin') == read('all.bin'), 'shards together')
    open(path('wide.u32'), 'wb').write(struct.pack('<3I', 1, 70000, 2))
    data('convert', 'wide.u32', '-o', 'wide.bin')
    check(struct.unpack('<I', read('wide.bin')[:4])[0] == 20240801, 'wide tokens')
    data('convert', 'wide.u32', '-o', 'x.bin', '--to', 'u16', expect=1, says='E1402')
    data('convert', 'wide.u32', '-o', 'x.bin', '--to', 'u32', expect=2, says='would not be read as u32 again')
    check(not [f for f in os.listdir(D) if f.endswith('.part') or f.startswith('x.')], 'nothing is left over')


def refusals():
    open(path('bad.npy'), 'wb').write(b'\x93NUMPY\1\0\xff\xff')
    data('info', 'bad.npy', expect=1, says='E1401')
    data('info', 'absent', expect=4, says='E0001')
    data('look', 'x', expect=2, says='info, convert, tokenize or blend')
    data('info', 'all.bin', '--eot', '1', expect=2, says='no option `--eot`')
    data('tokenize', 's.txt', '-o', 'x.bin', expect=2, says='--tokenizer')
    for number in 'x', '-1', 'inf': data('info', 's.txt', '--head', number, expect=2, says='whole number')
    data('info', 's.txt', '--head', '', expect=2, says='was given nothing')
    words = '-o', 'x.bin', '--tokenizer', f'{TEXT}/gpt2.json'
    data('tokenize', 's.txt', '--from', 'u16', *words, expect=2, says='only `--from bytes`')
    for content, says in ((b'PAR1' + bytes(40), 'Parquet'), (b'\xfd7zXZ\0' + bytes(40), 'unxz'),
                          (b'[{"text": "a"}]' * 9, 'JSON'), (('a text' * 9).encode('utf-16'), 'iconv'),
                          (bytes(range(99)), 'no zero bytes')):
        open(path('wrong'), 'wb').write(content)
        said = data('tokenize', 'wrong', *words, expect=1, says=says)
        check('`--from bytes` insists' in said and not os.path.exists(path('x.bin')), said)
        data('tokenize', 'wrong', '--from', 'bytes', *words, says='x.bin: ')
        os.remove(path('x.bin'))
    for lines, many in ('', 0), ('\n\n', 0), ('\n{"text":""}\n', 1):
        open(path('few.jsonl'), 'w').write(lines)
        data('tokenize', 'few.jsonl', '-o', 'x.bin', '--tokenizer', f'{TEXT}/gpt2.json', '--eot', '600',
             says=f'x.bin: {many} token')
        os.remove(path('x.bin'))
    open(path('few.jsonl'), 'w').write('[1, 2]\n')
    data('tokenize', 'few.jsonl', '-o', 'x.bin', '--tokenizer', f'{TEXT}/gpt2.json', expect=1, says='line 1')
    data('tokenize', 's.txt', '-o', 'x.bin', '--tokenizer', f'{TEXT}/gpt2.json', '--eot', 'nobody', expect=2,
         says='nobody')
    open(path('kind.json'), 'w').write('{"normalizer":{"type":"Nmt"}}')
    data('tokenize', 's.txt', '-o', 'x.bin', '--tokenizer', 'kind.json', expect=1, says='`Nmt`')


def sample():
    source = open(f'{ROOT}/examples/tiny.shard').read()
    line = next(x for x in source.split('\n') if x.strip().startswith('data '))
    source = source.replace(line, '  data "train.bin" valid = 10% tokenizer = "gpt2.json"').replace('Vocab  = 256',
            'Vocab  = 704')
    open(path('words.shard'), 'w').write(source)
    open(path('gpt2.json'), 'w').write(open(f'{TEXT}/gpt2.json').read())
    data('tokenize', f'{ROOT}/docs/language.md', '--tokenizer', 'gpt2.json', '-o', 'train.bin')
    run('compile', '--quick', 'words.shard', '-o', 'words')
    exe = path('words')
    run('train', '--steps', '3', '--out', 'r', exe=exe)
    check(read('r/tokenizer/tokenizer.json') == read('gpt2.json'), 'the run keeps the tokenizer')
    os.rename(path('gpt2.json'), path('gone.json'))
    out = run('sample', '--out', 'r', '--prompt', 'The layer\u2019s', '--tokens', '20', exe=exe)
    check(out.startswith('The layer\u2019s') and not out[11:].strip().isdigit(),
          'a prompt goes through the tokenizer: ' + out)
    ask = ['sample', '--out', 'r', '--prompt', 'The', '--tokens', '4000', '--temperature', '1e30']  # any token
    out, whole = run(*ask, exe=exe), run(*ask, '--ignore-eos', exe=exe)
    check('<|endoftext|>' in whole and out == whole.split('<|endoftext|>')[0] + '\n', 'an end of text ends the sample')
    data('tokenize', 's.txt', '--tokenizer', 'gone.json', '-o', 's.u16')
    first = struct.unpack('<H', read('s.u16')[:2])[0]
    run('compile', '--quick', 'words.shard', '--set', f'data.eot={first}', '-o', 'ends')        # s.txt begins with an a
    out, whole = run(*ask, exe=path('ends')), run(*ask, '--ignore-eos', exe=path('ends'))
    check(whole.startswith(out[:-1]) and len(out) < len(whole) and not re.search('<.endoftext.>', out), 'eot is an end')
    check(whole[len(out) - 1] == 'a', 'the sample ends before the token of the data line')
    open(path('gpt2.json'), 'w').write(open(f'{TEXT}/llama3.json').read())
    run('train', '--steps', '5', '--out', 'r', '--resume', exe=exe, expect=2, says='another tokenizer')
    os.remove(path('gpt2.json'))
    run('train', '--steps', '5', '--out', 'q', exe=exe, expect=4, says='R0206')


def numbers():
    """Without a tokenizer tokens are numbers, also of the prompt; of few words each byte is one."""
    source = open(f'{ROOT}/examples/tiny.shard').read()
    line = next(x for x in source.split('\n') if x.strip().startswith('data '))
    for vocab, more in (704, ''), (7, ' eot = 1 pad_id = 0 pack = off'):
        text = source.replace(line, f'  data "few.u16"{more}').replace('Vocab  = 256', f'Vocab  = {vocab}')
        text = text.replace('targets)\n', 'targets, ignore = -100)\n')
        open(path('few.shard'), 'w').write(text)
        open(path('few.u16'), 'wb').write(struct.pack('<4000H', *(i * i % vocab for i in range(4000))))
        run('compile', '--quick', 'few.shard', '-o', f'few{vocab}')
        run('train', '--steps', '1', '--out', f'few-{vocab}', exe=path(f'few{vocab}'))
    ask = lambda vocab, *a, **how: run('sample', '--out', f'few-{vocab}', '--tokens', '5', *a, exe=path(f'few{vocab}'),
                                       **how)
    out = ask(704, '--prompt', ' 12 703\n4')
    check(out.startswith('12 703 4 ') and len(out.split()) == 8, 'numbers are tokens: ' + out)
    check(len(ask(704).split()) == 5, 'a beginning of its own')
    for wrong in '12 704', 'To be', '-1', '1,2', '99999999999999999999':
        ask(704, '--prompt', wrong, expect=2, says=f'0 to 703, not `{wrong.split(" ")[0 if wrong == "To be" else -1]}`')
    check(len(ask(7)) >= 5, 'no byte of a new line among seven words')
    ask(7, '--prompt', '1', expect=4, says='byte 49 is not below 7')
    open(path('ends.u16'), 'wb').write(struct.pack('<9H', *[1] * 9))
    run('train', '--data', 'ends.u16', '--out', 'ends', exe=path('few7'), expect=4, says='no document has the 2 tokens')


for case in tokenize, convert, refusals, sample, numbers:
    case()
    print(case.__name__, 'good', flush=True)
subprocess.run(['rm', '-r', D])
