"""The head of a language model as ptxas compiles it: loss in one walk, sorted gradient of its table.   rows.py SHARDC

The kernel of the loss and its gradient, for sm_90a: the row's first loop has one load of 16 bytes from global memory
per eight elements, the last one none; both together have at most 20 instructions per element, on the way of threads
without the label. The evaluation's loss has one walk. Sums of the table's gradient are sorted. shardc fails where a
kernel spills. Ends with 77 where there is no ptxas.
"""
import glob, os, shutil, struct, subprocess, sys, tempfile
from cubin import compiled, jump, sections

SHARDC = os.path.abspath(sys.argv[1])
LOAD, STORE, EXIT = 0x981, 0x986, 0x94d
ELEMENTS, MOST, ONCE = 8, 20, 12
MODEL = '''use "std"
dims { Batch; Seq = 512; Vocab = 50257 pad 128; Embed = 64 }
model Head {
  input tokens, targets [Batch, Seq] of Vocab
  param w [Vocab, Embed] ~ normal(0.02)
  loss cross_entropy[Vocab](dot[Embed](w[Vocab = tokens], w), targets)
}
train bench for Head {
  batch 2
  steps 1
  data "t.bin"
  optim sgd lr = 1e-3
}
plan p for Head { precision bf16 }
'''


def instructions(code):
    """Of each instruction: opcode, target of its jump or None, whether it has a predicate."""
    for i, word in enumerate(struct.iter_unpack('<QQ', code)):
        yield word[0] & 0xfff, jump(i, word, 'sm_90a'), word[0] >> 12 & 15 != 7


def shortest(code, first, last):
    """The opcodes on the shortest path from the head of a loop to its end."""
    best = {last: [code[last][0]]}
    for i in range(last - 1, first - 1, -1):
        op, to, some = code[i]
        ways = [i + 1] if to is None or some else []
        if to is not None and i < to <= last: ways.append(to)
        ways = [best[w] for w in ways if w in best]
        if op != EXIT and ways: best[i] = [op] + min(ways, key=len)
    return best[first]


def loops(folder, kernel):
    """The shortest path of each loop of a kernel that accesses memory, in order."""
    path, = glob.glob(f'{folder}/kept/k_{kernel}.cubin')
    code = [list(instructions(c)) for name, c in sections(open(path, 'rb').read()) if name.startswith('.text.')]
    code, found = code[0], []
    for i, (op, to, _) in enumerate(code):
        if to is not None and to < i: found.append(shortest(code, to, i))
    return [f for f in found if LOAD in f or STORE in f]


if not shutil.which('ptxas'):
    print('SKIPPED: no ptxas on PATH, kernels for GPUs are not assembled')
    sys.exit(77)
with tempfile.TemporaryDirectory() as folder:
    open(f'{folder}/m.shard', 'w').write(MODEL)
    options = ['m.shard', '--plan', 'p', '--target', 'sm_90a', '-q']
    compiled([SHARDC, 'compile', *options, '-o', 'm', '--keep', 'kept'], folder)
    dump = subprocess.run([SHARDC, 'dump', *options, '--after', 'select'], cwd=folder, check=True, capture_output=True,
                          text=True).stdout
    cut = [l for l in dump.splitlines() if l.startswith('kernel ')]
    for variant in '"kept"', '"online"', '"order"':
        if sum(variant in l for l in cut) != 1: sys.exit(f'one kernel should be {variant}:\n' + '\n'.join(cut))
    if any('bool[Vocab' in l for l in cut): sys.exit('padding is read from memory')
    step, once = loops(folder, 'step_rmax3'), loops(folder, 'eval_rmax3')
    if len(step) != 2 or len(once) != 1: sys.exit(f'{len(step)} and {len(once)} walks, not 2 and 1')
    if LOAD in step[1] or STORE in step[0]: sys.exit('the row is read twice')
    each = [len(loop) / (ELEMENTS * max(loop.count(LOAD), loop.count(STORE))) for loop in step + once]
    print('instructions per element: ' + ', '.join(f'{n:.1f}' for n in each))
    if each[0] + each[1] > MOST or each[2] > ONCE: sys.exit(f'more than {MOST}, or {ONCE} of the evaluation')
