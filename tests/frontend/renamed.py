"""Old words of files are read as the new ones, with a note and an edit: renamed.py SHARDC ROOT

For each row of renamed.def: its table contains the new word and not the old one. A setting by its old word, in a file
and in --set, gives what the new one gives and note N0101, whose edits make the text that has the new one. Dumps of
examples that have the IR's new words are read with the old ones in their place, to the same dump and with one note for
each of the words.
"""
import json, os, re, subprocess, sys, tempfile

SHARDC, ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
wrong = []

SETTINGS = '''use "std"
dims { Batch; In = 3; Out = 2 }
model M { input x [Batch, In]; input y [Batch, Out]; param w [In, Out] ~ normal(0.1)
  loss mean[*]((dot[In](x, w) - y)^2) }
machine K { node gpus = 2 arch = sm_80 memory = 40GiB f16 = 300TFLOPS hbm = 1500GB/s
  link intra = 300GB/s inter = 20GB/s per_core = 2GB/s }
train T for M { batch 8; steps 2; optim adamw lr = 1e-3 weight_decay = 0.125 }
plan p for M { on K nodes = 2; mesh data = 4; place Batch -> data
  precision f16 init_scale = 8 growth_interval = 3 min_scale = 2 }
'''
DUMPS = [('tiny_ranks', '--plan', 'ahead', '--target', 'x86_64_v4_bf16'), ('llama_mesh', '--plan', 'wide'),
         ('gpt2', '--target', 'x86_64_v4_amx', '-D', 'Layers=2'), ('tiny_ranks', '--plan', 'rings', '--class', 'first'),
         ('zero_paper', '--plan', 'c2', '--after', 'place'), ('plans', '--plan', 'hybrid', '--after', 'recompute'),
         ('zero_offload', '--plan', 'optimizer', '--target', 'sm_80')]


def check(good, what):
    if not good: wrong.append(what)


def text(path): return open(f'{ROOT}/{path}').read()


def shardc(*args): return subprocess.run([SHARDC, *args], capture_output=True, text=True, cwd=f'{ROOT}/examples')


def notes(r): return [n for n in map(json.loads, r.stderr.splitlines()) if n['code'] == 'N0101']


def edited(old, found):
    """The text after the edits of all notes, the last place first."""
    for e in sorted((e for n in found for e in n['edits']), key=lambda e: -e['offset']):
        old = old[:e['offset']] + e['text'] + old[e['offset'] + e['length']:]
    return old


def table(kind, word):
    """Is it a word of the table?"""
    if kind == 'KEYWORD': return f'lex_new_keyword(p, "{word}")' in text('ir/text/parse.c')
    if kind != 'SETTING': return re.search(rf'^{"ATTR" if kind == "ATTRIBUTE" else "TARGET_FACT"}\({word},',
                                           text('ir/attrs.def' if kind == 'ATTRIBUTE' else 'ir/target_facts.def'), re.M)
    block, line, option = word.split('.')
    return re.search(rf'^OPTION\({block.upper()}, {line}(\.\w+)?, {option},',
                     text('frontend/settings/settings.def'), re.M)


rows = re.findall(r'^RENAMED\((\w+), "([^"]+)", "([^"]+)"\)$', text('ir/text/renamed.def'), re.M)
check(rows, 'ir/text/renamed.def has no rows')
with tempfile.TemporaryDirectory() as folder:
    path = f'{folder}/m.shard'

    def dumped(model, *options):
        open(path, 'w').write(model)
        return shardc('dump', path, '--plan', 'p', '--message-format=json', *options)

    want = dumped(SETTINGS)
    check(want.returncode == 0 and not notes(want), f'with the new words: {want.stderr}')
    seen = set()
    for kind, old, new in rows:
        check(table(kind, new) and not table(kind, old), f'{old}, {new}: not as the tables of {kind} say')
        if kind != 'SETTING': continue
        was, now = old.split('.')[-1], new.split('.')[-1]
        model = SETTINGS.replace(f' {now} = ', f' {was} = ')
        found = dumped(model)
        same = found.stdout.replace(f' {was} = ', f' {now} = ') == want.stdout     # the dump has the model's text
        check(model != SETTINGS and same, f'{old}: another dump\n{found.stderr}')
        check(edited(model, notes(found)) == SETTINGS, f'{old}: the edit does not write {now}')
        value = re.search(rf' {now} = (\S+)', SETTINGS).group(1)
        found = dumped(SETTINGS, '--set', f'{old}={value}')
        check(found.stdout == want.stdout and len(notes(found)) == 1, f'--set {old}: {found.stderr}')
    for model, *options in DUMPS:
        ir = shardc('dump', f'{model}.shard', *([] if '--after' in options else ['--after', 'prove']), *options).stdout
        old_ir = ir
        for kind, old, new in rows:
            if kind == 'SETTING': changed = re.sub(rf'^set {re.escape(new)} =', f'set {old} =', old_ir, flags=re.M)
            elif kind == 'KEYWORD': changed = re.sub(rf'(^| ){new}(?=[ }}])', rf'\1{old}', old_ir, flags=re.M)
            else: changed = re.sub(rf'([{{ ]){new} = ', rf'\1{old} = ', old_ir)
            if changed != old_ir: seen.add(old)
            old_ir = changed
        open(f'{folder}/old.ir', 'w').write(old_ir)
        found = shardc('dump', f'{folder}/old.ir', '--message-format=json')
        check(ir and found.stdout == ir, f'{model}: a dump with old words is read as another')
        check(edited(old_ir, notes(found)) == ir, f'{model}: the edits do not write the new words')
        check(len(notes(found)) == len({n["message"] for n in notes(found)}), f'{model}: more than one note a word')
for kind, old, new in rows:
    check(kind == 'SETTING' or old in seen, f'{old}: no dump has {new}')
for line in wrong: print(line)
sys.exit(len(wrong) > 0)
