"""Plans that split sequences, in exact arithmetic: python3 long.py SHARDC [ROWS]

Rows of choices in which every two meet: how attention gets its keys (gathered, balanced, round a ring, heads exchanged
for positions by all-to-all, both over two axes, fewer key/value heads than ranks), layouts of its weights, zero over
the axes of the sequence and of samples, stages, recomputation, micro-batches, rules, 16 bits. `equal` shows that every
plan computes the model; parameters, gradients and states are all in shards (no W0703 but of learned positions); and
where heads are exchanged, the bytes of the all-to-alls are the products of sizes, and nothing of attention is
gathered.
"""
import itertools, json, os, random, re, sys, tempfile
from common import check, run
from pairs import greedy

SHARDC = os.path.abspath(sys.argv[1])
WEIGHTS = {
    'separate': ('''  param wq [Kv, Group, Head, Embed] ~ normal(0.4)
  param wk [Kv, Head, Embed] ~ normal(0.4)
  param wv [Kv, Head, Embed] ~ normal(0.4)
  param wo [Embed, Kv, Group, Head] ~ normal(0.4)
  q = dot[Embed](x, wq)
  k = dot[Embed](x, wk)
  v = dot[Embed](x, wv)''', 'Kv, Group, Head'),
    'fused': ('''  param wi [Embed, QKV, Kv, Head] ~ normal(0.4)
  param wo [Kv, Head, Embed] ~ normal(0.4)
  q, k, v = unstack[QKV](dot[Embed](x, wi))''', 'Kv, Head')}
MODEL = '''use "std"
dims {{ Batch, Seq; Key like Seq; Embed = 16; QKV = 3 }}
dims {{ Kv = {kv}; Group = 2; Head = {head}; Mlp = 12; Layers = 2; Vocab = 10 }}
layer Attention(x: [Batch, Seq, Embed]) -> [Batch, Seq, Embed] {{
{weights}
  y = attention[Seq -> Key; Head](rope[Seq; Head](q, theta = 100), rope[Seq; Head](k, theta = 100), v, mask = {mask})
  return dot[{joined}](y, wo)
}}
layer Block(x: [Batch, Seq, Embed]) -> [Batch, Seq, Embed] {{
  sub norm = RMSNorm[Embed]
  sub attn = Attention
  sub up = Linear[Embed -> Mlp]
  sub down = Linear[Mlp -> Embed]
  x = x + attn(norm(x))
  return x + down(silu(up(x)))
}}
model M {{
  input tokens, targets [Batch, Seq] of Vocab
  param wte [Vocab, Embed] ~ normal(0.4)
  param wpe [Seq, Embed] ~ normal(0.4)
  stack h [Layers] of Block
  logits = dot[Embed](h(wte[Vocab = tokens] + wpe), wte)
  loss cross_entropy[Vocab](logits, targets)
}}
train t for M {{
  size Seq = 16
  batch 8
  steps 2
  data "t.bin" format = bytes
  optim {optim}
  {clip}
}}
plan p for M {{
{lines}}}
'''
# The axes of the sequence with their sizes, and the lines of each way.
WAYS = {'gather': ({'cp': 4}, ['place Seq -> cp']), 'balanced': ({'cp': 4}, ['place Seq -> cp balanced']),
        'ring': ({'cp': 4}, ['place Seq -> cp ring']), 'balanced ring': ({'cp': 4}, ['place Seq -> cp balanced ring']),
        'both ring': ({'a2a': 2, 'cp': 2}, ['place Kv -> a2a activations else Seq', 'place Seq -> cp balanced ring']),
        'exchange': ({'cp': 2}, ['place Kv -> cp activations else Seq']),
        'both': ({'a2a': 2, 'cp': 2}, ['place Kv -> a2a activations else Seq', 'place Seq -> cp']),
        'both balanced': ({'a2a': 2, 'cp': 2}, ['place Kv -> a2a activations else Seq',
                                                'place Seq -> cp balanced']),
        'exchange of four': ({'cp': 4}, ['place Kv -> cp activations else Seq']),
        'few heads': ({'cp': 2, 'rep': 2}, ['place Kv -> cp activations else Seq',
                                            'place Group -> rep activations else Seq'])}
CHOICES = {'way': list(WAYS), 'weights': list(WEIGHTS), 'zero': [0, 1, 2, 3], 'data': [1, 2],
           'rest': ['', 'pipe', 'tensor'], 'recompute': ['all', 'input', 'none'], 'micro': [1, 4],
           'precision': ['f32', 'bf16'], 'optim': ['adamw lr = 0.1', 'lion lr = 0.1', 'sgd lr = 0.1 momentum = 0.5'],
           'clip': ['', 'clip 1'], 'mask': ['causal', 'causal & sliding(4)', 'blocks(2) & (window(3) | global(1))',
                                            'causal & same(doc), drop = 0.3',
                                            'causal, drop = 0.3, bias = alibi[Seq -> Key](alibi_slopes[Kv]())'],
           'more': ['', 'accumulate = full', 'prefetch = 1 overlap = on']}


def fits(row):
    return not (row['way'] == 'few heads' and row['weights'] == 'fused'
                or row['way'] == 'exchange of four' and row['weights'] == 'separate'
                or row['rest'] == 'pipe' and row['recompute'] == 'none'
                or 'prefetch' in row['more'] and not row['zero'])


def text(row):
    axes, lines = WAYS[row['way']]
    axes = {'data': row['data'], **axes}
    lines = ['place Batch -> data', *lines]
    if row['rest'] == 'pipe': axes['pipe'], lines = 2, [*lines, 'place Layers -> pipe']
    if row['rest'] == 'tensor': axes['tensor'], lines = 2, [*lines, 'place Mlp, Vocab -> tensor']
    over = [a for a in axes if a not in ('pipe', 'tensor')]
    lines = [f'mesh {", ".join(f"{a} = {n}" for a, n in axes.items())}', *lines,
             f'zero {row["zero"]} over {", ".join(over)} bucket = 1KiB {row["more"]}', f'micro {row["micro"]}',
             f'recompute h.* keep = {row["recompute"]}', f'precision {row["precision"]}']
    weights, joined = WEIGHTS[row['weights']]
    model = MODEL
    if 'same(doc)' in row['mask']:
        model = model.replace('(x: [Batch, Seq, Embed])', '(x: [Batch, Seq, Embed], doc: [Batch, Seq] of Vocab)')
        model = model.replace('attn(norm(x))', 'attn(norm(x), doc)').replace('+ wpe)', '+ wpe, tokens)')
    return model.format(kv=2 if row['weights'] == 'separate' else 4, head=4, weights=weights, joined=joined,
                        mask=row['mask'], optim=row['optim'], clip=row['clip'],
                        lines=''.join(f'  {l}\n' for l in lines))


def sent(out):
    return {(a, c): int(n) for a, c, n in re.findall(r'over (\w+) +(\w+) +(\d+) +[\d.]+ \w*B', out)}


def exact_bytes(folder):
    """All-to-alls of a step: q, k, v and y forward, y and its gradient, those of q, k, v backward."""
    row = {'data': 1, 'zero': 3, 'rest': '', 'recompute': 'all', 'micro': 4, 'optim': 'adamw lr = 0.1', 'clip': '',
           'mask': 'causal', 'more': ''}
    for (weights, n), precision in itertools.product((('separate', 2), ('fused', 4)), ('f32', 'bf16')):
        row.update(way='exchange' if n == 2 else 'exchange of four', weights=weights, precision=precision)
        open(f'{folder}/m.shard', 'w').write(text(row))
        out, err = run(SHARDC, 'plan', 'm.shard', '--plan', 'p', cwd=folder)
        keys = 8 if weights == 'separate' else 16          # elements of a position's keys; of its queries 16
        want = 2 * 8 * 16 * (5 * 16 + 4 * keys) // n       # layers, samples, positions; a rank sends its share
        right = sent(out)['cp', 'all_to_all'] == want and 'W0703' not in err
        check(right, f'{weights} {precision}: {want}\n{out}{err}')


def ring_bytes(folder):
    """Three blocks of keys and values forward, backward, and of gradients; a window of one block needs one round."""
    row = {'data': 1, 'zero': 3, 'rest': '', 'recompute': 'all', 'micro': 4, 'optim': 'adamw lr = 0.1', 'clip': '',
           'more': '', 'weights': 'separate', 'precision': 'bf16'}
    for way, mask, rounds in (('ring', 'causal', 3), ('balanced ring', 'causal', 3), ('ring', 'causal & sliding(4)', 1),
                              ('ring', 'blocks(2) & window(3)', 2)):
        open(f'{folder}/m.shard', 'w').write(text({**row, 'way': way, 'mask': mask}))
        out, _ = run(SHARDC, 'plan', 'm.shard', '--plan', 'p', cwd=folder)
        want = 2 * 8 * 4 * rounds * 3 * 2 * 8              # layers, samples, positions of a rank; keys and values
        check(sent(out)['cp', 'rotate'] == want, f'{way} {mask}: {want}\n{out}')


GROUPED = '''use "llama"
variant V of Llama3 {{ Vocab = 256; Embed = 64; Kv = 2; Group = 4; Head = 16; Mlp = 128; Layers = 2 }}
train t for V {{ size Seq = 64; batch 16; steps 2; data "t.bin" format = u16; optim adamw lr = 1e-3 }}
plan p for V {{ mesh tensor = 2, context = 4, data = {data}; place Batch -> data; place Vocab, Kv, Mlp -> tensor
  place Seq -> context balanced; zero 3 over data; micro 1; precision bf16 }}
'''


def queries_stay(folder):
    """Gradients of attention gather keys and values, never queries, into how many parts other axes split them."""
    for data in 1, 2, 8, 16:
        open(f'{folder}/m.shard', 'w').write(GROUPED.format(data=data))
        ir, _ = run(SHARDC, 'dump', 'm.shard', '--plan', 'p', '--after', 'collect', cwd=folder)
        check('attention_grad[Seq -> Key' in ir and not re.search(r'all_gather\[Seq\].* Group:', ir), f'data = {data}')


def documents(folder):
    """Data of a mask is read at the positions of each block of keys."""
    rows = {'way': 'balanced ring', 'rest': '', 'zero': 3}, {'way': 'ring', 'rest': 'tensor', 'zero': 0}
    for some in rows:
        row = {'data': 1, 'recompute': 'input', 'micro': 4, 'optim': 'adamw lr = 0.1', 'clip': '', 'more': '',
               'weights': 'separate', 'precision': 'f32', 'mask': 'causal & same(doc)', **some}
        open(f'{folder}/m.shard', 'w').write(text(row))
        run(SHARDC, 'equal', 'm.shard', '--plan', 'p', cwd=folder)
    for way, mask, bound in (('gather', 'causal & same(doc)', 1), ('gather', 'causal', 0),
                             ('exchange', 'same(doc)', 1), ('ring', 'same(doc)', 0)):
        open(f'{folder}/m.shard', 'w').write(text({**row, 'way': way, 'mask': mask}))
        out, _ = run(SHARDC, 'plan', 'm.shard', '--plan', 'p', cwd=folder)
        check(out.count('FLOP of attention are a bound') == bound, f'{way} {mask}\n{out}')


def losses(folder):
    """20 steps as processes: one rank, and four that gather, pass on and exchange keys."""
    row = {'data': 1, 'zero': 0, 'rest': '', 'recompute': 'all', 'micro': 8, 'optim': 'adamw lr = 1e-2', 'clip': '',
           'mask': 'causal', 'more': '', 'weights': 'separate', 'precision': 'f32'}
    own = random.Random(7)
    open(f'{folder}/t.bin', 'wb').write(bytes(min(9, int(own.expovariate(.4))) for _ in range(20000)))
    had = None
    for way in 'one', 'balanced', 'ring', 'balanced ring', 'exchange':
        model = text({**row, 'way': 'gather' if way == 'one' else way}).replace('Seq = 16', 'Seq = 64')
        model = model.replace('steps 2', 'steps 20').replace('data = 1, ', '').replace('  place Batch -> data\n', '')
        if way == 'one': model = re.sub(r'  (mesh|place|zero) .*\n', '', model)
        else: model = re.sub(r'  zero .*\n', '', model)
        open(f'{folder}/m.shard', 'w').write(model)
        run(SHARDC, 'compile', 'm.shard', '--plan', 'p', '--quick', '-q', '-o', 'm', cwd=folder)
        run('./m', 'train', '--out', way, *([] if way == 'one' else ['--nnodes', '1']), cwd=folder)
        lines = map(json.loads, open(f'{folder}/{way}/metrics.jsonl'))
        got = [line['loss'] for line in lines if 'loss' in line]
        had = had or got
        far = max(abs(a - b) / abs(a) for a, b in zip(had, got))
        check(len(got) == 20 and far < 1e-6, f'{way}: {far} from one rank, {len(got)} steps')


PADDED = """use "std"
dims { Batch, Seq; Key like Seq; Word = 16; Embed = 8; Heads = 2; Head = Embed / Heads; Layers = 2 }
layer Block(x: [Batch, Seq, Embed], valid: [Batch, Key] bool) -> [Batch, Seq, Embed] {
  param w [Embed, Heads, Head] ~ normal(0.5)
  q = dot[Embed](x, w)
  return x + merge[Heads, Head -> Embed](attention[Seq -> Key; Head](q, q, q, mask = padding(valid)))
}
model M {
  input tokens, labels [Batch, Seq] of Word
  input valid [Batch, Key] bool
  param word [Word, Embed] ~ normal(1)
  stack h [Layers] of Block
  loss cross_entropy[Word](dot[Embed](h(word[Word = tokens], valid), word), labels, ignore = -100)
}
train t for M {
  size  Seq = 16
  batch 4
  steps 3
  data  "p.bin" format = bytes pack = off eot = 9, mask_id = 0, pad_id = 1, task = mlm(tokens -> labels, valid = valid)
  optim sgd lr = 0.1
}
plan one for M { micro 4 }
plan ring for M {
  mesh  cp = 4
  place Seq -> cp ring
  micro 4
}
"""


def padded(folder):
    """Short documents: most blocks of keys are padding, also the first two that a query meets."""
    own = random.Random(8)
    open(f'{folder}/p.bin', 'wb').write(b''.join(bytes(own.randint(2, 8) for _ in range(own.randint(3, 6))) + b'\t'
                                                 for _ in range(40)))
    open(f'{folder}/p.shard', 'w').write(PADDED)
    for name in 'one', 'ring':
        run(SHARDC, 'compile', 'p.shard', '--plan', name, '--quick', '-q', '-o', 'p', cwd=folder)
        run('./p', 'train', '--out', f'p_{name}', *(['--nnodes', '1'] if name == 'ring' else []), cwd=folder)
    one, ring = ([json.loads(line)['loss'] for line in open(f'{folder}/p_{name}/metrics.jsonl')]
                 for name in ('one', 'ring'))
    far = max(abs(a - b) / max(1, a) for a, b in zip(one, ring))
    check(len(one) == len(ring) == 3 and far < 1e-5, f'{far}: {one} {ring}')


def ways(folder):
    """`plan` compares the ways of its line, with the same figures whichever the plan has."""
    row = {'data': 1, 'zero': 0, 'rest': '', 'recompute': 'all', 'micro': 8, 'optim': 'adamw lr = 1e-2', 'clip': '',
           'mask': 'causal', 'more': '', 'weights': 'fused', 'precision': 'f32'}
    machine = 'machine a { node gpus = 4 arch = sm_80 memory = 80GB bf16 = 312TFLOPS f32 = 19TFLOPS hbm = 2000GB/s\n' \
              '  link intra = 300GB/s inter = 25GB/s }\n'
    said = {}
    for way, name in (('balanced', 'gather'), ('balanced ring', 'ring'), ('exchange of four', 'exchange')):
        model = text({**row, 'way': way}).replace('plan p for M {', machine + 'plan p for M {\n  on a')
        open(f'{folder}/m.shard', 'w').write(model.replace('Seq = 16', 'Seq = 1024'))
        out, _ = run(SHARDC, 'plan', 'm.shard', '--plan', 'p', '--json', cwd=folder)
        said[name] = json.loads(out)['ways']
        check([w['way'] for w in said[name] if w['taken']] == [name], f'{name}: {said[name]}')
        for one in said[name]: del one['taken']
    check(len(said['gather']) == 3 and said['gather'] == said['ring'] == said['exchange'], said)
    open(f'{folder}/m.shard', 'w').write(re.sub(r'Kv = \d+', 'Kv = 3', model.replace(
        'place Kv -> cp activations else Seq', 'place Seq -> cp balanced')))
    out, _ = run(SHARDC, 'plan', 'm.shard', '--plan', 'p', '--json', cwd=folder)
    check({w['way'] for w in json.loads(out)['ways']} == {'gather', 'ring'}, f'heads that four do not divide: {out}')


def many_pieces(folder):
    """Blocks that list whole rows follow one another: a rank gets every fourth, in as many pieces as that takes."""
    row = {'way': 'balanced', 'weights': 'separate', 'zero': 3, 'data': 1, 'rest': '', 'recompute': 'input', 'micro': 8,
           'precision': 'f32', 'optim': 'sgd lr = 0.1', 'clip': 'clip 1', 'mask': 'blocks(2) & (window(1) | global(4))',
           'more': ''}
    open(f'{folder}/m.shard', 'w').write(text(row).replace('Seq = 16', 'Seq = 64'))
    for name, after in ('model', 'micro'), ('ranks', 'own'):
        out, _ = run(SHARDC, 'dump', 'm.shard', '--plan', 'p', '--after', after, cwd=folder)
        open(f'{folder}/{name}.ir', 'w').write(out)
    check('place Seq -> cp balanced 8' in out, re.findall('place .*', out))
    run(SHARDC, 'equal', 'model.ir', 'ranks.ir', cwd=folder)
    out, _ = run(SHARDC, 'plan', 'm.shard', '--plan', 'p', cwd=folder)
    check('attention of a rank: 1 to 1 of the mean' in out or 'attention of a rank' not in out, out)


def even(folder):
    """The busiest of four ranks, in parts of the mean: figures of docs/long-context.md, and layouts of no page."""
    row = {'way': 'balanced', 'weights': 'separate', 'zero': 0, 'data': 1, 'rest': '', 'recompute': 'all', 'micro': 1,
           'precision': 'f32', 'optim': 'sgd lr = 0.1', 'clip': '', 'more': ''}
    for mask, most in (('causal', 1.001), ('causal & sliding(512)', 1.05), ('blocks(64) & window(9)', 1.05),
                       ('blocks(64) & (window(3) | global(4))', 1.005),
                       ('blocks(64) & bigbird(window = 3, global = 4)', 1.1),
                       ('blocks(64) & causal & (window(5) | global(2))', 1.05),
                       ('blocks(64) & causal & (window(5) | random(3, seed = 1))', 1.1),
                       ('blocks(64) & longformer(window = 9, globals = [0])', 1.25)):
        open(f'{folder}/m.shard', 'w').write(text({**row, 'mask': mask}).replace('Seq = 16', 'Seq = 8192'))
        out, _ = run(SHARDC, 'plan', 'm.shard', '--plan', 'p', '--json', cwd=folder)
        said = json.loads(out).get('attention', {'most': 1})
        check(said['most'] <= most, f'{mask}: {said}')
    check(said['most'] > 1.15, f'one heavy block: {said}')


def main():
    rows, left = greedy(CHOICES, random.Random(4), int(sys.argv[2]) if len(sys.argv) > 2 else 60, fits, 100)
    check(len(left) == 4 or len(sys.argv) > 2, f'pairs that meet in no row, other than the four that cannot: {left}')
    with tempfile.TemporaryDirectory() as folder:
        exact_bytes(folder)
        ring_bytes(folder)
        queries_stay(folder)
        documents(folder)
        losses(folder)
        padded(folder)
        ways(folder)
        many_pieces(folder)
        even(folder)
        for row in rows:
            open(f'{folder}/m.shard', 'w').write(text(row))
            out, err = run(SHARDC, 'plan', 'm.shard', '--plan', 'p', cwd=folder)
            whole = [w for w in re.findall(r'does not partition parameter (.*)', err) if w != '`wpe`']
            check(not whole, f'{row}: {err}\n{text(row)}')
            run(SHARDC, 'equal', 'm.shard', '--plan', 'p', cwd=folder)
    print(f'{len(rows)} plans are equal to their model')


main()
