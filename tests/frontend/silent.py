"""No word of a plan is silent: silent.py SHARDC ROOT [full]

Each option of a plan's lines (settings.def) is added, one value at a time, to plans of many kinds. With it the plan is
refused, or the compiler says something, or the module after the last pass differs from the module without the option;
`SAME` lists the values that equal the default behaviour, with the reason. Each option changes some plan. Switches,
choices and counts get their values from the table; another new option must add some to `VALUES`. A value meets each
kind of plan alone and with one of the choices of precision and micro-batches, in turn, so that it meets all of them;
with `full` each kind with each choice.
"""
import os, re, subprocess, sys, tempfile

SHARDC, ROOT, WORK = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), tempfile.mkdtemp()
MODEL = '''use "std"
dims { Batch; Embed = 32; Mlp like Embed; Layers = 4; Out = 8 }
layer Block(x: [Batch, Embed]) -> [Batch, Embed] {
  sub up = Linear[Embed -> Mlp]
  sub down = Linear[Mlp -> Embed]
  return x + down(relu(up(x)))
}
model M {
  input x [Batch, Embed] f32
  input y [Batch] of Out
  stack h [Layers] of Block
  param w [Embed] ~ normal(1)                    # read at both ends
  sub head = Linear[Embed -> Out]
  loss cross_entropy[Out](head(h(x * w) * w), y)
}
train t for M { batch 16; steps 9; data columns(x = "x.npy", y = "y.npy"); optim adamw; clip 1.0 }
plan p for M {
'''
DATA = 'mesh data = 4\nplace Batch -> data\n'
BASES = {'one': '', 'data': DATA, **{f'zero {n}': f'{DATA}zero {n}' for n in (1, 2, 3)},
         'tensor': 'mesh data = 2, tensor = 2\nplace Batch -> data\nplace Mlp -> tensor',
         'stages': 'mesh pipe = 2, data = 2\nplace Layers -> pipe\nplace Batch -> data\npipeline one_f_one_b',
         'in turn': 'mesh pipe = 2, data = 2\nplace Layers -> pipe\nplace Batch -> data\npipeline sequential'}
PRECISIONS = '', 'precision bf16', 'precision f16', 'precision fp8'
MICRO = '', 'micro 2'

TABLE = open(f'{ROOT}/frontend/settings/settings.def').read()
LINES = dict(re.findall(r'^LINE\(PLAN, (\w+), \w+, \d+, \d+, [\w| ]+, "([^"]*)"', TABLE, re.M))  # with their defaults


def by_type(option, kind, default):
    """Values of switches, choices and counts that are not the default."""
    if kind == 'SWITCH': return ['off' if default == 'on' else 'on']
    if kind == 'COUNT': return [str(int(default or 1) + 1)]
    choices = re.findall(rf'^CHOICE\(PLAN, {re.escape(option)}, (\w+)', TABLE, re.M) if kind == 'WORD' else []
    return [c for c in choices if c != default]


OPTIONS = {f'{l}.{k}': by_type(f'{l}.{k}', kind, default) for l, k, kind, default in re.findall(
    r'^OPTION\(PLAN, ([\w.]+), (\w+), (\w+), "([^"]*)"', TABLE, re.M)}
VALUES = {**{o: values for o, values in OPTIONS.items() if values},
    'zero.over': ['data'], 'zero.bucket': ['256', '1MiB'], 'zero.prefetch': ['1', '10KiB'], 'zero.persist': ['1KiB'],
    'recompute.keep': ['all', 'input', 'none', 'auto budget = 5KiB', '[y]'], 'recompute.budget': ['5KiB'],
    'recompute.over': ['tensor'], 'offload.of': ['h.*', 'w'], 'precision.master': ['f32'], 'precision.block': ['64'],
    'precision.f16.init_scale': ['128'], 'precision.f16.growth_interval': ['5'], 'precision.f16.min_scale': ['2'],
    'pipeline.interleaved.chunks': ['2'],
}
SAME = {
    'zero.over = data': 'the axes that split Batch are what it takes without the word',
    'zero.bucket = 1MiB': 'no group of this model is larger',
    'recompute.keep = all': 'a later line takes back what an earlier one says',
    'recompute.keep = auto budget = 5KiB': 'all that a small micro-batch keeps fits there',
    'recompute.budget': 'as behind keep = auto',
    'precision.master = f32': 'the one choice',
    'pipeline.interleaved.chunks = 2': 'one micro-batch goes through all layers in turn (W0702)',
    'pipeline.zero_bubble.memory = 2': 'as many micro-batches as stages: it says so (W0706)',
    'pipeline.uneven = on': 'its stages are alike, and it says so; others are in tests/run/stages.py',
    'pipeline.uneven = memory': 'as on',
    'precision.grad': 'the type in which this plan sums',
    'precision.reduce': 'the type in which this plan sends',
}


def module(body, stages=('first', 'last')):
    """The module's text after the last pass without the parts that name the plan's own words; None: the plan was
    refused."""
    path = f'{WORK}/m.shard'
    open(path, 'w').write(MODEL + body + '\n}\n')
    text = said = ''
    for stage in stages if 'pipe =' in body else ('',):
        p = subprocess.run([SHARDC, 'dump', path, '--plan', 'p', '--after', 'prove', '--target', 'x86_64_v3',
                            *(['--class', stage] if stage else [])], capture_output=True, text=True)
        if p.returncode not in (0, 1): sys.exit(f'{body}\n{p.stderr}')
        if 'all ranks run one program' in p.stderr: return module(body, ('',))
        if p.returncode: return None, p.stderr
        text, said = text + p.stdout, p.stderr
    lines = (l for l in text.split('\n') if not l.startswith(('set ', 'source ')))
    return re.sub(r' path = "[^"]*",| *loc\([^)]*\)', '', '\n'.join(lines)), said


def with_word(base, option, value):
    """The plan with one word more, or a line with another choice, which has the option; None: it has no such line."""
    line, *choice, key = option.split('.')
    word = f' over {value}' if key == 'over' else f' {key} = {value}'
    have = re.search(rf'^{line}\b.*$', base, re.M)
    if line == 'offload': return f'{base}\noffload optimizer {word if key != "of" else f"of {value}"} -> host'
    if line == 'recompute': return f'{base}\nrecompute h.*{word}'
    if choice: return base.replace(have[0], f'{line} {choice[0]}{word}') if have else None
    if have: return base.replace(have[0], have[0] + word)
    return f'{base}\n{line} {dict(LINES, pipeline="gpipe", on="here")[line]}{word}'


options = set(OPTIONS)
wrong = [f'{o}: no values to try' for o in sorted(options - set(VALUES))]
wrong += [f'{o}: no such option' for o in sorted(set(VALUES) - options)]
changes, refused, tried = set(), set(), 0
FULL, CHOICES = 'full' in sys.argv[3:], [('', 'micro 2'), ('precision bf16', ''), ('precision bf16', 'micro 2')]


def due(kind, value, choice):
    return FULL or choice not in CHOICES or CHOICES.index(choice) == (kind + value) % len(CHOICES)


NUMBER = {f'{o} = {v}': i for i, (o, v) in enumerate((o, v) for o in sorted(VALUES) for v in VALUES[o])}
for kind, (name, base) in enumerate(BASES.items()):
    for precision in PRECISIONS:
        for micro in MICRO if precision in ('', 'precision bf16') else [''] if name == 'data' else []:
            plain = '\n'.join(filter(None, (base, precision, micro)))
            without, said = module(plain)
            if without is None: sys.exit(f'{plain}\n{said}')
            for option in sorted(set(VALUES) & options):
                for value in VALUES[option]:
                    body = with_word(plain, option, value)
                    if body is None or body == plain: continue
                    if not due(kind, NUMBER[f'{option} = {value}'], (precision, micro)): continue
                    text, told = module(body)
                    tried += 1
                    if text is None: refused.add(option)
                    elif text != without: changes.add(option)
                    elif told == said and not {option, f'{option} = {value}'} & set(SAME):
                        wrong.append(f'{option} = {value} changes nothing and says nothing, in\n{plain}\n')
for option in sorted(options & set(VALUES)):
    if option not in changes | refused and f'{option} = {VALUES[option][0]}' not in SAME:
        wrong.append(f'{option} changes no plan')
print(f'{tried} words, {len(changes)} of {len(options)} options change a plan, never: {sorted(options - changes)}')
if wrong: sys.exit('\n'.join(wrong[:20]))
