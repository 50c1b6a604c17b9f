"""Routed layers over ranks: python3 experts.py SHARDC [ROWS]

30 rows of choices in which every two meet: experts over an axis of their own, that of the samples or that of the
positions, capacity or no dropped tokens, gates, tensor and pipeline parallelism, ZeRO, micro-batches, recomputation.
Each row is compared with one rank in exact arithmetic (`equal`), and the first ROWS (7) also as processes (`verify`:
three steps of SGD, whose updates show a gradient that is scaled): those of up to four ranks also under MPI and with
NCCL on stand-in GPUs. A combination that does not work is refused at a word.
"""
import os, random, re, subprocess, sys
from common import EXAMPLES, check, floats, has_mpi, run, workdir
from pairs import greedy

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
ROWS = int(sys.argv[2]) if len(sys.argv) > 2 else 7
MODEL = """use "std"
dims {{
  Batch, Seq
  Key   like Seq
  Vocab = 32;  Embed = 16;  Heads = 2;  Layers = {layers};  Head = Embed / Heads
  Mlp   = 12;  Experts = 8;  Route = Experts
  Slot  = {slot}
}}
layer Mixture(x: [Batch, Seq, Embed]) -> [Batch, Seq, Embed] {{
  param router [Embed, Route]        ~ normal(1)  @f32
  param w_in   [Experts, Embed, Mlp] ~ normal(0.3)
  param w_out  [Experts, Mlp, Embed] ~ normal(0.3)
  s = dot[Embed](x, router)
  {gates}
  at, gate = route[Seq -> Slot; Route -> Experts](g, k = {k}, by = p)
  e = {product}
  aux 0.1 * mean[Batch](load_balance[Route; Seq](p, k = {k}))
  aux 0.01 * mean[*](logsumexp[Route](s)^2)
  return scatter_add[Experts, Slot -> Seq](e, at)
}}
layer Block(x: [Batch, Seq, Embed]) -> [Batch, Seq, Embed] {{
  sub norm1 = RMSNorm[Embed]
  sub query = Linear[Embed -> Heads, Head] with init = normal(0.3)
  sub out   = Linear[Heads, Head -> Embed] with init = normal(0.3)
  sub norm2 = RMSNorm[Embed]
  sub moe   = Mixture
  q = query(norm1(x))
  x = x + out(attention[Seq -> Key; Head](q, q, q, mask = causal))
  return x + moe(norm2(x))
}}
model M {{
  input tokens, targets [Batch, Seq] of Vocab
  param wte [Vocab, Embed] ~ normal(0.3)
  stack h [Layers] of Block
  sub norm = RMSNorm[Embed]
  loss cross_entropy[Vocab](dot[Embed](norm(h(wte[Vocab = tokens])), wte), targets)
}}
train t for M {{
  size  Seq = 12
  batch 16
  steps 3
  data  "text.bin" format = u16
  optim sgd lr = 0.2
}}
plan p for M {{
  mesh  {mesh}
  {lines}
}}
"""
GATES = {'softmax': 'p = softmax[Route](s)\n  g = p',
         'normal': 'p = softmax[Route](s)\n  c = p * float(top[Route](p, k = {k}))\n  g = c / sum[Route](c)',
         'sigmoid': 'p = sigmoid(s)\n  c = p * float(top[Route](p, k = {k}))\n  g = 2 * c / sum[Route](c)'}
PRODUCT = ['dot[Mlp](gelu(dot[Embed](x[Seq = at], w_in)), w_out) * gate',
           'dot[Mlp](gelu(dot[Embed](x[Seq = at], w_in)) * gate, w_out)']
CHOICES = {'fold': ['', '', 'Seq balanced', 'Seq ring', 'Heads activations'], 'own': [0, 1],
           'ep': [2, 4], 'slot': ['Seq', 'Seq / 3', 'Seq / 6'], 'k': [1, 2, 4], 'gates': list(GATES),
           'product': [0, 1], 'tensor': [1, 2], 'pipe': [1, 2], 'data': [1, 2], 'zero': [0, 1, 2, 3],
           'micro': [1, 2, 4], 'keep': ['', 'input', 'none'], 'schedule': ['one_f_one_b', 'gpipe', 'zero_bubble'],
           'layers': [4, 3], 'overlap': ['off', 'on']}


def ways(row): return row['ep'] * (row['data'] if row['own'] else 1)


def folds(row):
    """Experts may share the axis of positions; the sizes of Heads and Seq allow two ranks."""
    return not row['fold'] or row['own'] and row['ep'] == 2


def fits(row):
    built = row['pipe'] == 1 or row['keep'] != 'none'  # E0901
    ranks = ways(row) * row['tensor'] * row['pipe']
    return built and folds(row) and ranks <= 8 and 16 % (ways(row) * row['micro']) == 0


def text_of(row):
    axis = 'ep' if row['own'] else 'data'
    axes, lines = {axis: row['ep']}, [f'place Experts -> {axis} else Batch']
    if row['fold']:
        dim, word = row['fold'].split()
        lines = [f'place {dim} -> {axis} {word}' + ' else Seq' * (dim == 'Heads'), f'place Experts -> {axis}']
    if row['own'] and row['data'] > 1: axes['data'] = row['data']; lines.append('place Batch -> data')
    if row['tensor'] > 1:
        axes['tensor'] = 2
        lines.append(f'place {"Mlp" if "Heads" in row["fold"] else "Heads, Mlp"} -> tensor')
    if row['pipe'] > 1: axes['pipe'] = 2; lines += ['place Layers -> pipe', f'pipeline {row["schedule"]} uneven = on']
    over = 'data' if 'data' in axes else axis
    if row['zero'] or row['overlap'] == 'on': lines.append(f'zero {row["zero"]} over {over} overlap = {row["overlap"]}')
    if row['keep']: lines.append(f'recompute h.* keep = {row["keep"]}')
    lines.append(f'micro {row["micro"]}')
    return MODEL.format(layers=row['layers'], slot=row['slot'], k=row['k'],
                        gates=GATES[row['gates']].format(k=row['k']), product=PRODUCT[row['product']],
                        mesh=', '.join(f'{a} = {n}' for a, n in axes.items()), lines='\n  '.join(lines))


def tokens():
    r = random.Random(3)
    open(f'{folder}/text.bin', 'wb').write(b''.join(r.randrange(32).to_bytes(2, 'little') for _ in range(4000)))


def sent_once():
    """A layer of experts over eight ranks sends tokens and returns results, and nothing else of that size."""
    out, _ = run(SHARDC, 'dump', f'{EXAMPLES}/moe.shard', '--plan', 'spread', '--after', 'collect')
    for body in 'fwd', 'bwd':
        text = re.search(rf'^body @h\.forward\.{body}\(.*?^}}', out, re.M | re.S).group(0)
        large = re.findall(r'= (all_to_all|all_gather|reduce_scatter|all_reduce)\[?.*\[.*(?:Embed|Mlp)', text)
        check(large == ['all_to_all'] * 2, f'{body}: {large}')


def losses(file, *args):
    exe = file.replace('.ir', '')
    run(SHARDC, 'compile', file, '-o', exe, '--workers', '2', '-q', *args, cwd=folder)
    out, _ = run(exe, 'train', '--out', exe + '.run', cwd=folder)
    return [float(x) for x in re.findall(r'^done.*loss (\S+)', out, re.M)]


def skipped():
    """Empty places are skipped, and nothing else: without the setting all of them are computed."""
    row = {**{name: list(values)[0] for name, values in CHOICES.items()}, 'own': 0, 'data': 1}
    for n, (slot, precision, sizes, args) in enumerate([
            ('Seq', 'f32', ['Mlp=40', 'Seq=60'], []), ('Seq', 'bf16', ['Seq=60', 'Mlp=33'], []),
            ('Seq / 3', 'f32', ['Seq=63', 'Embed=18'], ['--target', 'x86_64_v3']),
            ('Seq', 'f32', ['Batch=70'], []), ('Seq', 'f32', ['Batch=1', 'Seq=300'], [])]):
        file = f'{folder}/s{n}'
        text = text_of({**row, 'slot': slot, 'k': 2, 'ep': 1, 'pipe': 1, 'tensor': 1, 'micro': 1})
        open(file + '.shard', 'w').write(text.replace('  micro 1', f'  precision {precision}'))
        sizes = [x for size in sizes for x in ('-D', size)]
        ir, _ = run(SHARDC, 'dump', file + '.shard', '--plan', 'p', *sizes, cwd=folder)
        check('set made.places.Slot' in ir, 'no setting')
        for name, lines in ('skip', ir), ('all', re.sub(r'set made.places.*\n', '', ir)):
            open(f'{file}.{name}.ir', 'w').write(lines)
        some, every = losses(f'{file}.skip.ir', *args), losses(f'{file}.all.ir', *args)
        check(some and abs(some[0] - every[0]) < 2e-3, f'{slot} {precision} {sizes}: {some} {every}')


WAYS = {'local': ([], lambda n, exe: [SHARDC, 'run', '-n', n, exe, '--']),
        'mpi': (['--comm', 'mpi'], lambda n, exe: ['mpirun', '--oversubscribe', '-n', n, exe]),
        'nccl': (['--target', 'sm_80'], lambda n, exe: [SHARDC, 'run', '-n', n, '--emulate', exe, '--'])}


def trained(file, way, ranks):
    """All tensors after three steps, ranks as processes of this machine, under MPI, or on stand-in GPUs."""
    exe = f'{file}.{way}'
    run(SHARDC, 'compile', f'{file}.shard', '--plan', 'p', '-o', exe, '-q', '--quick', *WAYS[way][0], cwd=folder)
    run(*WAYS[way][1](str(ranks), exe), 'train', '--out', f'{exe}.run', '--save-every', '0', '--dump', f'{exe}.st',
        cwd=folder)
    return floats(f'{exe}.st')


def other_ways(file, ranks):
    own = trained(file, 'local', ranks)
    for way in ['mpi'] * has_mpi() + ['nccl']:
        other = trained(file, way, ranks)
        check(own.keys() == other.keys(), f'{way}: {own.keys() ^ other.keys()}')
        for name, values in own.items():
            worst = max((abs(a - b) for a, b in zip(values, other[name])), default=0)
            check(worst <= 1e-4 * (1 + max(map(abs, values), default=0)), f'{way}: {name} differs by {worst}')


sent_once()
tokens()
skipped()
done, refused = 0, 0
rows, left = greedy(CHOICES, random.Random(7), max(ROWS, 30), fits)
check(len(left) == 7, f'pairs that meet in no row, other than the seven that cannot: {left}')
for n, row in enumerate(rows):
    file = f'{folder}/m{n}.shard'
    open(file, 'w').write(text_of(row))
    p = subprocess.run([SHARDC, 'plan', file, '--plan', 'p'], capture_output=True, text=True, cwd=folder)
    if p.returncode:
        check(p.returncode == 1 and f'--> {file}:' in p.stderr, f'{row}\n{p.stderr}')
        print('refused', row, p.stderr.splitlines()[0], flush=True)
        refused += 1
        continue
    run(SHARDC, 'equal', file, '--plan', 'p', '-q', cwd=folder)
    done += 1
    if n >= ROWS: continue
    run(SHARDC, 'verify', file, '--plan', 'p', '-q', *['--quick'] * (n % 3 > 0), cwd=folder)
    ranks = ways(row) * row['tensor'] * row['pipe']
    if 1 < ranks <= 4: other_ways(f'{folder}/m{n}', ranks)
    print(row, 'also with MPI and NCCL' * (1 < ranks <= 4), flush=True)
print(f'{done} rows equal one rank, {ROWS} of them also as processes; {refused} refused')
check(done > 3 * refused, 'too many are refused')
