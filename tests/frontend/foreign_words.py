"""Words of other tools: foreign_words.py SHARDC ROOT

The table foreign_words.def is long enough to be of use; the word that it proposes is a word of the language; no word is
listed twice for one place, or is a word of the language where it would never be asked for. A setting of the table
written in a train and in a plan block is refused at the word with the text of the table, and so is a choice; no edit
comes of a name that only looks alike. `explain WORD` says the same. And requests that are made often are each refused
at the word that asks, with help that does not send to another word.
"""
import os, re, subprocess, sys, tempfile

SHARDC, ROOT = os.path.abspath(sys.argv[1]), sys.argv[2]
wrong = []


def text(path): return open(f'{ROOT}/{path}').read()


def rows(kind):
    table = re.sub(r'/\*.*?\*/', '', text('frontend/syntax/foreign_words.def'), flags=re.S)
    for first, strings in re.findall(rf'^{kind}\((\w+),((?:\s*"(?:[^"\\]|\\.)*",?)+)\)', table, re.M):
        parts = [[]]
        for s, comma in re.findall(r'"((?:[^"\\]|\\.)*)"(,?)', strings):
            parts[-1].append(s.replace('\\"', '"'))
            if comma: parts.append([])
        yield first, [''.join(p) for p in parts if p]


MEANS = [(meant, words.split()) for meant, (words,) in rows('MEANS')]
SAYS = [(place, words.split(), say) for place, (words, say) in rows('SAYS')]


def plain(word): return re.sub('[_-]', '', word).lower()


def language():
    """Every word of the language: keywords, settings and their values, operators, the library."""
    words = set(re.findall(r'^(?:KEYWORD\(\w+, |WORD\()(\w+)', text('frontend/syntax/keywords.def'), re.M))
    for line in re.findall(r'^(?:LINE|OPTION|CHOICE)\((.*)', text('frontend/settings/settings.def'), re.M):
        fields = [f.strip() for f in line.split(',')]
        words |= set(fields[1].split('.')) | {fields[2]}
    words |= set(re.findall(r'^OPERATOR\(\w+, (\w+)', text('frontend/syntax/operators.def'), re.M))
    words |= set(re.findall(r'^(?:fn|layer) (\w+)', text('frontend/std.shard'), re.M))
    return words | {'i32', 'bool', 'f32', 'host', 'normal', 'uniform'}


def check_table():
    known = language()
    wrong.extend(f'{meant}: no word of the language' for meant, words in MEANS if meant not in known)
    said = {}
    for place, words, say in SAYS:
        for w in words:
            if (place, plain(w)) in said: wrong.append(f'{w} is listed twice in {place}')
            said[place, plain(w)] = say
        if say[0].isupper() and not say.startswith('Adam') or say.endswith('.'): wrong.append(f'{words[0]}: {say}')
    n = sum(len(w) for _, w in MEANS) + sum(len(w) for _, w, _ in SAYS)
    if n < 500: wrong.append(f'{n} words')
    return n


MODEL = '''use "std"
dims { Batch, Seq; Key like Seq; Vocab = 128; Embed = 8; Layers = 2 }
layer L(x: [*, Embed]) -> [*, Embed] {
  sub l = Linear[Embed -> Embed]
  return l(x)
}
model M {
  input tokens, targets [Batch, Seq] of Vocab
  param w [Vocab, Embed] ~ normal(1)
  stack h [Layers] of L
  x = h(w[Vocab = tokens])
  %(model)s
  loss cross_entropy[Vocab](dot[Embed](x, w), targets)
}
train t for M {
  size Seq = 8; steps 40; batch %(batch)s
  data %(data)s
  optim %(optim)s
  %(train)s
}
plan p for M {
  %(plan)s
}
'''
HOLES = dict(model='', batch='4', data='"a.txt"', optim='adamw', train='', plan='micro 4')


def check(folder, hole, words):
    source = MODEL % dict(HOLES, **{hole: words})
    open(f'{folder}/m.shard', 'w').write(source)
    r = subprocess.run([SHARDC, 'check', '-q', 'm.shard'], cwd=folder, capture_output=True, text=True)
    return r, source


def errors(said):
    """(code, line, column, help) of each error."""
    for part in re.split(r'^(?=error|warning|note)', said, flags=re.M):
        m = re.match(r'error\[(E\d+)\].*?--> m\.shard:(\d+):(\d+)', part, re.S)
        if m: yield m[1], int(m[2]), int(m[3]), ' '.join(re.findall(r'= help: (.*)', part))


def refused(folder, hole, words, at, help_has, code=None):
    """`words` in the hole: an error at the word `at` whose help has these words."""
    r, source = check(folder, hole, words)
    first = next(errors(r.stderr), None)
    offset = source.index(at, source.rindex(words))
    line, column = source.count('\n', 0, offset) + 1, offset - source.rfind('\n', 0, offset)
    if r.returncode != 1 or not first or first[1:3] != (line, column) or help_has not in first[3] \
            or (code and first[0] != code):
        wrong.append(f'{hole}: {words}: wanted {line}:{column} `{help_has}`, found\n{r.stderr}')


def check_settings(folder):
    """All words of the table at once, as lines of a block: reading stops after 20 errors, so in parts of 15."""
    words = [(w, say) for place, listed, say in SAYS if place == 'SETTING' for w in listed
             if re.fullmatch(r'[A-Za-z_]\w*', w) and w not in language()]
    for hole in ('train', 'plan'):
        for i in range(0, len(words), 15):
            part = words[i:i + 15]
            r, _ = check(folder, hole, '\n  '.join(f'{w} 3' for w, _ in part))
            found = [e for e in errors(r.stderr) if e[0] == 'E0601']
            if len(found) != len(part): wrong.append(f'{hole}: {part}: {r.stderr}')
            wrong.extend(f'{hole}: {w}: {e[3]}' for (w, say), e in zip(part, found) if e[3] != say)


def check_explain():
    words = [('max_steps', '`steps`'), ('torch.matmul', '`dot`'), ('F.gelu', 'gelu(x)'),
    ('nn.Linear', 'Linear[In -> Out]'),
             ('adamw', 'optim adamw'), ('zero', 'plan: zero'), ('Is_Causal', 'mask = causal'),
             ('split', 'split[D -> A, B](x)')]
    words += [(w[0], say[:20]) for place, w, say in SAYS if place == 'SETTING' and w[0] not in language()]
    for i in range(0, len(words), 10):
        part = words[i:i + 10]
        r = subprocess.run([SHARDC, 'explain', *(w for w, _ in part)], capture_output=True, text=True)
        said = ' '.join(r.stdout.split())
        wrong.extend(f'explain {w}: {say} is missing' for w, say in part if r.returncode or say.rstrip() not in said)


# hole, words, where the error is, what its help says
REQUESTS = [
    ('optim', 'muon ns_steps = 5', 'ns_steps', 'five steps'),
    ('optim', 'adamw_8bit', 'adamw_8bit', 'states = int8'), ('optim', 'AdamW', 'AdamW', 'adamw'),
    ('optim', 'adamw lr = 1e-3; optim adamw lr = 1e-4', 'optim adamw lr = 1e-4', 'names them'),
    ('optim', 'adamw beta1 = 0.9', 'beta1', 'betas = ['),
    ('optim', 'adamw learning_rate = 1', 'learning_rate', 'write `lr = 1`'),
    ('train', 'lora 8 alpha = 16 of h.*.l', '8', 'the rank is a dim'),
    ('train', 'lora h.*.l alpha = 16', 'h.*.l', 'the rank is a dim'),
    ('train', 'lora Embed rank = 8 alpha = 16 of h.*.l', 'rank', 'the rank is a dim'),
    ('optim', 'adamw lr = nan', 'nan', 'finite'), ('train', 'clip Inf', 'Inf', 'finite'),
    ('optim', 'adamw clip = 1', 'clip', 'a line of its own'),
    ('optim', 'adamw warmup = 3', 'warmup', '`lr NAME warmup = ..`'),
    ('data', '["a.bin", "b.bin"] weights = [0.7, 0.3]', '["a.bin"', 'mixing'),
    ('data', 'blend("a" = 0.7, "b" = 0.3)', 'blend', 'mixing'), ('data', 'mix("a", "b")', 'mix', 'mixing'),
    ('data', '"a.txt", "b.txt"', '"b.txt"', 'mixing'), ('data', 'a.txt', 'a.txt', '"a.txt"'),
    ('data', '"a.txt" format = parquet', 'parquet', 'shardc data tokenize'),
    ('data', '"a.txt" task = sft(a -> b)', 'sft', 'ignore = -100'),
    ('data', 'columns("x" = "a.npy")', '"x"', 'without quotes'),
    ('batch', '4 warmup = 100', 'warmup', 'grows'), ('train', 'ema_decay 0.999', 'ema_decay', 'ema 0.999'),
    ('train', 'save best = on', 'best', 'save every'),
    ('train', 'lr cosine restarts = 3', 'restarts', 'half of a cosine'),
    ('train', 'lr wsd decay = 20% shape = sqrt', 'shape', 'straight line'),
    ('train', 'lr 1e-3', '1e-3', 'optim adamw lr = ..'),
    ('train', 'weight_decay 0.1', 'weight_decay', 'optim adamw weight_decay'),
    ('train', 'qlora r = 8', 'qlora', 'lora Rank'),
    ('train', 'precision bf16', 'precision', 'in plan blocks'),
    ('train', 'max_steps 10', 'max_steps', 'write `steps 10`'),
    ('train', 'save_steps 10', 'save_steps', 'save every'), ('train', 'dtype bf16', 'dtype', '`precision`'),
    ('plan', 'precision float8', 'float8', 'precision fp8'), ('plan', 'batch 4', 'batch', 'in train blocks'),
    ('plan', 'tensor_parallel_size 2', 'tensor_parallel_size', 'mesh tensor'),
    ('plan', 'fsdp full_shard', 'fsdp', 'zero 3'),
    ('plan', 'offload optimizer -> nvme', 'nvme', 'host'),
    ('plan', 'zero 3 offload = cpu', 'offload', 'a line of its own'),
    ('plan', 'recompute selective', 'selective', 'keep = input'), ('plan', 'mesh dp = 2; place Batch -> tp', 'tp', ''),
    ('model', 'x = matmul(x, w)', 'matmul', '`dot[D](..)`'), ('model', 'x = layer_norm(x)', 'layer_norm', 'LayerNorm'),
    ('model', 'sub n = Dropout[Embed]', 'Dropout', 'dropout(x'),
    ('model', 'sub n = nn.Linear[Embed -> Embed]', '.Linear', '`Linear`'),
    ('model', 'x = F.gelu(x)', '(x)', 'no modules: `gelu`'), ('model', 'x = torch.matmul(x, w)', '(x, w)', '`dot`'),
    ('model', 'x = split(x, 2)', 'split', 'split[D -> A, B](x)'),
    ('model', 'x = attention[Seq -> Key; Embed](x, x, x, is_causal = on)', 'is_causal', 'mask = causal'),
]
n = check_table()
with tempfile.TemporaryDirectory() as folder:
    check_settings(folder)
    for request in REQUESTS: refused(folder, *request)
check_explain()
print('\n'.join(wrong + [f'{n} words, {len(REQUESTS)} requests, {len(wrong)} wrong']))
sys.exit(bool(wrong))
