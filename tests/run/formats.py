"""Files of many formats as data: each trains on the tokens that it holds, or is refused with the cure, by the
executable, by `check`, and (what needs no model) by `data info`.   formats.py SHARDC
"""
import array, bz2, gzip, io, json, lzma, os, pickle, re, shutil, sqlite3, struct, subprocess, sys, tarfile, zipfile
from common import check, run, workdir

shardc, d = os.path.abspath(sys.argv[1]), workdir()
MODEL = '''use "std"
dims { Batch, Seq; Vocab = %d; Embed = 4 }
model M {
  input tokens, targets [Batch, Seq] of Vocab
  param w [Vocab, Embed] ~ normal(0.1)
  x = w[Vocab = tokens]
  loss cross_entropy[Vocab](dot[Embed](x, w), targets)
}
train t for M { size Seq = 8; batch 2; steps 3; data "%s"%s; optim sgd lr = 0.1 }
'''
TEXT = b'Letters of a text that is long enough for some windows of eight,\nand for a second line of it.\n' * 2
LOW = [7 * i % 251 for i in range(200)]                         # below 256
WORDS = [997 * i % 50257 for i in range(200)]
MANY = [90007 * i % 70000 for i in range(200)]


def numbers(kind, values): return array.array(kind, values).tobytes()


def npy(kind, values, shape=None, order='False'):
    head = f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape or (len(values) // 1,)}, }}\n".encode()
    code = {'<u2': 'H', '<u4': 'I', '<i8': 'q', '<f4': 'f', '<i4': 'i', '<c8': 'f'}[kind]
    return b'\x93NUMPY\1\0' + struct.pack('<H', len(head)) + head + numbers(code, values)


def llmc(magic, version, code, values):
    return struct.pack('<3i', magic, version, len(values)) + bytes(1012) + numbers(code, values)


def megatron(values):
    index = b'MMIDIDX\0\0' + struct.pack('<QBQQ', 1, 8, 1, 2) + struct.pack('<i3q', len(values), 0, 0, 1)
    return numbers('H', values), index


def zipped(name, content):
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w') as z: z.writestr(name, content)
    return out.getvalue()


def tarred():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w') as t:
        info = tarfile.TarInfo('a.txt'); info.size = len(TEXT)
        t.addfile(info, io.BytesIO(TEXT))
    return out.getvalue()


def sqlite():
    with sqlite3.connect(f'{d}/x.db') as base: base.execute('create table t (a text)')
    return open(f'{d}/x.db', 'rb').read()


def safetensors(values):
    head = json.dumps({'a': dict(dtype='I64', shape=[len(values)], data_offsets=[0, 8 * len(values)])}).encode()
    return struct.pack('<Q', len(head)) + head + numbers('q', values)


JSONL = b''.join(json.dumps(dict(text=f'line {i}')).encode() + b'\n' for i in range(60))
TOKENIZE, INSIST = r'shardc data tokenize', r'`format = bytes` insists'
# name of the file, its bytes, words of the model, a setting of the data line, then the tokens or words of the refusal
ROWS = [
    ('a.txt', TEXT, 256, '', list(TEXT)),
    ('plain', TEXT, 256, '', list(TEXT)),
    ('a.bin', numbers('H', WORDS), 50257, '', WORDS),
    ('low.bin', numbers('H', LOW), 256, '', LOW),
    ('a.u16', numbers('H', WORDS), 50257, '', WORDS),
    ('a.u32', numbers('I', MANY), 70000, '', MANY),
    ('u16.npy', npy('<u2', WORDS), 50257, '', WORDS),
    ('i64.npy', npy('<i8', MANY), 70000, '', MANY),
    ('c.bin', llmc(20240520, 1, 'H', WORDS), 50257, '', WORDS),
    ('w.bin', llmc(20240801, 7, 'I', MANY), 70000, '', MANY),
    ('m.bin', megatron(WORDS), 50257, '', WORDS),
    ('idx', bytes([0, 0, 8, 1]) + struct.pack('>i', 200) + bytes(LOW), 256, '', LOW),
    ('said.csv', TEXT, 50257, 'bytes', list(TEXT)),
    ('said.jsonl', JSONL, 256, 'bytes', list(JSONL)),
    ('said.bin', numbers('I', MANY), 70000, 'u32', MANY),
    ('said.dat', numbers('H', WORDS), 50257, 'u16', WORDS),
    # formats that are not read
    ('a.parquet', b'PAR1' + bytes(400) + b'PAR1', 256, '', 'Parquet.*' + TOKENIZE),
    ('hidden.bin', b'PAR1' + bytes(400) + b'PAR1', 50257, 'u16', 'Parquet.*' + INSIST),
    ('a.arrow', b'ARROW1\0\0' + bytes(400), 256, '', 'Arrow'),
    ('stream.arrow', b'\xff\xff\xff\xff\x90\1\0\0\x10\0\0\0' + bytes(400), 256, '', 'Arrow'),
    ('a.gz', gzip.compress(TEXT), 256, '', 'gzip.*gunzip'),
    ('gz.bin', gzip.compress(bytes(WORDS[i] % 256 for i in range(200))), 50257, '', 'gzip.*gunzip'),
    ('a.zst', b'\x28\xb5\x2f\xfd' + bytes(400), 256, '', 'zstd.*unzstd'),
    ('a.xz', lzma.compress(TEXT), 256, '', 'xz.*unxz'),
    ('a.bz2', bz2.compress(TEXT), 256, '', 'bzip2.*bunzip2'),
    ('a.zip', zipped('a.txt', TEXT), 256, '', 'zip.*unpack'),
    ('a.npz', zipped('tokens.npy', npy('<u2', WORDS)), 50257, '', 'zip.*numpy.save'),
    ('a.pt', zipped('archive/data.pkl', b'\x80\2'), 50257, '', 'zip.*torch.save'),
    ('a.tar', tarred(), 256, '', 'tar.*tar -xf'),
    ('a.safetensors', safetensors(WORDS), 50257, '', 'safetensors.*numpy.save'),
    ('a.h5', b'\x89HDF\r\n\x1a\n' + bytes(400), 256, '', 'HDF5.*numpy.save'),
    ('a.db', sqlite(), 256, '', 'SQLite'),
    ('a.pkl', pickle.dumps(WORDS, 4), 50257, '', 'pickle.*numpy.save'),
    ('two.pkl', pickle.dumps(WORDS, 2), 50257, '', 'pickle.*numpy.save'),
    ('a.jsonl', JSONL, 256, '', 'JSON.*' + TOKENIZE),
    ('json.txt', JSONL, 256, '', 'JSON.*' + INSIST),
    ('a.json', json.dumps([dict(text='a'), dict(text='b' * 200)], indent=1).encode(), 256, '', 'JSON'),
    ('mark.txt', b'\xef\xbb\xbf' + JSONL, 256, '', 'JSON.*' + INSIST),
    *((f'{code}.txt', TEXT.decode().encode(code), 256, '', 'UTF-%s.*iconv.*' % code[4:6] + INSIST)
      for code in ('utf-16', 'utf-16-le', 'utf-16-be', 'utf-32', 'utf-32-le', 'utf-32-be')),
    ('said.txt', TEXT.decode().encode('utf-16'), 256, 'bytes', list(TEXT.decode().encode('utf-16'))),
    ('a.csv', b'a, b\n1, 2\n' * 40, 256, '', 'CSV.*' + INSIST),
    # formats that are read, and do not say what the name or the model takes them for
    ('bare.npy', numbers('H', WORDS), 50257, '', 'without its header.*numpy.save'),
    ('fortran.npy', npy('<i4', LOW, (20, 10), 'True'), 256, '', 'Fortran order.*ascontiguousarray'),
    ('complex.npy', npy('<c8', LOW, (100,)), 256, '', 'type is <c8.*astype'),
    ('reals.npy', npy('<f4', LOW), 256, '', 'whole numbers'),
    ('rows.npy', npy('<u2', LOW, (20, 10)), 256, '', r'several dimensions.*reshape'),
    ('words.txt', TEXT, 50257, '', 'bytes of a text.*' + TOKENIZE),
    ('text.bin', TEXT, 50257, '', 'this is text.*' + TOKENIZE),
    ('wide.bin', numbers('I', MANY), 70000, '', '70000.*`format = u32`|every second.*`format = u32`'),
    ('wide2.bin', numbers('I', WORDS), 50257, '', 'every second.*`format = u32`'),
    ('long.bin', numbers('q', WORDS), 50257, '', 'every second.*numpy.save'),
    ('narrow.bin', numbers('H', [x % 60000 for x in MANY]), 70000, '', '16 bits.*70000.*`format = u32`'),
    ('high.bin', numbers('H', WORDS), 256, '', 'is not an index of Vocab'),
    ('odd.bin', numbers('H', WORDS) + b'x', 50257, '', 'no whole number'),
    ('u16.dat', numbers('H', LOW), 256, '', r'no text|neither text.*`format = u16`'),
    ('cut.npy', npy('<u2', WORDS)[:-6], 50257, '', 'shorter than its header'),
    ('cut.bin', llmc(20240520, 1, 'H', WORDS)[:-6], 50257, '', 'shorter than its header'),
    ('empty.txt', b'', 256, '', 'empty'),
    ('short.txt', b'six', 256, '', 'no whole sample'),
]
executables, references = {}, {}


def executable(words):
    if words not in executables:
        open(f'{d}/m{words}.shard', 'w').write(MODEL % (words, 'none', ''))
        run(shardc, 'compile', '--quick', f'{d}/m{words}.shard', '-o', f'{d}/m{words}', '-q')
        executables[words] = f'{d}/m{words}'
    return executables[words]


def losses(words, *data, expect=0):
    shutil.rmtree(f'{d}/r', ignore_errors=True)
    _, said = run(executable(words), 'train', '--data', *data, '--out', f'{d}/r', '--quiet', '--save-every', '0',
                  expect=expect)
    if expect: return said
    return [json.loads(line)['loss'] for line in open(f'{d}/r/metrics.jsonl')]


def wanted(words, tokens):
    key = (words, tuple(tokens))
    if key not in references:
        open(f'{d}/reference.u32', 'wb').write(numbers('I', tokens))
        references[key] = losses(words, f'{d}/reference.u32', '--format', 'u32')
    return references[key]


def one(name, content, words, format, result):
    path = f'{d}/{name}'
    if isinstance(content, tuple): open(path[:-4] + '.idx', 'wb').write(content[1]); content = content[0]
    open(path, 'wb').write(content)
    said = f' format = {format}' if format else ''
    open(f'{d}/check.shard', 'w').write(MODEL % (words, path, said))
    option = ['--format', format] if format else []
    if isinstance(result, list):
        check(losses(words, path, *option) == wanted(words, result), f'{name}: trains on other tokens')
        run(shardc, 'check', f'{d}/check.shard')
        return 'trains'
    text = losses(words, path, *option, expect=4)
    check(re.search(result, text, re.S), f'{name}: no `{result}` in\n{text}')
    check('damaged' not in text, f'{name}: called damaged\n{text}') if not name.startswith('cut') else None
    _, text = run(shardc, 'check', f'{d}/check.shard', expect=1)
    check(re.search(result, text, re.S) and '--> ' in text and 'E14' in text, f'{name}: check says\n{text}')
    p = subprocess.run([shardc, 'data', 'info', *(['--from', format] if format else []), path], capture_output=True,
                       text=True, errors='replace', env=dict(os.environ, NO_COLOR='1'))
    result = result.replace('`format = ', '`--from ')
    return 'refused' if re.search(result, p.stderr, re.S) else 'refused for this model'


COLUMN = '''dims { Batch; Row = 3; Chan = 4 }
model M { input x [Batch, Row, Chan]; param w [Chan] ~ normal(1); loss sum[*](x * w) }
train t for M { batch 5; steps 1; data columns(x = "%s/x.npy"); optim sgd }
'''


def column(fits, *sample):
    """Checks whether a column whose rows have these dims fits the input."""
    open(f'{d}/x.npy', 'wb').write(npy('<f4', [1] * 60, (5, *sample)))
    open(f'{d}/column.shard', 'w').write(COLUMN % d)
    said = run(shardc, 'check', f'{d}/column.shard', expect=0 if fits else 1)[1]
    rows = ' x '.join(map(str, sample))
    check(fits or f'E1404]: a sample of input x is 3 x 4 numbers, a row of the file is {rows}' in said, said)


for sample in (3, 4), (12,), (1, 3, 1, 4), (3, 2, 2): column(True, *sample)
for sample in (4, 3), (2, 6), (6, 2), (2, 2, 3), (1, 4, 3, 1): column(False, *sample)
made = [one(*row) for row in ROWS]
for kind in sorted(set(made)): print(f'{kind}: {made.count(kind)}')
shutil.rmtree(d)
