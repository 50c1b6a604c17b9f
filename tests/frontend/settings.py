"""No setting without a reader: settings.py SHARDC ROOT

Every row of settings.def is either planned or read. A planned word gives E0901 at its position, in a file and in --set
alike, and a note of `check`; a value that describes the present behaviour passes. For every other key the test finds
the code that reads it: by the name under which the module and the executable carry it ("train.optim.lr", machine:
number(m, "node.hbm")), or by an accessor of the tree (settings_value(item, "on", "nodes")); for every choice, the code
that compares with it. A key that neither search finds must have a row in BY_HAND with the text of the reader, and the
named file must contain this text.

A key is read once: in the compiler by one accessor (module_settings.c, or the pass that obeys it), in the runtime by
one, and neither gives a default of its own: only the table has defaults.
"""
import os, re, subprocess, sys, tempfile

SHARDC, ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
ROOMS = ['driver', 'frontend', 'ir', 'passes', 'codegen', 'runtime']
TABLES = {'settings.def', 'settings.c', 'settings_check.c', 'settings_set.c', 'explain.def', 'keywords.def',
          'operators.def'}
BLOCKS = {'TRAIN': 'train', 'PLAN': 'plan', 'MACHINE': 'machine', 'WEIGHTS': 'weights'}
wrong = []

# key: (file, the words in it that read the setting)
BY_HAND = {
    'train.size.*': ('frontend/lower_choose.c', '"size"'),
    'train.batch': ('frontend/lower_choose.c', '"batch"'),
    'plan.mesh.*': ('frontend/lower_plan.c', '"mesh"'),
    'plan.zero.over': ('frontend/lower_settings.c', 'setting_over(e->ctx, line, &axis)'),
    'train.optim.of': ('frontend/train/sema_groups.c', 'setting_of(e->ctx, train->block->settings.at[line++], &path)'),
    'train.lora.of': ('frontend/train/sema_lora.c', 'setting_of(c, line, &adapters->path)'),
    'plan.recompute.over': ('frontend/plan/lower_recompute.c', 'setting_over(build->m->ctx, line, &axis)'),
    'plan.offload.of': ('frontend/lower_settings.c', 'setting_of(build->m->ctx, line, &path)'),
    'plan.place': ('frontend/lower_plan.c', '"place"'),
    'plan.recompute': ('frontend/plan/lower_recompute.c', '"recompute"'),
    'plan.precision.master': ('frontend/settings/settings.def', 'CHOICE(PLAN, precision.master, f32,'),
           # one choice, which is how it is
    'machine.node.f32': ('ir/cost/machine.c', '"machine.node.%s", plan_precision(m)'),
    'machine.node.tf32': ('ir/cost/machine.c', '"machine.node.%s", plan_precision(m)'),
    'machine.node.bf16': ('ir/cost/machine.c', '"machine.node.%s", plan_precision(m)'),
    'machine.node.f16': ('ir/cost/machine.c', '"machine.node.%s", plan_precision(m)'),
}
# choices that no comparison names: the default is the behaviour without another choice, or names are passed on
CHOICES_BY_HAND = {
    'train.optim': ('passes/math/optimizer.c', '#include "ir/plan/optimizers.def"'),  # one rule per row
    'plan.precision.fp8.backward': ('ir/eights.c', '#include "ir/formats8.def"'),  # formats by their names
    'plan.pipeline': ('passes/stages/turn_loops.c', '"one_f_one_b"'),  # gpipe is the case without another schedule
    'train.data.format': ('runtime/data/formats.def', 'FORMAT(idx,'),
    'machine.host.arch': ('driver/cmd_load.c', 'target_find(module_word(m, "machine.host.arch"))'),
    'machine.node.arch': ('codegen/nvptx/target.c', '"sm_" #number'),
}


def text(path): return open(f'{ROOT}/{path}', errors='replace').read()


def rows():
    table = text('frontend/settings/settings.def')
    table = re.sub(r'/\*.*?\*/', '', table, flags=re.S)
    for kind, rest in re.findall(r'^(LINE|OPTION|CHOICE|PLANNED)\((.*)\)$', table, re.M):
        yield kind, [f.strip().strip('"') for f in re.findall(r'"[^"]*"|[^,]+', rest)]


def sources():
    for room in ROOMS:
        for folder, _, names in os.walk(f'{ROOT}/{room}'):
            for n in sorted(names):
                if n.endswith(('.c', '.h', '.def')) and n not in TABLES:
                    yield os.path.relpath(f'{folder}/{n}', ROOT), open(f'{folder}/{n}', errors='replace').read()


CODE = dict(sources())
ALL = '\n'.join(CODE.values())


def read_as_name(names): return any(f'"{n}"' in ALL or f'"{n}.' in ALL for n in names)


def read_from_tree(word, key):
    if key is None:
        return bool(re.search(rf'settings_\w+\([^;]*"{word}", NULL', ALL)
                    or re.search(rf'strcmp\([^;]*"{word}"\)', ALL))
    return bool(re.search(rf'settings_\w+\([^;]*"{word}", "{key}"', ALL)
                or re.search(rf'setting_option\(\w+, "{key}"\)', ALL))


def has_words(entry):
    path, words = entry
    return os.path.exists(f'{ROOT}/{path}') and words in text(path)


def reader(block, word, key):
    name = '.'.join(filter(None, (BLOCKS[block], word, key)))
    if name in BY_HAND: return has_words(BY_HAND[name])
    names = [name]
    if name.startswith('train.data.'): names.append(name[6:])
    if block == 'MACHINE': names.append('.'.join(filter(None, (word, key))))
    return read_as_name(names) or read_from_tree(word, key)


# files that name keys without reading them, and why
NAMED_ONLY = {
    'frontend/lower_settings.c': 'writes them, and leaves out what one rank does not need',
    'ir/verify/verify.c': 'the numbers that a module may hold for them',
    'runtime/overrides.c': 'which of them --set of an executable may change',
}
WRITTEN = re.compile(r'module_set\([^;]*?;')      # a change of the module is no reading
KEY = re.compile(r'"((?:train|plan|machine|weights|data)\.[a-z0-9_.]*[a-z0-9_])"')
# readers with a default as the last argument are for what has no row
WITH_DEFAULT = re.compile(r'module_(?:setting|number)\([^;"]*"(?:train|plan|machine|weights|data)\.')


def readings(code):
    """(side, key) -> the places that read it."""
    found = {}
    for path, body in code.items():
        if path in NAMED_ONLY or not path.endswith(('.c', '.h')): continue
        body = WRITTEN.sub('', re.sub(r'/\*.*?\*/|^ *#include.*$', '', body, flags=re.S | re.M))
        side = 'runtime' if path.startswith('runtime/') else 'compiler'
        for key in KEY.findall(body): found.setdefault((side, key), []).append(path)
    return found


def read_once(code):
    bad = [f'{key} is read {len(at)} times in the {side}: {", ".join(at)}' for (side, key), at in readings(code).items()
           if len(at) > 1]
    return bad + [f'{path}: a default beside the table: {m.group()}' for path, body in code.items()
                  for m in WITH_DEFAULT.finditer(body)]


def is_planned(planned, block, word, key):
    """Planned in all values but, at most, the one that says how it is today; so are the options of a planned choice."""
    line, _, choice = word.partition('.')
    for p in planned:
        if p[0] != block or p[1] != line: continue
        some = choice and choice in p[3].split('|')
        if p[2] == 'NULL' and (p[3] == 'NULL' or some or (p[3][0] == '!' and not key)): return True
        if key and p[2] == key and (p[3] == 'NULL' or p[3][0] == '!'): return True
    return False


def check_readers(table, planned):
    n = 0
    for kind, f in table:
        block, word, key = f[0], f[1], f[2] if kind == 'OPTION' else None
        if kind not in ('LINE', 'OPTION') or is_planned(planned, block, word, key): continue
        word = word.split('.')[0]
        flags = f[5] if kind == 'LINE' else ''
        if kind == 'LINE' and f[2] == 'NOTHING' and not re.search('KEYS|FREE', flags):
            continue      # only its options say something
        if re.search('KEYS', flags): key = '*'
        n += 1
        if not reader(block, word, key):
            wrong.append(f'{BLOCKS[block]}.{word}{"." + key if key else ""}: nothing reads it')
    return n


def check_choices(table, planned):
    """Code compares with each choice by its name; the default may be the behaviour without any named choice."""
    n, otherwise = 0, {}
    for kind, f in table:
        if kind in ('LINE', 'OPTION'):
            otherwise[f[0], f[1] if kind == 'LINE' else f'{f[1]}.{f[2]}'] = f[6] if kind == 'LINE' else f[4]
    for kind, f in table:
        if kind != 'CHOICE': continue
        block, word, value = f[:3]
        name, line, key = f'{BLOCKS[block]}.{word}', *(word.split('.') + [None])[:2]
        if is_planned(planned, block, line, key) or any(p[0] == block and p[1] == line and p[3] == value
                                                        for p in planned):
            continue
        n += 1
        if name in CHOICES_BY_HAND and has_words(CHOICES_BY_HAND[name]): continue
        if f'"{value}"' not in ALL and otherwise.get((block, word)) != value:
            wrong.append(f'{name} = {value}: nothing asks for it')
    return n


# ---- the planned words ----

MODEL = '''use "std"
dims { Batch; In = 4; Layers = 2 }
layer L(x: [Batch, In]) -> [Batch, In] {
  sub l = Linear[In -> In]
  return l(x) }
model M { input x, y [Batch, In]
  stack h [Layers] of L
  loss mean[*]((h(x) - y)^2) }
machine box { node arch = x86_64_v3 memory = 1GiB %(node)s
  %(machine)s }
train t for M { batch 8; steps 4; data columns(x = "x.npy", y = "y.npy"); optim %(optim)s; %(train)s }
plan p for M { on box
  mesh data = 2; place Batch -> data
  zero 2 %(zero)s
  precision bf16 %(precision)s
  %(plan)s }
'''
# the text, in the file and by --set, that asks for a planned word, with the value that holds today if there is one
ASK = {
    'deterministic': ('plan', 'deterministic off', 'plan.deterministic=off', 'deterministic on'),
}
HOLES = dict(node='', machine='', optim='adamw', train='', zero='', precision='', plan='')


def shardc(folder, words, *args):
    open(f'{folder}/m.shard', 'w').write(MODEL % dict(HOLES, **words))
    return subprocess.run([SHARDC, *args, '--message-format=short'], cwd=folder, capture_output=True, text=True)


def codes(p, code): return re.findall(rf'^(?:(.*?):(\d+):(\d+): )?\w+\[{code}\]', p.stderr, re.M)


def dump(folder, words, *args):
    return shardc(folder, words, 'dump', 'm.shard', '--plan', 'p', '--after', 'lower', '-o', 'out.ir', *args)


def refuses(folder, name, hole, asks, option):
    p = dump(folder, {hole: asks})
    line = next(i for i, l in enumerate(open(f'{folder}/m.shard'), 1) if asks in l)
    if p.returncode != 1 or [int(x[1]) for x in codes(p, 'E0901')] != [line]:
        wrong.append(f'{name} in a file: {p.returncode} {p.stderr}')
    p = shardc(folder, {hole: asks}, 'check', 'm.shard')
    if p.returncode or [int(x[1]) for x in codes(p, 'N0902')] != [line]:
        wrong.append(f'{name} in check: {p.returncode} {p.stderr}')
    if not option: return
    p = dump(folder, {}, '--set', option)
    found = codes(p, 'E0901')
    if p.returncode != 1 or len(found) != 1 or found[0][0] != '--set':
        wrong.append(f'--set {option}: {p.returncode} {p.stderr}')


def passes_today(folder, name, hole, holds, option):
    p = dump(folder, {hole: holds})
    if p.returncode: wrong.append(f'{name}, {holds}: {p.stderr}')
    if option and '=' in holds:
        value = holds.split('=')[1].strip()
        p = dump(folder, {}, '--set', f'{option.split("=")[0]}={value}')
        if p.returncode: wrong.append(f'--set {name} {value}: {p.stderr}')


table = list(rows())
wrong += read_once(CODE)
seen = read_once({'ir/a.c': 'a = module_word(m, "plan.x"); module_set(m, "plan.x", "1");',
                  'runtime/a.c': 'of("plan.x")', 'passes/a.c': 'b = module_number(m, "plan.x", 25 << 20);'})
if len(seen) != 2: wrong.append(f'two readings and one default of a made-up key: {seen}')
planned = [f for kind, f in table if kind == 'PLANNED']
n, choices = check_readers(table, planned), check_choices(table, planned)
# a line of which other words are built is asked by the one that is not
names = [f[1] + ('' if f[2] == 'NULL' else f'.{f[2]}') + (f'={f[3]}' if f[1] == 'offload' else '') for f in planned]
if set(names) != set(ASK):
    wrong.append(f'planned words without a case here, or the other way round: {set(names) ^ set(ASK)}')
with tempfile.TemporaryDirectory() as folder:
    p = dump(folder, {})
    if p.returncode: wrong.append(f'without planned words: {p.stderr}')
    for name in names:
        hole, asks, option, holds = ASK.get(name, (None, None, None, None))
        if hole: refuses(folder, name, hole, asks, option)
        if holds: passes_today(folder, name, hole, holds, option)
for line in wrong: print(line)
print(f'{n} keys and {choices} choices with their readers, {len(names)} planned words refused in files and in --set')
sys.exit(len(wrong) > 0)
