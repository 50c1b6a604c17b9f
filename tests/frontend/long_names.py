"""Names at and over their limits: long_names.py SHARDC

A name has at most 100 bytes, the path of a parameter 200, its name in a weights file 200 with the prefix. One byte more
is refused at the word. A model whose names are all as long as they may be is compiled, trained, saved, resumed and
exported, and the exported file initialises it again.
"""
import json, os, re, struct, subprocess, sys, tempfile

SHARDC = os.path.abspath(sys.argv[1])
MODEL = '''use "std"
dims {{ Batch, Seq; Vocab = 32; {dim} = 8; Layers = 2 }}
layer Block(x: [Batch, Seq, {dim}]) -> [Batch, Seq, {dim}] {{
  param {param} [{dim}] = 1
  return x * {param}
}}
model M {{
  input tokens, targets [Batch, Seq] of Vocab
  param table [Vocab, {dim}] ~ normal(1)
  stack {stack} [Layers] of Block
  x = {stack}(table[Vocab = tokens])
  loss cross_entropy[Vocab](dot[{dim}](x, table), targets)
}}
weights hf for M {{
  prefix "{prefix}"
  table <- "{table}"
  {stack}.*.{param} <- "{file}*"
}}
train t for M {{
  size  Seq = 8
  batch 2
  steps 2
  data  "a.bin"
  optim adamw lr = 1e-3
  lr constant
  save  every = 1
}}
'''
# Path of the stacked parameter: STACK.*.PARAM
AT_LIMIT = dict(dim='D' * 100, stack='s' * 100, param='p' * 97, prefix='x' * 50, table='t' * 150, file='f' * 149)
wrong = []


def run(folder, *command):
    r = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return r


def source(folder, **changed):
    text = MODEL.format(**dict(AT_LIMIT, **changed))
    with open(f'{folder}/m.shard', 'w') as file: file.write(text)
    return text


def refuses(folder, code, word, **changed):
    text = source(folder, **changed)
    offset = text.index(word)
    place = f'm.shard:{text.count(chr(10), 0, offset) + 1}:{offset - text.rfind(chr(10), 0, offset)}'
    r = run(folder, SHARDC, 'check', 'm.shard')
    said = re.findall(r'error\[(\w+)\].*?\n +--> (\S+)', r.stderr)
    if r.returncode != 1 or said != [(code, place)]: wrong.append(f'{word}: {said}, not {code} at {place}\n{r.stderr}')


def names_of(path):
    with open(path, 'rb') as file: head = file.read(struct.unpack('<Q', file.read(8))[0])
    return set(json.loads(head)) - {'__metadata__'}


def works(folder):
    source(folder)
    data = bytes(byte for i in range(400) for byte in (i * 7 % 32, 0))
    with open(f'{folder}/a.bin', 'wb') as file: file.write(data)
    for command in ([SHARDC, 'compile', 'm.shard', '-o', 'm'], ['./m', 'train', '--out', 'r', '--steps', '1'],
                    ['./m', 'train', '--out', 'r', '--resume'], ['./m', 'export', '--resume=r', '--out', 'e'],
                    ['./m', 'train', '--out', 'i', '--init', 'e']):
        r = run(folder, *command)
        if r.returncode:
            wrong.append(f'{command}: {r.returncode}\n{r.stdout}{r.stderr}')
            return
    want = {'x' * 50 + 't' * 150} | {'x' * 50 + 'f' * 149 + str(i) for i in range(2)}
    have = names_of(f'{folder}/e/model.safetensors')
    if have != want: wrong.append(f'exported {have}')


with tempfile.TemporaryDirectory() as folder:
    works(folder)
    refuses(folder, 'E0103', 'D' * 101, dim='D' * 101)
    refuses(folder, 'E0103', 's' * 101, stack='s' * 101, param='p' * 90)
    refuses(folder, 'E0103', 'p' * 98, param='p' * 98)
    refuses(folder, 'E0502', '"' + 't' * 151, table='t' * 151)
    refuses(folder, 'E0502', '"' + 'f' * 150, file='f' * 150)
    refuses(folder, 'E0502', '"' + 't' * 150, prefix='x' * 51, file='f' * 100)
print('\n'.join(wrong + [f'{len(wrong)} wrong']))
sys.exit(bool(wrong))
