"""States, updates and gradients on the host: python3 offload.py SHARDC

A small GPT whose moments, masters, update and gradients are in host memory, on processors: over ranks, stages of
`zero`, micro-batches, precisions and optimizers. Losses, weights and states equal those without `offload`, bit by bit;
the bytes that each memory's arena touches equal the prediction; the bytes that a step copies equal the plan: 2 Psi/N
down and 2 Psi/N up in bf16, and some scalars. The test also checks refusals: memory that is too small, words that are
not built.
"""
import itertools, json, os, re, shutil, subprocess, sys
from common import check, mend, read, run, tensors, text_file, workdir

SHARDC, folder, CALLS = os.path.abspath(sys.argv[1]), workdir(), itertools.count()
EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'examples')
MODEL = '''use "gpt2"
variant Small of GPT2 { Pos = 16; Vocab = 256; Embed = 32; Heads = 4; Layers = 2 }
train t for Small {
  size  Seq = 16
  batch 8
  steps 4
  data  "text.txt" format = bytes
  optim %s
}
machine node { node arch = x86_64_v3 memory = %s }
plan hosted for Small { %s
  %s
}
plan near for Small { %s }
'''
SUBS = '''use "gpt2"
layer Part(x: [Batch, Seq, Embed]) -> [Batch, Seq, Embed] {
  stack h [Layers] of Block
  sub ln_f = LayerNorm[Embed]
  return ln_f(h(x))
}
model Two {
  input tokens, targets [Batch, Seq] of Vocab
  param wte [Vocab, Embed] ~ normal(0.02)
  param wpe [Pos, Embed] ~ normal(0.01)
  sub enc = Part
  sub dec = Part
  x = wte[Vocab = tokens] + wpe[Pos = iota(Seq)]
  logits = dot[Embed](dec(enc(x)), wte)
  loss cross_entropy[Vocab](logits, targets)
}
'''
ADAM, LAMB = 'adamw lr = 2e-3; clip 1.0', 'lamb lr = 2e-3; clip 1.0'
FREE = 'adamw lr = 2e-3; on_nan off'  # no norm needed: rounds of the backward loop include their update
NARROW = '2e-3 betas = [0.9, 0.95] states = bf16'
ON = 'mesh data = %d; place Batch -> data; '
# the plan's lines, the optimizer, ranks
BOTH = 'optimizer, grads'
CASES = [(ON % 2 + 'zero 1 over data; precision bf16 master = f32', ADAM, 2, 'optimizer'),
         (ON % 2 + 'zero 2 over data bucket = 4KiB; micro 1; precision f16 master = f32', ADAM, 2, 'optimizer'),
         (ON % 2 + 'zero 3 over data; precision bf16 master = f32', LAMB, 2, 'optimizer'),
         (ON % 1 + 'zero 0 over data', 'sgd lr = 1e-2 momentum = 0.9; clip 1.0', 1, 'optimizer'),
         (ON % 2 + 'zero 1 over data; precision bf16 master = f32', ADAM, 2, BOTH),
         (ON % 2 + 'zero 2 over data bucket = 4KiB; micro 1; precision f16 master = f32', ADAM, 2, BOTH),
         (ON % 2 + 'zero 3 over data; micro 2; precision bf16 master = f32', LAMB, 2, BOTH),
         (ON % 2 + 'zero 3 over data prefetch = 1 overlap = on', ADAM, 2, BOTH),
         (ON % 2 + 'zero 0 over data; micro 2', 'sgd lr = 1e-2 momentum = 0.9; clip 1.0', 2, BOTH),
         (ON % 1 + 'zero 0 over data', ADAM, 1, BOTH),
         (ON % 2 + 'zero 3 over data; micro 2; precision bf16 master = f32', ADAM, 2, BOTH + ', params'),
         (ON % 1 + 'zero 0 over data', ADAM, 1, BOTH + ', params'),
         (ON % 2 + 'zero 1 over data; precision bf16', ADAM, 2, BOTH + ', params'),
         (ON % 2 + 'zero 1 over data bucket = 4KiB; micro 4', LAMB, 2, 'params'),
         (ON % 2 + 'zero 2 over data; precision bf16 master = f32', FREE, 2, BOTH),
         (ON % 2 + 'zero 3 over data overlap = on; precision bf16 master = f32', FREE, 2, BOTH + ', params'),
         (ON % 2 + 'zero 2 over data; precision bf16 master = f32', FREE.replace('2e-3', NARROW), 2, BOTH),
         (ON % 2 + 'zero 1 over data; micro 2; precision f16', ADAM.replace('2e-3', NARROW), 2, 'optimizer'),
         ('', 'sgd lr = 1e-2; clip 1.0', 1, 'params')]

# a plan, ranks, the line with `offload = host`, and without; what else is on the host
KEPT = [(ON % 1, 1, 'h keep = all offload = host', 'h keep = all'),
        (ON % 2 + 'zero 3 over data prefetch = 1 overlap = on; micro 2; precision bf16', 2,
         'h keep = input offload = host', 'h keep = input'),
        ('mesh data = 2, tensor = 2; place Batch -> data; place Heads, Mlp, Vocab -> tensor; zero 1 over data', 4,
         'h[0..0] keep = input over tensor offload = host', 'h[0..0] keep = input over tensor'),
        (ON % 2 + 'zero 2 over data; micro 2', 2, 'h keep = [attn.q, attn.y] offload = host',
         'h keep = [attn.q, attn.y]', 'offload optimizer, grads -> host')]

# of some parameters: a plan, the optimizer, ranks, the lines; whether groups are cut, so that the norm, a sum over
# groups, is added up in another order
PARTS = [(ON % 2 + 'zero 2 over data bucket = 4KiB; micro 1; precision bf16', ADAM, 2,
          'offload optimizer, grads of h.*, wte -> host; offload params of wte -> host', False),
         (ON % 2 + 'zero 3 over data; micro 2; precision bf16', LAMB, 2,
          'offload optimizer of h.*.attn, wpe -> host; offload grads of wpe -> host; '
          'offload params of h.*.mlp.c_fc.w -> host', False),
         (ON.replace('data = %d', 'data = 2, tensor = 2') + 'place Heads, Mlp, Vocab -> tensor; zero 1 over data; '
          'precision bf16', ADAM, 4, 'offload optimizer, grads of h.*.mlp.c_fc, h.*.attn, wte -> host', True)]
# of some of four layers: the stack is cut, and its groups with it
LAYERS = [(ON % 2 + 'zero 3 over data; micro 2; precision bf16', FREE, 2,
           'offload optimizer, grads, params of h[0..1] -> host', False),
          (ON % 2 + 'zero 2 over data bucket = 4KiB; precision bf16', FREE, 2,
           'offload optimizer, grads of h[1..2] -> host; offload params of h.3 -> host', False),
          (ON % 2 + 'zero 1 over data; micro 1; precision f16', ADAM, 2,
           'offload optimizer of h[0..2].attn, wte -> host; offload grads of h[1..1].attn -> host', True),
          (ON % 2 + 'zero 3 over data prefetch = 1 overlap = on; recompute h[1..3] keep = input', LAMB, 2,
           'offload optimizer, grads of h[0..1], h.3 -> host', True),
          (ON.replace('data = %d', 'data = 2, tensor = 2') + 'place Heads, Mlp, Vocab -> tensor; zero 2 over data; '
           'micro 2; precision bf16', FREE, 4, 'offload optimizer, grads, params of h[2..3] -> host', False),
          (ON % 1 + 'micro 4', 'sgd lr = 1e-2 momentum = 0.9; on_nan off', 1, 'offload optimizer of h[0..1] -> host',
           False),
          ('', 'sgd lr = 1e-2; on_nan off', 1, 'offload params of h[1..2] -> host', False)]


def write(plan, optim, hosted, near='', layers=2):
    text = MODEL.replace('Layers = 2', f'Layers = {layers}')
    open(f'{folder}/m.shard', 'w').write(text % (optim, '1GiB', plan, hosted, f'{plan}; {near}' if near else plan))


def verified(steps):
    """Both plans; kernels are optimized in every fourth call, since most of the time is that of LLVM."""
    quick = ['--quick'] if next(CALLS) % 4 else []
    return run(SHARDC, 'verify', 'm.shard', '--plan', 'hosted', '--against', 'near', '--steps', str(steps), *quick,
               cwd=folder)


def train(name, ranks):
    shutil.rmtree(f'{folder}/out {name}', ignore_errors=True)
    run(SHARDC, 'compile', 'm.shard', '--plan', name, '-o', name, '-q', '--quick', cwd=folder)
    before = (SHARDC, 'run', '-n', str(ranks)) if ranks > 1 else ()
    said = ''.join(run(*before, f'./{name}', *(['--'] if before else []), 'train', '--threads', '1', '--out',
                       f'out {name}', '--check-memory', cwd=folder))
    rows = re.findall(r'^ *(\w+) +(\d+) +(\d+) +\d+  (exact|less)$', said, re.M)
    check(any(r[0] == 'step' for r in rows) and all(r[3] == 'exact' for r in rows), f'{name}: {said}')
    moved = re.findall(r'^step .*\n(?:  host .*\n)?  moved +(\d+) bytes down, (\d+) up$', said, re.M)
    return moved, [r for r in rows if r[0] == 'host']


def planned(name):
    return json.loads(run(SHARDC, 'plan', 'm.shard', '--plan', name, '--json', cwd=folder)[0])['classes'][0]


def same_bits(plan, optim, ranks, what):
    write(plan, optim, f'offload {what} -> host')
    said = verified(3)
    check('the same bits in losses, norms and' in ''.join(said), f'{plan}: {said}')
    moved, host = train('hosted', ranks)
    p, q = planned('hosted'), planned('near')
    wanted = p['moved_per_step']
    check(moved == [(str(wanted['down']), str(wanted['up']))], f'{plan}: {moved} moved, {wanted} planned')
    h = p['host']
    check(max(int(r[1]) for r in host) <= h['working'] + h['gradients'] > 0, f'{plan}: {host} {h}')
    if 'params' in what: check(p['bytes']['weights'] == 0 and h['weights'] == q['bytes']['weights'], f'{plan}: {p} {q}')
    if 'optimizer' not in what: return
    check(not any(q['host'].values()) and not q['moved_per_step']['copies'], f'{plan}: {q}')
    # with whole gradients and whole weights on the device: a rank's part of each, and scalars
    if 'zero 1' in plan and 'params' not in what:
        down, up = q['bytes']['gradients'] / ranks, q['bytes']['weights'] / ranks
        sums = 8 * wanted['copies'] if 'grads' in what else 0                       # uploads of the norm's partial sums
        check(0 <= wanted['down'] - down <= 0.02 * down + 8 * wanted['copies'] and 0 <= wanted['up'] - up <= sums,
              f'{plan}: {wanted}, {down} {up}')
    if 'grads' in what and 'params' in what and 'micro' not in plan and 'zero 3' not in plan:
        down = q['bytes']['gradients'] / ranks + q['bytes']['weights'] * (ranks > 1)  # nothing of layers themselves
        check(wanted['down'] <= 1.02 * down + 8 * wanted['copies'], f'{plan}: {wanted}, {down}')
    check(p['bytes']['optimizer'] <= 192, f'{plan}: {p}') # the loss scale and its counters
    check(p['host']['gradients'] > 0, f'{plan}: {p}')
    if 'grads' in what and ('zero 2' in plan or 'zero 3' in plan):  # except for tensors joined for a message
        check(p['bytes']['gradients'] <= 0.25 * q['bytes']['gradients'], f'{plan}: {p} {q}')


def some_there(plan, optim, ranks, lines, cut, layers=2):
    """Only named tensors move: the bytes of both memories add up to those without `offload`, except for masters that
    f32 keeps apart and the padding of buckets."""
    write(plan, optim, lines, layers=layers)
    said = ''.join(verified(3))
    check('the same bits in losses, norms and' in said or cut and 'losses   differ by 0 at most' in said,
          f'{lines}: {said}')
    moved, host = train('hosted', ranks)
    p, q = planned('hosted'), planned('near')
    wanted, h = p['moved_per_step'], p['host']
    check(moved == [(str(wanted['down']), str(wanted['up']))], f'{lines}: {moved} moved, {wanted} planned')
    check(max(int(r[1]) for r in host) <= h['working'] + h['gradients'], f'{lines}: {host} {h}')
    for part in ['optimizer'] + ['weights'] * ('precision' in plan):
        more = p['bytes'][part] + h[part] - q['bytes'][part]
        check(0 <= more <= (0.2 if 'precision' in plan else 1) * q['bytes'][part], f'{lines}: {part} {p} {q}')
    states = 'momentum' in optim or 'lr = 2e-3' in optim
    check(not states or 0 < h['optimizer'] and p['bytes']['optimizer'] > 192, f'{lines}: {p}')
    check((0 < h['weights'] < q['bytes']['weights']) == ('params' in lines), f'{lines}: {p} {q}')


def moved_between_plans(case, samples=True):
    """A run resumes from a checkpoint of a plan with layers on the host under the plan without, and the other way
    round, with the same bits; a model that samples gives the same text."""
    write(*case[:2], case[3], layers=4)
    ends, files = {}, {}
    for first, then in ('hosted', 'near'), ('near', 'hosted'), ('near', 'near'):
        for name, steps in (first, '2'), (then, '4'):
            run(SHARDC, 'compile', 'm.shard', '--plan', name, '-o', name, '-q', '--quick', cwd=folder)
            run(SHARDC, 'run', '-n', '2', f'./{name}', '--', 'train', '--threads', '1', '--out', 'moves', '--steps',
                steps, '--resume', '--dump', 'end.st', '--save-every', '2', cwd=folder)
        ends[first, then] = held(f'{folder}/end.st')
        shutil.rmtree(f'{folder}/files', ignore_errors=True)
        run(SHARDC, 'run', '-n', '2', f'./{then}', '--', 'export', '--resume=moves', '--out', 'files', cwd=folder)
        text = samples and run(SHARDC, 'run', '-n', '2', f'./{then}', '--', 'sample', '--out', 'moves', '--prompt', 'a',
                               '--tokens', '8', '--threads', '1', cwd=folder)[0]
        files[first, then] = held(f'{folder}/files/model.safetensors'), text
        shutil.rmtree(f'{folder}/moves')
    shutil.rmtree(f'{folder}/again', ignore_errors=True)
    check(all(e == ends['near', 'near'] for e in ends.values()), f'checkpoints of {case}: other bits')
    alike = all(f == files['near', 'near'] and len(f[0]) > 9 for f in files.values())
    check(alike, f'exports and samples of {case}: other bytes')
    run(SHARDC, 'run', '-n', '2', './hosted', '--', 'train', '--init', 'files', '--steps', '0', '--out', 'again',
        '--dump', 'again.st', cwd=folder)
    again = held(f'{folder}/again.st')
    check(all(again[k] == v for k, v in ends['near', 'near'].items() if k in again and '.m' not in k[-3:]
              and '.v' not in k[-3:]), 'weights that were exported come back')


# stacks in subs: lines, without them; whether groups are cut
IN_SUBS = [(ON % 2 + 'zero 3 over data; micro 2; precision bf16', FREE, 2,
            'offload optimizer, grads, params of enc.h[0..1] -> host', False),
           (ON % 2 + 'zero 2 over data bucket = 4KiB', ADAM, 2,
            'offload optimizer, grads of enc.h[1..2].mlp, dec.h.3, enc.ln_f -> host; offload params of dec.h.0 -> host',
            True),
           ('', FREE, 1, 'offload optimizer of enc.h.0, dec.h[0..2] -> host', False)]


def in_subs():
    """Layers of stacks in subs, of which two have the same dim, are distinguished like those of the model."""
    global MODEL
    flat, MODEL = MODEL, MODEL.replace('use "gpt2"\nvariant Small of GPT2', SUBS + 'variant Small of Two')
    for case in IN_SUBS: some_there(*case, layers=4)
    moved_between_plans(IN_SUBS[0], samples=False)  # it sees what comes later
    write(ON % 2 + 'zero 2 over data', FREE, 'recompute enc.h[1..3] keep = input offload = host; '
          'offload params of enc.h[0..1] -> host', layers=4)
    said = verified(2)
    check('the same bits in losses, norms and' in ''.join(said), f'kept in a sub: {said}')
    plan = ON % 2 + 'zero 1 over data; on node'
    for line, code, column, words in WRONG_IN_SUBS:
        refused(MODEL.replace('Layers = 2', 'Layers = 4') % (ADAM, '1GiB', plan, line, plan), code,
                f'm.shard:27:{column}\n', '= help: ', words)
    MODEL = flat


def held(path):
    """Parameters and states by name."""
    return {k: v for k, v in tensors(read(path)).items()
            if k.startswith(('h.', 'wte', 'wpe', 'ln_f', 'enc', 'dec', 'transformer.'))}


def kept_there(plan, ranks, line, bare, extra=''):
    """Saved inputs are on the host: each is copied down and up once per step, and none stays on the device."""
    write(plan, ADAM, f'recompute {line}; {extra}', f'recompute {bare}')
    said = verified(3)
    check('the same bits in losses, norms and' in ''.join(said), f'{line}: {said}')
    moved, host = train('hosted', ranks)
    p, q = planned('hosted'), planned('near')
    wanted, parts = p['moved_per_step'], 2 if 'micro' in plan else 1
    check(moved == [(str(wanted['down']), str(wanted['up']))], f'{line}: {moved} moved, {wanted} planned')
    if extra: return
    there = p['host']['saved']
    check(p['bytes']['saved'] + there == q['bytes']['saved'] and there > 0, f'{line}: {p} {q}')
    check(wanted['down'] == wanted['up'] == parts * there, f'{line}: {wanted} {p}')
    if bare.startswith('h '): check(p['bytes']['saved'] == 0, f'{line}: {p}')


def without_groups(mesh, rules, ranks):
    """If no axis cuts Batch, only the host needs groups: the bits equal those of a plan that has such an axis with one
    rank. Without a mesh there are no messages and no message types either, and sums over rows have another order."""
    rules = f'place {rules}; ' if rules else ''
    extra = 'micro 2; precision bf16 master = f32; '
    hosted = (f'mesh {mesh}; ' if mesh else '') + rules + extra
    near = f'mesh {mesh + ", " if mesh else ""}data = 1; {rules}place Batch -> data; zero 0 over data; {extra}'
    open(f'{folder}/m.shard', 'w').write(MODEL % (ADAM, '1GiB', hosted, 'offload optimizer, grads -> host', near))
    said = verified(3)
    apart = re.search(r'losses   differ by (\S+) at most', ''.join(said))
    check('the same bits in losses, norms and' in ''.join(said) or not mesh and float(apart[1]) < 1e-5,
          f'{mesh}: {said}')
    moved, _ = train('hosted', ranks)
    wanted = planned('hosted')['moved_per_step']
    check(moved == [(str(wanted['down']), str(wanted['up']))] and wanted['down'] > 0, f'{mesh}: {moved} {wanted}')


def later_steps(optim, kind):
    """Steps of another kind move what `plan` says of them."""
    write(ON % 2 + 'zero 0 over data', optim, 'offload optimizer, grads of h.* -> host')
    said = verified(4)
    check('the same bits in losses, norms and' in ''.join(said), f'{optim}: {said}')
    run(SHARDC, 'compile', 'm.shard', '--plan', 'hosted', '-o', 'hosted', '-q', '--quick', cwd=folder)
    said = ''.join(run(SHARDC, 'run', '-n', '2', './hosted', '--', 'train', '--threads', '1', '--out', f'out {kind}',
                       '--check-memory', cwd=folder))
    moved = re.findall(rf'^step\.{kind} .*\n(?:  host .*\n)?  moved +(\d+) bytes down, (\d+) up$', said, re.M)
    wanted = json.loads(run(SHARDC, 'plan', 'm.shard', '--plan', 'hosted', '--json', cwd=folder)[0])[kind]
    wanted = wanted['moved_per_step']
    check(moved == [(str(wanted['down']), str(wanted['up']))] and wanted['down'] > 0, f'{optim}: {said} {wanted}')


def refused(text, code, *words):
    open(f'{folder}/m.shard', 'w').write(text)
    p = subprocess.run([SHARDC, 'plan', 'm.shard', '--plan', 'hosted'], cwd=folder, capture_output=True, text=True,
                       env=dict(os.environ, SHARDC_PATH=EXAMPLES, NO_COLOR='1'))
    check(p.returncode != 0 and all(w in p.stdout + p.stderr for w in (code, *words)), f'{code}: {p.stdout}{p.stderr}')


# a plan's lines for stages of 8 layers; a line, its column, and the line after the edit (None: no edit)
FOUR = 'pipe = 4; place Layers -> pipe; micro 2'
STAGES = [(FOUR, 'optimizer of h[0..2].attn', '24', 'optimizer of h[0..3].attn'),
          (FOUR, 'optimizer, grads of wte, h.5', '36', 'optimizer, grads of wte, h[4..5]'),
          (FOUR, 'optimizer of h[0..1], h.7', '33', 'optimizer of h[0..1], h[6..7]'),
          (FOUR, 'optimizer of h[1..6]', '24', 'optimizer of h.*'),
          (FOUR, 'params of h.0 -> host; offload params of h.1.attn', '21', None),
          (FOUR + '; pipeline interleaved', 'optimizer of h.1, wte', '24', 'optimizer of h.1, h.5, wte'),
          ('pipe = 2; place Layers -> pipe; micro 2; pipeline interleaved', 'optimizer of h[0..1]', '24',
           'optimizer of h[0..1], h[4..5]'),
          (FOUR + '; pipeline sequential', 'params of h[0..1], wte', '21', 'params of h.*, wte'),
          (FOUR + '; pipeline sequential', 'params of h.0 -> host; offload params of h.1', '21', None)]
# stages of other numbers of layers, and stages that run one program
LATER = [('pipe = 3; place Layers -> pipe; micro 2; pipeline one_f_one_b uneven = on', 'optimizer of h[0..1]',
          'of whole stages: `h[0..2]`'),
         ('pipe = 4; place Layers -> pipe; micro 8', 'optimizer of h[0..1]', 'a smaller `micro`'),
         ('pipe = 4; place Layers -> pipe; micro 4; pipeline auto', 'optimizer of h.0', 'of whole stages: `h[0..1]`')]


def of_stages(stages, line):
    text = MODEL % (ADAM, '1GiB', f'mesh {stages}', f'offload {line} -> host', f'mesh {stages}')
    open(f'{folder}/m.shard', 'w').write(text.replace('Layers = 2', 'Layers = 8'))
    return open(f'{folder}/m.shard').read()


def on_stages():
    """Each pipeline stage has all of its layers on the host, or none: otherwise the edit widens the line to whole
    stages."""
    for stages, line, column, mended in STAGES:
        said = 'all layers' if 'sequential' in stages else 'whole stages'
        refused(of_stages(stages, line), 'E0901', f'm.shard:12:{column}', f'of {said}: `')
        _, notes = run(SHARDC, 'check', 'm.shard', '--message-format=json', cwd=folder, expect=1)
        said = [r for r in map(json.loads, notes.splitlines()) if r['code'] == 'E0901'][0]
        check(bool(said['edits']) == bool(mended), f'{line}: {said}')
        data = open(f'{folder}/m.shard').read()
        for e in said['edits']: data = data[:e['offset']] + e['text'] + data[e['offset'] + e['length']:]
        open(f'{folder}/m.shard', 'w').write(data)
        if mended: check(mended in data and 'host' in planned_text(), f'{line}: {data}')
    for stages, line, words in LATER: refused(of_stages(stages, line), 'E0901', 'm.shard:12:24', words)
    hosts = {}
    for paths in ('h.*', 'h[0..7]', 'h[0..3], h[4..7]', 'h[2..5]',
                  'h.2, h[3..3].attn, h[3..3].mlp, h.3.ln_1, h.3.ln_2'):
        of_stages(FOUR, f'params of {paths}')
        said = json.loads(run(SHARDC, 'plan', 'm.shard', '--plan', 'hosted', '--json', cwd=folder)[0].split('\n')[0])
        hosts[paths] = {c['stages']: c['host']['total'] > 0 for c in said['classes']}
    there = dict.fromkeys(('first', 'middle', 'last'), True)
    check(hosts['h.*'] == hosts['h[0..7]'] == hosts['h[0..3], h[4..7]'] == there, hosts)
    of_stages(FOUR, 'params of h[2..5]')
    run(SHARDC, 'dump', 'm.shard', '--plan', 'hosted', '--after', 'offload', '-o', 'all.ir', cwd=folder)
    err = run(SHARDC, 'compile', 'all.ir', '-o', 'all', cwd=folder, expect=1)[1]
    check('E1207' in err and 'after `combine`' in err, err)
    of_stages(FOUR, f'params of {list(hosts)[-1]}')
    check(hosts['h[2..5]'] == {'first': False, 'middle': True, 'last': False}, hosts)
    check(list(hosts.values())[-1] == {'first': False, 'middle_1': True, 'middle_2': False, 'last': False}, hosts)
    err = run(SHARDC, 'dump', 'm.shard', '--plan', 'hosted', '--after', 'memory', '--class', 'middle', cwd=folder,
              expect=1)[1]
    check('E1207' in err and '`--class` is one of first, middle_1, middle_2, last' in err, err)
    shown = run(SHARDC, 'dump', 'm.shard', '--plan', 'hosted', '--after', 'memory', '--class', 'middle_1',
                cwd=folder)[0]
    check(re.search(r'^param @h\.\S+ : host f32', shown, re.M), 'no parameters there')


BOX = 'machine node { node gpus = 2 arch = sm_80 memory = 4GiB; host memory = %dKiB cores = 2 }'


def on_a_node():
    """Host memory is checked for all ranks of a node together, whose classes may need different amounts of it."""
    text = of_stages(FOUR + '; on node nodes = 2', 'optimizer, grads of h[0..1]')
    text = re.sub(r'^machine node .*', '%s', text, flags=re.M).replace('plan near', '#')
    open(f'{folder}/m.shard', 'w').write(text % (BOX % 4096))
    said = json.loads(run(SHARDC, 'plan', 'm.shard', '--plan', 'hosted', '--json', cwd=folder)[0].split('\n')[0])
    need = [c['host']['total'] + c['host_pinned']['total'] for c in said['classes']]
    check([c['stages'] for c in said['classes']] == ['first', 'middle', 'last'] and need[0] > 2 * need[1], need)
    both = need[0] + need[1]
    for kib, fits in (both // 1024 + 1, True), (both // 1024 - 1, False):
        open(f'{folder}/m.shard', 'w').write(text % (BOX % kib))
        p = subprocess.run([SHARDC, 'plan', 'm.shard', '--plan', 'hosted'], cwd=folder, capture_output=True, text=True,
                           env=dict(os.environ, SHARDC_PATH=EXAMPLES, NO_COLOR='1'))
        wrong = 'E0801' in p.stderr and "of the host's memory on node 0" in p.stderr and '1 of `first`' in p.stderr
        check(wrong != fits, f'{kib} KiB: {p.stderr}')


def planned_text(): return run(SHARDC, 'plan', 'm.shard', '--plan', 'hosted', cwd=folder)[0]


# a line of the plan, code, column, text of the help
WRONG = [('offload optimizer -> host; offload optimizer -> host', 'E0606', 38, 'each parameter once'),
         ('offload optimizer, optimizer -> host', 'E0606', 22, 'each parameter once'),
         ('offload params of h.* -> host; offload params of h.*.attn -> host', 'E0606', 52, 'each parameter once'),
         ('offload optimizer, grads -> host; offload grads of wte -> host', 'E0606', 54, 'each parameter once'),
         ('offload saved -> host', 'E0602', 11, 'recompute h.* keep = input offload = host'),
         ('offload activations -> host', 'E0602', 11, 'recompute h.* keep = input offload = host'),
         ('offload optimizer, gradients -> host', 'E0602', 22, 'write `grads`'),
         ('offload parameters -> host', 'E0602', 11, 'write `params`'),
         ('offload optimizer -> nvme', 'E0602', 24, 'goes to the host'),
         ('offload optimizer', 'E0602', 3, 'offload optimizer, grads, params -> host'),
         ('offload optimizer -> host, host', 'E0606', 30, 'once: `-> host`'),
         ('offload optimizer of absent -> host', 'E0709', 24, 'parameters are in wte, wpe, h, ln_f'),
         ('offload optimizer of hh.*.mlp -> host', 'E0709', 24, 'parameters are in wte, wpe, h, ln_f'),
         ('offload optimizer of h[0..0].mlpp -> host', 'E0709', 24, '`h[0..0].mlp`'),
         ('offload optimizer of h[0..5].mlp -> host', 'E0709', 26, '`h[0..1].mlp`'),
         ('offload optimizer of h[0] -> host', 'E0101', 27, '`h.0`'),
         ('offload params of h.attn -> host', 'E0709', 21, '`h.*.attn`'),
         ('offload optimizer of h[0..2] -> host', 'E0709', 26, '`h[0..1]`'),
         ('offload optimizer of h[0..2].attn -> host', 'E0709', 26, '`h[0..1].attn`'),
         ('offload optimizer of h[1..0] -> host', 'E0709', 26, '`h[0..1]`'),
         ('offload optimizer of h.2 -> host', 'E0709', 26, 'the last one is `h.1`'),
         ('offload optimizer of h[0..0].absent -> host', 'E0709', 24, 'in `h.*` are ln_1, attn, ln_2, mlp'),
         ('offload params of h[0..1] -> host; offload params of h[1..1].attn -> host', 'E0606', 56,
          'each parameter once'),
         ('offload params of h.*.attn -> host; offload params of h.0 -> host', 'E0606', 57, 'each parameter once'),
         ('offload optimizer of h.0 -> host; offload grads of h[0..1] -> host', 'E0901', 45, '`optimizer` of h[0..1]'),
         ('offload grads of wte -> host; offload optimizer of h.* -> host', 'E0901', 11, '`optimizer` of wte'),
         ('offload grads of wte, h.* -> host', 'E0901', 11, '`offload optimizer, grads -> host`'),
         ('offload auto of wte -> host', 'E0602', 19, 'offload optimizer of wte -> host'),
         ('offload auto -> host; offload params -> host', 'E0602', 33, 'leave one of both out')]


# whose edits compile
MENDED = [('offload grads of wte -> host; offload optimizer of h.* -> host', 'E0901'),
          ('offload grads of wte, h.* -> host', 'E0901')]
PLAN = SHARDC, 'plan', 'm.shard', '--plan', 'hosted', '--json'
WRONG_IN_SUBS = [
    ('offload params of enc.h[0..4].mlp -> host', 'E0709', 27, '`enc.h[0..3].mlp`'),
    ('offload params of enc.h[3..2] -> host', 'E0709', 27, '`enc.h[2..3]`'),
    ('offload params of enc.h.4 -> host', 'E0709', 27, 'the last one is `enc.h.3`'),
    ('offload params of enc.h[0..1].mlpp -> host', 'E0709', 21, '`enc.h[0..1].mlp`'),
    ('offload params of enc.h.mlp -> host', 'E0709', 21, '`enc.h.*.mlp`'),
    ('offload params of enc[0..1].h -> host', 'E0709', 21, 'in `enc` are h, ln_f'),
    ('offload params of enc.h.0, enc.h[0..2] -> host', 'E0606', 30, 'each parameter once'),
    ('recompute enc.h[2..4] keep = input', 'E0709', 19, '`enc.h[2..3]`'),
    ('place enc.h[0..1].mlp -> none', 'E0602', 9, '`enc.h.*.mlp`')]


def refusals():
    plan = ON % 2 + 'zero 1 over data; on node'
    whole = MODEL % (ADAM, '512KiB', plan, 'offload optimizer -> host', plan)
    refused(whole, 'E0801', "the host's")
    refused(whole.replace('optimizer -> host', 'grads -> host'), 'E0901', 'gradients without the optimizer',
            'm.shard:12:11')
    for line, code, column, words in WRONG:
        refused(MODEL % (ADAM, '1GiB', plan, line, plan), code, f'm.shard:12:{column}\n', '= help: ', words)
        if (line, code) in MENDED: mend(f'{folder}/m.shard', *PLAN)
    on_stages()
    on_a_node()
    other = MODEL % ('onebit_adam workers = 2 freeze = 1', '1GiB', plan, 'offload optimizer -> host', plan)
    refused(other.replace('zero 1', 'zero 0'), 'E0712', 'offload optimizer of wte, wpe, h.*, ln_f -> host')
    signs = MODEL % ('onebit_adam lr = 1e-3; delay after = 2', '1GiB', 'mesh data = 2; place Batch -> data', '', '')
    refused(signs, 'E0901', 'm.shard:8:32', 'without `delay`')
    mend(f'{folder}/m.shard', *PLAN)
    for delay in 'delay', 'delay after = 4':
        refused(signs.replace('delay after = 2', delay).replace('onebit_adam', 'adamw'), 'E0602', 'delay after = 2')
        mend(f'{folder}/m.shard', *PLAN)
    once = signs.replace('onebit_adam', 'adamw').replace('steps 4', 'steps 1')
    refused(once, 'E0602', 'of one step none is late')
    mend(f'{folder}/m.shard', *PLAN)
    kept = MODEL % (ADAM, '1GiB', plan, 'recompute h keep = %s offload = host', plan)
    refused(kept % 'none', 'E0602', 'm.shard:12:37')


text_file(f'{folder}/text.txt')
for case in CASES: same_bits(*case)
for case in PARTS: some_there(*case)
for case in LAYERS: some_there(*case, layers=4)
moved_between_plans(LAYERS[0])
moved_between_plans(('mesh pipe = 2; place Layers -> pipe; micro 4; precision bf16', FREE, 2,
                     'offload optimizer, grads, params of h[2..3] -> host'))
in_subs()
for case in KEPT: kept_there(*case)
without_groups('', '', 1)
without_groups('tensor = 2', 'Heads, Mlp, Vocab -> tensor', 2)
without_groups('pipe = 2', 'Layers -> pipe', 2)
later_steps('onebit_adam lr = 2e-3 workers = 2 block = 64 freeze = 2', 'frozen')
later_steps('adamw lr = 2e-3; delay after = 2', 'late')
refusals()
print(f'{len(CASES)} plans: the same bits with their states on the host; {len(PARTS)} with those of some parameters, '
      f'{len(KEPT)} with what layers keep')
