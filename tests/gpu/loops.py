"""Block-sparse attention compared with dense attention, as ptxas compiles both.   loops.py SHARDC [all]

The inner loop of attention on tensor cores, per tile of scores: where a layout lists whole tiles, it may have a few
instructions more than the dense kernel's, those that read the list, and exactly as many products. Counted in the
cubins: a loop ends with a branch back. With wgmma (sm_90a) the loops of heads of 64 and 128 have exactly the products
of their tiles. Heads of widths that are no multiple of 8 must only be assembled without a spill.
`all`, by hand: four targets, widths of 16 to 128, blocks of 16 to 128, all types, also with causal and padding; and
every fourth width up to 256. Ends with 77 where there is no ptxas.
"""
import os, shutil, struct, sys, tempfile
from cubin import compiled, jump, sections

SHARDC, ALL = os.path.abspath(sys.argv[1]), len(sys.argv) > 2
ODD = 60, 84, 101, 108, 124, 180
MORE = 16  # instructions for a list
ALWAYS = 7  # the predicate of an instruction without one
PRODUCTS = 0x23c, 0x9f0, 0xdf0  # mma; wgmma, its left operand in shared memory, in registers
if not shutil.which('ptxas'):
    print('SKIPPED: no ptxas on PATH, kernels for GPUs are not assembled')
    sys.exit(77)


def model(mask, head, heads, precision):
    kept, kv = ('[Lot, Kv, Group, Seq, Head]', '[Lot, Kv, Seq, Head]') if heads > 1 else ('[Lot, Kv, Seq, Head]', ) * 2
    if not heads: heads, kept, kv = 1, '[Lot, Seq, Kv, Head]', '[Lot, Seq, Kv, Head]'
    sums = kept[1:-1]
    return f'''use "std"
dims {{ Batch; Seq = 512; Key like Seq; Lot = 1; Kv = 2; Group = {heads}; Head = {head} }}
model Attn {{
  input x [Batch] f32
  input valid [Key] bool
  param q {kept} ~ normal(1)
  param k {kv} ~ normal(1)
  param v {kv} ~ normal(1)
  y = attention[Seq -> Key; Head](q, k, v{mask and ', mask = ' + mask})
  loss mean[Batch](x) * mean[{sums}](y * y)
}}
train bench for Attn {{
  batch 1
  steps 1
  data columns(x = "x.npy", valid = "v.npy")
  optim sgd lr = 1e-3
}}
plan p for Attn {{ precision {precision} }}
'''


def inner_loop(code, target):
    """Products and instructions of the loop with most products, of those without another such loop inside."""
    words = [struct.unpack_from('<QQ', code, at) for at in range(0, len(code), 16)]
    found = []
    for i, word in enumerate(words):
        first = jump(i, word, target)
        if first is None or first >= i: continue
        if target == 'sm_90a' and word[0] >> 12 & 15 == ALWAYS: continue  # a wait far below, that is over
        products = sum(w[0] & 0xfff in PRODUCTS for w in words[first:i + 1])
        if products: found.append((first, i, products))
    inner = [(n, b + 1 - a) for a, b, n in found
             if not any(a <= c and d <= b and (a, b) != (c, d) for c, d, _ in found)]
    return max(inner, default=(0, 0))


def loops(folder, mask, target, head=64, heads=1, precision='bf16'):
    """Products and instructions by kernel."""
    open(f'{folder}/m.shard', 'w').write(model(mask, head, heads, precision))
    shutil.rmtree(f'{folder}/kept', ignore_errors=True)
    compiled([SHARDC, 'compile', 'm.shard', '--plan', 'p', '--target', target, '-o', 'm', '--keep', 'kept'], folder,
             f'{mask}, {precision}, heads of {head}')
    found = {}
    for f in sorted(os.listdir(f'{folder}/kept')):
        if not f.endswith('.cubin') or 'step_attention' not in f: continue
        for name, code in sections(open(f'{folder}/kept/{f}', 'rb').read()):
            if not name.startswith('.text.') or not inner_loop(code, target)[0]: continue
            found[('gradient ' if 'grad' in name else 'forward ') + name[-2:]] = inner_loop(code, target)
    return found


def filled_in_bulk(folder):
    """Attention that was compiled last: bulk tensor copies alone bring its operands."""
    for f in os.listdir(f'{folder}/kept'):
        if not f.endswith('.ptx') or 'step_attention' not in f: continue
        text = open(f'{folder}/kept/{f}').read()
        if 'cp.async.bulk.tensor' not in text or 'cp.async.cg' in text: sys.exit(f'{f} is not filled by bulk copies')


BIGBIRD = '(window(3) | global(2) | random(3, seed = 42))'
with tempfile.TemporaryDirectory() as folder:
    for target in ('sm_80', 'sm_86', 'sm_89', 'sm_90') if ALL else ('sm_80', ):
        dense, sparse = loops(folder, '', target), loops(folder, f'blocks(64) & {BIGBIRD}', target)
        for k in dense:
            print(f'{target} {k}: {dense[k][1]} instructions dense, {sparse[k][1]} sparse, {dense[k][0]} products')
            if sparse[k][0] != dense[k][0] or sparse[k][1] > dense[k][1] + MORE: sys.exit('not the same loop')
        if len(dense) != 3: sys.exit(f'phases with products: {dense}')
    for head, want in (64, (12, 12, 16)), (128, (16, 20, 24)):     # by steps of 16: 128 and 64 columns
        for cut in '', 'causal':
            found = loops(folder, cut, 'sm_90a', head)
            print(f'sm_90a, heads of {head}, {cut or "dense"}: {found}')
            if tuple(found[k][0] for k in sorted(found)) != want: sys.exit(f'wgmma in the loops of {head}: not {want}')
            filled_in_bulk(folder)
    for cut in '', 'causal': loops(folder, cut, 'sm_80', 112, 0)   # sums of gradients: 64 columns would spill
    for head in range(4, 260, 4) if ALL else ODD:                  # rows of no whole pieces of 16 bytes
        for cut in ('causal', 'padding(valid)')[not ALL:]: loops(folder, cut, 'sm_80', head, 0, 'f16')
    if not ALL: sys.exit(0)
    n = 0
    for target in 'sm_80', 'sm_86', 'sm_89', 'sm_90':
        for i, (head, block) in enumerate((h, b) for h in (16, 32, 64, 80, 96, 128) for b in (16, 32, 64, 128)):
            precision = ('bf16', 'f16', 'f32', 'tf32')[(i + i // 4) % 4]
            cut = ('', ' & causal', ' & padding(valid)', ' & causal & padding(valid)')[(i // 2 + i) % 4]
            loops(folder, f'blocks({block}) & {BIGBIRD}{cut}', target, head, 1 + i % 3 % 2, precision)
            n += 1
    print(f'{n} programs without a spill')
