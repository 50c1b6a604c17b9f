"""`shardc plan --search`: python3 search.py SHARDC

- Bounds hold: no plan that is compiled is faster or smaller than its bound (`--all` compiles the whole space).
- With `--gap 0` the search finds the best plan of all of them, by time, by memory, and by GPU seconds of all sizes.
- The plans that it prints compile as printed, in the seconds and bytes that it prints.
- `mesh auto`, or a plan `auto`, in a file is the plan that the search finds.
- A published layout is found, or a plan as fast; `keep = auto` is tried in the memory that is left.
- Wrong options are refused; an empty space names the constraint that emptied it.
"""
import json, os, re, subprocess, sys
from common import EXAMPLES, check, run, workdir

SHARDC, WORK = os.path.abspath(sys.argv[1]), workdir()
MACHINE = '''machine h8 { node gpus = 8 arch = sm_90 memory = %s bf16 = 989TFLOPS hbm = 3350GB/s
  link intra = 450GB/s inter = 50GB/s latency = 5us }
'''
MODELS = {
    'llama': ('use "llama"\n', 'Tiny', ['-D', 'Seq=64', '-D', 'Layers=4']),
    'gpt': ('use "gpt2"\nvariant Small of GPT2 { Vocab = 512; Embed = 128; Heads = 4; Layers = 4; Pos = 64 }\n',
            'Small', ['-D', 'Seq=64']),
    'large': ('use "llama"\n', 'Llama3', ['-D', 'Seq=2048', '-D', 'Layers=4']),
    'bert': ('use "tiny_bert"\n', '', []),
    'vit': ('use "vit"\n', '', []),
}
FEW = {'llama': [('ranks=2', 'micro=4', 'overlap=on'),
                 ('ranks=4', 'micro=2', 'overlap=on', 'zero=3', 'accumulate=shard', 'context=1', 'recompute=input'),
                 ('ranks=4', 'context=4', 'micro=8', 'overlap=on', 'zero=0,3', 'recompute=none,input',
                  'way=gather,balanced,ring,exchange')],
       'bert': [('ranks=2', 'tensor=2', 'micro=2,4'), ('ranks=2', 'data=2', 'zero=1,2', 'overlap=prefetch')],
       'vit': [('ranks=2', 'data=2', 'micro=2', 'recompute=none')],
       'gpt': [('ranks=4', 'data=4', 'micro=2', 'recompute=none'),
               ('ranks=2', 'context=2', 'micro=2,4', 'recompute=none', 'zero=3'),
               ('ranks=4', 'micro=2', 'overlap=on', 'zero=0', 'recompute=none,split', 'pipeline=none')]}
PAIRS = MACHINE.replace('gpus = 8', 'gpus = 2')  # orders of the mesh differ in which messages leave a node
BARE = 'machine h8 { node gpus = 8 arch = sm_90 memory = %s }\n'  # all rates are those that the arch publishes


def write(model, memory='80GB', name='m.shard', machine=MACHINE):
    text, of, _ = MODELS[model]
    open(f'{WORK}/{name}', 'w').write(text + machine % memory)
    return of


def search(model, fixes, *options, expect=0):
    text, of, sizes = MODELS[model]
    fix = [word for f in fixes for word in ('--fix', f)]
    ranks = next((int(f[6:]) for f in fixes if f.startswith('ranks=')), 8)
    of_node = int(open(f'{WORK}/m.shard').read().split('gpus = ')[1].split()[0])
    return run(SHARDC, 'plan', 'm.shard', '--search', '--on', f'h8 nodes = {-(-ranks // of_node)}',
               '--set', 'train.batch=8', *(['--model', of] if of else []), *sizes, *fix, *options, cwd=WORK,
               expect=expect)


def printed_again(model, fixes, found, machine):
    """The found plans, in the file; for one model also the whole text that a user would add to it."""
    _, of, sizes = MODELS[model]
    exact = ('--gap', '0', '--tries', '1000000')
    text = '\n'.join(plan['text'] for plan in found['plans']) if model != 'vit' else search(model, fixes, *exact)[0]
    write(model, name='again.shard', machine=machine)
    open(f'{WORK}/again.shard', 'a').write(text)
    for plan in found['plans']:
        told, _ = run(SHARDC, 'plan', 'again.shard', '--plan', plan['name'], '--set', 'train.batch=8', *sizes, '--json',
                      cwd=WORK)
        told = json.loads(told)
        least = told.get('seconds_per_step', 0)  # 0: rates that only the arch has
        check(least == plan['least_seconds'], f'{plan["name"]}: {least}, {plan}')
        told = told['forecast']['seconds_per_step']
        check(told == plan['seconds'], f'{plan["name"]}: {told}, {plan}')
        check(plan['text'] in text, plan['text'])


def compare(model, fixes, machine=MACHINE, whole=False):
    """Compares a search with all compiled plans. whole: also by memory, and compiles the plans that are printed."""
    write(model, machine=machine)
    every = json.loads(search(model, fixes, '--all', '--json')[0])
    rows = [r for r in every['all'] if r['outcome'] != 'refused']
    for r in rows:
        check(r['bound_seconds'] <= r['seconds'] and r['bound_bytes'] <= r['bytes'], f'{model} {fixes}: {r}')
    fits = [r for r in rows if r['outcome'] == 'fits']
    check(len(fits) > 3, f'{model} {fixes}: {len(fits)} plans')
    for objective, key in (('time', 'seconds'), ('memory', 'bytes'))[:1 + whole]:
        exact = ['--gap', '0', '--tries', '1000000', '--objective', objective, '--json']
        found = json.loads(search(model, fixes, *exact)[0])
        fastest = found if key == 'seconds' else fastest
        best = min(r[key] for r in fits)
        reserve = 1536 << 20 if key == 'bytes' else 0
        first = found['plans'][0]
        # `--all` has no budgets, and one way of a context axis unless `--fix` has more
        more = 'keep = auto' in first['text'] or ('context = ' in first['text'] and 'way' not in str(fixes))
        check(-1e-5 < 1 - first[key] / (best + reserve) < (1 if more else 1e-5), f'{model} {fixes}: {first}, {best}')
        check(found['gap'] == 0, found['gap'])
    refused = len(every['all']) - len(rows)
    check(refused <= len(every['all']) // 8, f'{model} {fixes}: {refused} of {len(every["all"])} are refused')
    print(f'{model} {" ".join(fixes)}: {len(every["all"])} plans, {refused} refused, {found["fitting"]} compiled to '
          'find the best')
    if whole: printed_again(model, fixes, fastest, machine)


def refusals():
    write('llama')
    for options, words in ((('--fix', 'color=red'), '`--fix` takes ranks, tensor'),
                           (('--fix', 'way=sideways'), 'takes one of gather, balanced, ring, exchange, not `sideways`'),
                           (('--fix', 'pipeline=zero_bubble,gpipe'), 'interleaved-8, not `gpipe`'),
                           (('--fix', 'tensor=2,04'), '`--fix tensor` takes whole numbers above 0, not `04`'),
                           (('--fix', 'zero='), 'takes one of 0, 1, 2, 3, not ``'),
                           (('--fix', 'zero=3,'), '`--fix zero=3,` ends with a comma'),
                           (('--fix', 'micro=2,4,2'), '`--fix micro=2,4,2` has `2` twice'),
                           (('--fix', 'order=data-tensr'), 'not `tensr`'),
                           (('--fix', 'ranks=2x'), 'takes a whole number from 1'),
                           (('--fix', 'recompute=auto'), 'needs another value as well'),
                           (('--fix', 'zero=1', '--fix', 'zero=2'), '`--fix zero` was given twice; several are written `--fix zero=1,2`'),
                           (('--objective', 'beauty'), 'is time, cost or memory, not `beauty`'),
                           (('--gap', 'x'), '`--gap` takes a number'),
                           (('--html', 'x.html'), 'not those of `--search`')):
        _, said = search('llama', (), *options, expect=2)
        check(words in said, said)
    _, said = run(SHARDC, 'plan', 'm.shard', '--gap', '3', cwd=WORK, expect=2)
    check('`--gap` is for `--search`' in said, said)
    _, said = run(SHARDC, 'plan', 'm.shard', '--search', cwd=WORK, expect=2)
    check('needs a machine' in said, said)
    _, said = run(SHARDC, 'plan', 'm.shard', '--search', '--on', 'h9 nodes = 2', cwd=WORK, expect=1)
    check('no machine named `h9`' in said and '--on:1:1' in said and 'that it uses: `h8`' in said, said)
    _, said = run(SHARDC, 'plan', 'm.shard', '--search', '--on', 'dgx', cwd=WORK, expect=1)
    check('machines of the file and of those that it uses: `h8`' in said and '`machine dgx { node' in said, said)
    _, said = run(SHARDC, 'plan', 'm.shard', '--search', '--on', 'h8; zero 3', cwd=WORK, expect=2)
    check('`--on` takes a machine and its options' in said, said)
    _, said = run(SHARDC, 'plan', 'none.shard', '--search', cwd=WORK, expect=4)
    check('E0001' in said, said)
    open(f'{WORK}/cpu.shard', 'w').write('use "tiny"\nmachine pc { node cpus = 2 arch = x86_64_v3 memory = 16GiB }\n')
    # other lines: of the first plan for the model, whatever `--on` says; bf16 without one
    machine = 'use "tiny"\nmachine two { node gpus = 2 arch = %s memory = 40GB }\n'
    other = 'variant V of Tiny { Layers = 2 }\nplan a for V { precision tf32 }\n'
    own = 'plan b { precision f16 }\n'
    for arch, plans, words in (('sm_80', other + own, 'f16'), ('sm_80', '', 'bf16 master = f32'),
                               ('sm_70', '', None)):
        open(f'{WORK}/first.shard', 'w').write(machine % arch + plans)
        text, _ = run(SHARDC, 'plan', 'first.shard', '--search', '--on', 'two', '--model', 'Tiny', '--tries', '1',
                      '--fix', 'data=2', '--fix', 'zero=1', '--fix', 'micro=4', cwd=WORK)
        said = re.findall(r'^  precision +(.*)$', text, re.M)
        check(set(said) == ({words} if words else set()), f'{arch}, {plans!r}: {text}')
    cpu = [SHARDC, 'plan', 'cpu.shard', '--search', '--on', 'pc', '--fix', 'ranks=2']
    _, said = run(*cpu, cwd=WORK, expect=2)
    check('needs `link intra = ..` in the machine block' in said, said)
    text, _ = run(*cpu, '--fix', 'micro=4', '--fix', 'zero=3', '--objective', 'memory', cwd=WORK)
    check('plan found_1 for Tiny' in text and ' a step' not in text, text)
    _, said = search('llama', ('ranks=4', 'tensor=3'), expect=3)
    check('= 0 plans on 4 ranks' in said, said)
    check('without `--fix tensor=3` a plan fits; `--fix tensor=2` has plans' in said, said)
    check('axes of 4 ranks in all: data divides Batch = ' in said and '; tensor divides ' in said, said)
    write('llama', memory='1565MiB')
    _, said = search('llama', ('ranks=4', 'zero=0', 'tensor=1', 'pipe=1'), expect=3)
    check('no plan of the space fits' in said and 'without `--fix zero=0` a plan fits' in said, said)
    _, said = search('llama', ('ranks=8', 'tensor=3', 'data=5', 'pipe=7'), expect=3)
    check('leave out more than one `--fix`' in said, said)
    write('llama', memory='1540MiB')
    _, said = search('llama', ('tensor=3',), expect=3)
    check('no plan is left by `--fix tensor=3`, and the others do not fit' in said, said)
    write('llama', memory='1565MiB')
    for options, words in (((), '`--set train.batch=7` has plans'),
                           (('--set', 'train.batch=34'), '`--set train.batch=35` has plans')):
        _, said = search('llama', ('ranks=7',), *options, expect=3)
        check('axes of 7 ranks in all: data divides Batch = ' in said and words in said, said)
        check('more nodes' not in said, said)
    text = (AUTO % (LINK, 'on two')).replace('adamw lr = 2e-3', 'onebit_adam freeze = 1')
    open(f'{WORK}/refused.shard', 'w').write(text)
    _, said = run(SHARDC, 'plan', 'refused.shard', '--plan', 'p', '--search', '--fix', 'data=2', '--fix', 'zero=2',
                  '--fix', 'recompute=none', cwd=WORK, expect=3)
    check('`zero 2` keeps no whole gradient' in said and '= help: `zero 1`, or `optim adamw`' in said, said)
    check('plan refused first: data = 2, ' in said and '0 too large' in said, said)


def repeated():
    """Stage 2 with whole gradients is stage 1: the space has it where `--fix` leaves stage 1 out."""
    def rows(*fixes):
        said, _ = search('gpt', ('ranks=2', 'data=2', 'micro=2', 'recompute=none', *fixes), '--all', '--json')
        return {(r['zero'], r['accumulate'], r['overlap']): (r['seconds'], r['bytes']) for r in json.loads(said)['all']}
    write('gpt')
    both, second = rows('zero=1,2'), rows('zero=2')
    check(not any(key[:2] == ('2', 'full') for key in both), both)
    whole = {key: row for key, row in second.items() if key[1] == 'full'}
    check(whole and all(row == both['1', 'shard', key[2]] for key, row in whole.items()), f'{both} {second}')


AUTO = '''use "gpt2"
variant Small of GPT2 { Vocab = 512; Embed = 64; Heads = 2; Layers = 2; Pos = 64 }
train t for Small { size Seq = 64; batch 2; steps 2; data "text.txt" format = bytes; optim adamw lr = 2e-3 }
machine two { node gpus = 2 arch = sm_90 memory = 80GB bf16 = 989TFLOPS hbm = 3350GB/s
  %s }
plan p for Small {
  %s
  precision bf16 master = f32
}
'''
LINK = 'link intra = 450GB/s inter = 50GB/s latency = 5us'


def auto():
    """`mesh auto` is the plan that the search finds, in all commands, and `info` prints it."""
    def write_auto(lines, link=LINK): open(f'{WORK}/auto.shard', 'w').write(AUTO % (link, '\n  '.join(lines)))
    write_auto(['on two', 'mesh auto'])
    found = json.loads(run(SHARDC, 'plan', 'auto.shard', '--plan', 'p', '--search', '--json', cwd=WORK)[0])['plans'][0]
    told, said = run(SHARDC, 'plan', 'auto.shard', '--plan', 'p', '--json', cwd=WORK)
    check(json.loads(told)['forecast']['seconds_per_step'] == found['seconds'], f'{told} {found}')
    lines = '; '.join(' '.join(line.split()) for line in found['text'].splitlines()[1:-1])
    check(f'`mesh auto` is plan `found`: {lines}\n' in said, f'{lines}: {said}')
    for written, link, words, code in ((['on two', 'mesh auto', 'zero 1'], LINK, '`mesh auto` chooses `zero`', 1),
                                       (['on two', 'mesh auto data = 2'], LINK, '`mesh auto` chooses the axes', 1),
                                       (['on two', 'mesh data = 2, auto'], LINK, '`mesh auto` chooses the axes', 1),
                                       (['on two', 'mesh auto = 2'], LINK, '`mesh auto` chooses the axes', 1),
                                       (['mesh auto'], LINK, '`mesh auto` needs a machine with GPUs', 1),
                                       (['on two', 'mesh any'], LINK, 'E0602', 1),
                                       (['on two nodes = 2', 'mesh auto'], '', 'lacks `link inter = ..`', 1)):
        write_auto(written, link)
        _, said = run(SHARDC, 'plan', 'auto.shard', '--plan', 'p', cwd=WORK, expect=code)
        check(words in said, f'{written}: {said}')
    write_auto(['on two'])
    text = open(f'{WORK}/auto.shard').read()
    open(f'{WORK}/auto.shard', 'w').write(text.replace('plan p for', 'plan auto for'))
    check('1 plan: auto (fits)' in run(SHARDC, 'check', 'auto.shard', cwd=WORK)[0], 'check')
    _, said = run(SHARDC, 'compile', 'auto.shard', '--plan', 'auto', '--target', 'x86_64_v3', '--quick', '--equal',
                  'off', '-o', 'a', cwd=WORK)  # by "at least": the machine has no forecast for this target
    lines = said.split('`plan auto` is plan `found`: ')[1].splitlines()[0]
    check(f'made.plan = found: {lines}' in run('./a', 'info', cwd=WORK)[0], 'info')
    for written, link, words in ((['on two', 'zero 1'], LINK, '`plan auto` chooses `zero`'),
                                 (['micro 1'], LINK, '`plan auto` chooses `micro`'),
                                 (['pipeline auto'], LINK, '`plan auto` needs a machine with GPUs'),
                                 (['on two nodes = 2'], '', '`plan auto`: the machine block lacks `link inter = ..`'),
                                 (['on two', 'mesh data = 2', 'place Batch -> data'], LINK, '2 ranks (data = 2)')):
        write_auto(written, link)
        text = open(f'{WORK}/auto.shard').read().replace('plan p for', 'plan auto for')
        open(f'{WORK}/auto.shard', 'w').write(text)
        told, said = run(SHARDC, 'plan', 'auto.shard', cwd=WORK, expect=0 if 'ranks' in words else 1)
        check(words in told + said, f'{written}: {told} {said}')
    write_auto(['on two', 'mesh auto'])
    _, said = run(SHARDC, 'plan', 'auto.shard', '--plan', 'p', '--set', 'plan.micro=2', cwd=WORK, expect=1)
    check('`mesh auto` chooses `micro`' in said, said)
    open(f'{WORK}/auto.shard', 'w').write(AUTO.replace('80GB', '1537MiB') % (LINK, 'on two\n  mesh auto'))
    _, said = run(SHARDC, 'plan', 'auto.shard', '--plan', 'p', cwd=WORK, expect=3)
    check('no plan of the machine fits' in said, said)
    print('`mesh auto`: as found, compiled, refused')


def cost():
    """The fewest seconds of GPUs over all sizes of the machine, against all plans of each; plans compile as printed.
    A size whose plans are too large is listed, and so is one that no mesh has."""
    def of_sizes(memory, nodes, *options, expect=0):
        write('large', memory, machine=PAIRS)
        fix = [word for f in ('overlap=on', 'recompute=none', 'micro=1', 'zero=0,3', 'pipeline=none', 'sequence=off',
                              'accumulate=shard', 'context=1') for word in ('--fix', f)]
        return run(SHARDC, 'plan', 'm.shard', '--search', '--on', f'h8 nodes = {nodes}', '--objective', 'cost',
                   '--model', 'Llama3', '-D', 'Seq=2048', '-D', 'Layers=4', '--set', 'train.batch=8', *fix, *options,
                   cwd=WORK, expect=expect)
    rows = [r for r in json.loads(of_sizes('80GB', 2, '--all', '--json')[0])['all'] if r['outcome'] == 'fits']
    found = json.loads(of_sizes('80GB', 2, '--gap', '0', '--tries', '1000000', '--json')[0])
    sizes, plans = {int(s['ranks']): s for s in found['sizes']}, found['plans']
    check(sorted(sizes) == [1, 2, 4] and found['gap'] == 0, found)
    for ranks, size in sizes.items():
        own = [ranks * r['seconds'] for r in rows if int(r['ranks']) == ranks]
        check(not own or size['least_device_seconds'] <= min(own) * (1 + 1e-9), f'{size} {own}')
        check(bool(own) == ('seconds' in size), f'{size} {own}')
    best = min(int(r['ranks']) * r['seconds'] for r in rows)
    first = sizes[int(plans[0]['ranks'])]
    check(abs(first['device_seconds'] / best - 1) < 1e-5, f'{first}: {best} is the least')
    write('large', name='again.shard', machine=PAIRS)
    open(f'{WORK}/again.shard', 'a').write('\n'.join(plan['text'] for plan in plans))
    for plan in plans:
        told = json.loads(run(SHARDC, 'plan', 'again.shard', '--plan', plan['name'], '--set', 'train.batch=8', '-D',
                              'Seq=2048', '-D', 'Layers=4', '--json', cwd=WORK)[0])
        check(told['forecast']['seconds_per_step'] == plan['seconds'] and told['ranks'] == int(plan['ranks']), told)
    least = min(r['bytes'] for r in rows if int(r['ranks']) == 1) + (1536 << 20)
    text, _ = of_sizes(f'{int(least) - 1}', 3)
    check(re.search(r'^#   1 GPU +no plan found: [1-9]', text, re.M), text)
    check(re.search(r'^#   6 GPUs, 3 nodes +no plan found: 0 in the space', text, re.M), text)
    _, said = of_sizes('4GB', 3, expect=3)
    check('no plan of the space fits' in said and 'plans on 2 ranks' in said, said)
    print(f'cost: of {len(rows)} plans of {len(sizes)} sizes the one with {best:.4g} GPU seconds a step')


def usual():
    """Where bounds are loose, the search also finds what a user would write first."""
    text = 'use "gpt2"\ntrain t for GPT2 { size Seq = 1024; batch 64; steps 2; data "t.bin"; optim adamw }\n' + BARE
    text += 'plan p for GPT2 { on h8; mesh data = 8; place Batch -> data; micro 8; precision bf16 }\n'
    open(f'{WORK}/usual.shard', 'w').write(text % '80GB')
    command = SHARDC, 'plan', 'usual.shard', '--model', 'GPT2', '--train', 't', '--plan', 'p', '--json'
    simple = json.loads(run(*command, cwd=WORK)[0])['forecast']['seconds_per_step']
    found = json.loads(run(*command, '--search', cwd=WORK)[0])
    check(found['plans'][0]['seconds'] <= simple, f'{found["plans"][0]}: {simple} with `mesh data = 8`')
    print(f'GPT-2 on 8 GPUs: found {found["plans"][0]["seconds"]:.3g} s, gap {found["gap"]:.2g}; '
          f'data = 8: {simple:.3g} s')


def published():
    """A layout that others publish is found, or one that is as fast. A plan that keeps values in the memory that is
    left is faster than the best one without."""
    foundry = [SHARDC, 'plan', f'{EXAMPLES}/papers/foundry.shard', '--plan', 'foundry', '--json']
    theirs = json.loads(run(*foundry)[0])['forecast']['seconds_per_step']
    found = json.loads(run(*foundry, '--search')[0])['plans'][0]
    check(found['seconds'] <= theirs, f'{found}: {theirs}')
    write('llama', '1591MiB')
    fixes = 'ranks=2', 'data=2', 'micro=4', 'overlap=on', 'zero=0'
    seconds = []
    for kept in 'none,input', 'none,input,auto':
        said, _ = search('llama', (*fixes, f'recompute={kept}'), '--json')
        seconds.append(json.loads(said)['plans'][0])
    before, after = seconds
    check('keep = auto' in after['text'] and after['seconds'] < before['seconds'], f'{before} {after}')
    print(f'LLM Foundry 7B: {theirs:.3g} s, found {found["seconds"]:.3g} s; with `keep = auto` '
          f'{after["seconds"]:.3g} s, {before["seconds"]:.3g} s without')


auto()
refusals()
cost()
usual()
repeated()
published()
for model, meshes in FEW.items():
    for fixes in meshes: compare(model, fixes, whole=fixes == meshes[0])
compare('gpt', ('ranks=4', 'micro=2', 'data=2,4', 'zero=1,3', 'recompute=none', 'pipeline=none'), BARE)
compare('llama', ('ranks=4', 'micro=1', 'overlap=on', 'zero=2', 'recompute=none', 'accumulate=shard', 'pipe=1'), PAIRS)
# a head that takes longer than the layers of a stage, split over ranks
compare('large', ('ranks=4', 'tensor=2', 'pipe=2', 'micro=1', 'overlap=on', 'recompute=none', 'sequence=off'))
# accumulated gradients of which some are among the temporaries
compare('large', ('ranks=4', 'context=2', 'data=2', 'micro=2', 'zero=1,2', 'overlap=off', 'recompute=none'))

# on sm_90a kernels and messages wait for each other: plans are compared without that, and printed as `plan` does
text = open(f'{EXAMPLES}/papers/foundry.shard').read()
open(f'{WORK}/waits.shard', 'w').write(text)
found = json.loads(run(SHARDC, 'plan', 'waits.shard', '--search', '--json', cwd=WORK)[0])
open(f'{WORK}/waits.shard', 'a').write('\n'.join(plan['text'] for plan in found['plans']))
for plan in found['plans']:
    told = json.loads(run(SHARDC, 'plan', 'waits.shard', '--plan', plan['name'], '--json', cwd=WORK)[0])
    check(told['forecast']['seconds_per_step'] == plan['seconds'], f'{plan["name"]}: {told["forecast"]}, {plan}')
check(found['plans'][0]['compared_seconds'] < 0.99 * found['plans'][0]['seconds'], f'{found["plans"][0]}')
check('wait' in found['certified_by'], found['certified_by'])
