"""The output of `plan` and `compile` for plans that do not fit: python3 fit.py SHARDC

E0801 and exit 3, at the line that would change. The test writes the edit that the help names into the plan: the plan
then fits, with the bytes that the help states; `check` says the same of the plans of a file. Without `micro` the
largest that fits is taken, also on a mesh. Times of a step follow from the links.
"""
import json, os, re, shutil, subprocess, sys
from common import EXAMPLES, check, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
MODEL = '''use "gpt2"
variant Small of GPT2 { Pos = 64; Vocab = 512; Embed = 64; Heads = 4; Layers = 4 }
train t for Small { size Seq = 64; batch 64; steps 6; data "text.txt" format = bytes; optim adamw lr = 2e-3; clip 1.0 }
machine box { node gpus = 4 arch = sm_80 memory = %s reserve = 1MiB bf16 = 1TFLOPS f32 = 1TFLOPS hbm = 100GB/s
  link intra = 100GB/s inter = 40GB/s }
plan p for Small {
  on box nodes = 64
  mesh data = 8
  place Batch -> data
%s}
'''
UNKNOWN = MODEL.replace('link intra = 100GB/s inter = 40GB/s', '')


def plan(memory, lines, *args, model=MODEL):
    open(f'{folder}/m.shard', 'w').write(model % (memory, ''.join(f'  {l}\n' for l in lines)))
    p = subprocess.run([SHARDC, 'plan', 'm.shard', '--json', *args], cwd=folder, capture_output=True, text=True,
                       env=dict(os.environ, SHARDC_PATH=EXAMPLES, NO_COLOR='1'))
    return p.returncode, json.loads(p.stdout) if p.stdout else None, p.stderr


def replaced(lines, new):
    """The lines of the plan with those of the help in their place."""
    words = {n.split()[0] for n in new}
    return [l for l in lines if l.split()[0] not in words or l.startswith('recompute')] + new


def refused(memory, lines, says, at):
    rc, j, err = plan(memory, lines)
    check(rc == 3 and not j['fits'] and 'E0801' in err, f'{memory} {lines}: exit {rc}\n{err}')
    check(says in err, f'{memory} {lines}: `{says}` wanted\n{err}')
    check(at in err, f'{memory} {lines}: `{at}` wanted\n{err}')
    words, size = re.search(r'help: (.*?) would need ([\d.]+) (?:MiB|GiB)', err).groups()
    new = re.findall(r'`([^`]*)`', words)
    mesh = [n for n in new if n.startswith('mesh')]
    rc, j, err = plan(memory, replaced(lines, [n for n in new if not n.startswith('mesh')]))
    if mesh:
        text = open(f'{folder}/m.shard').read().replace('mesh data = 8', mesh[0])
        open(f'{folder}/m.shard', 'w').write(text)
        p = subprocess.run([SHARDC, 'plan', 'm.shard', '--json'], cwd=folder, capture_output=True, text=True,
                           env=dict(os.environ, SHARDC_PATH=EXAMPLES))
        rc, j, err = p.returncode, json.loads(p.stdout), p.stderr
    check(rc == 0 and j['fits'], f'{new} does not help: {rc} {err}')
    b = j['classes'][0]['bytes']
    check(abs(b['total'] / 2**20 - float(size)) < 0.06, f'{new}: {b} is not {size} MiB')


try:
    rc, j, err = plan('1GiB', ['micro 8', 'zero 0'])
    b = j['classes'][0]['bytes']
    check(rc == 0 and 'N0601' not in err and 'error' not in err and b['reserve'] == 1 << 20
          and b['total'] == sum(v for k, v in b.items() if k != 'total'), f'{b} {err}')
    whole = b['total'] / 2**20
    refused(f'{whole - 0.5:.2f}MiB', ['micro 8', 'zero 0'], 'every data rank keeps a full optimizer state', 'zero 0')
    refused(f'{whole * 0.7:.2f}MiB', ['micro 8', 'zero 0'], '`recompute ', 'plan p for Small')
    lines = ['micro 8', 'zero 1', 'recompute h.* keep = input']
    some = plan('1GiB', lines)[1]['classes'][0]['bytes']['total'] / 2**20
    refused(f'{some * 0.78:.2f}MiB', lines, '`micro 4` would need', 'micro 8')
    one = plan('1GiB', ['micro 1', 'zero 0'])[1]['classes'][0]['bytes']['total'] / 2**20
    for share in 0.9, 0.75, 0.6, 0.5: refused(f'{one * share:.2f}MiB', ['micro 1', 'zero 0'], 'zero ', 'zero 0')
    low = plan('1GiB', ['micro 1', 'zero 3'])[1]['classes'][0]['bytes']['total'] / 2**20
    refused(f'{low - 0.1:.2f}MiB', ['micro 1', 'zero 3'], 'recompute h.* keep = input', 'plan p for Small')
    least = plan('1GiB', ['micro 1', 'zero 3', 'recompute h.* keep = input'])[1]['classes'][0]['bytes']['total'] / 2**20
    refused(f'{least - 0.2:.2f}MiB', ['micro 1', 'zero 3', 'recompute h.* keep = input'], '`mesh data = ',
            'plan p for Small')
    # more ranks come with their nodes, since ranks of a node share its memory
    lines = ['micro 1', 'zero 3', 'recompute h.* keep = input']
    for node, link, share in ('gpus = 4 arch = sm_80', 'intra = 100GB/s ', 1), ('cpus = 1', '', 4):
        few = MODEL.replace('gpus = 4 arch = sm_80', node).replace('intra = 100GB/s ', link).replace('nodes = 64',
                                                                                                   'nodes = 2')
        if not link: few = few.replace(' hbm = 100GB/s', '')
        least = plan('1GiB', lines, model=few)[1]['classes'][0]['bytes']['total'] / 2**20
        memory = f'{share * (least - 0.2):.2f}MiB'
        err = plan(memory, lines, model=few)[2]
        ranks, nodes = re.search(r'`mesh data = (\d+)` with `nodes = (\d+)`', err).groups()
        few = few.replace('mesh data = 8', f'mesh data = {ranks}').replace('nodes = 2', f'nodes = {nodes}')
        rc, j, err = plan(memory, lines, model=few)
        check(rc == 0 and j['fits'] and int(ranks) == 4 * int(nodes), f'{node}: {ranks} ranks on {nodes} nodes: {err}')
    # what flies needs room: the ring is named, and how far ahead fits; without links nothing is weighed
    rows = [plan('1GiB', ['micro 1', f'zero 3 prefetch = {n} overlap = on'], model=UNKNOWN)[1] for n in (1, 2, 3)]
    near, middle, deep = (j['classes'][0]['bytes']['total'] / 2**20 for j in rows)
    layer = rows[0]['flights']['ahead'][0]['bytes'] // 2
    check(deep > middle > near and [j['flights']['ahead'][0]['layers'] for j in rows] == [1, 2, 3], f'{rows}')
    for asked, layers in (2 * layer, 2), (3 * layer - 1, 2), (f'{layer / 1024}KiB', 1), ('1GiB', 3):
        amount = asked if isinstance(asked, str) else f'{asked / 1024}KiB'
        words = f'zero 3 prefetch = {amount} overlap = on'
        rc, j, err = plan('1GiB', ['micro 1', words], model=UNKNOWN)
        check(rc == 0 and j['flights']['ahead'][0]['layers'] == layers, f'{words}: {err} {j}')
    rc, j, err = plan('1GiB', ['micro 1', f'zero 3 prefetch = {(layer - 1) / 1024}KiB'], model=UNKNOWN)
    check(rc == 1 and re.search(r'E0602.*holds no layer: one of @h.forward.*\n.*m.shard:\d+:', err), err)
    rc, j, err = plan(f'{(deep + near) / 2:.2f}MiB', ['micro 1', 'zero 3 prefetch = 3 overlap = on'], model=UNKNOWN)
    check(rc == 3 and 'E0801' in err and 'zero 3' in err and 'iB of these are rings of loop @h.forward' in err
          and re.search(r'help: `prefetch = [12]` would need', err), err)
    rows = [plan('1GiB', ['micro 8', f'zero 3 overlap = {w}'], model=UNKNOWN)[1] for w in ('on', 'off')]
    beside, alone = (j['classes'][0]['bytes']['total'] / 2**20 for j in rows)
    rc, j, err = plan(f'{(beside + alone) / 2:.2f}MiB', ['micro 8', 'zero 3 overlap = on'], model=UNKNOWN)
    check(rc == 3 and f'help: `overlap = off` would need {alone:.2f} MiB' in err and 'are rings of loop ' in err, err)
    rc, j, err = plan('1.5MiB', ['micro 1', 'zero 3'])
    check(rc == 3 and 'help: ' in err and 'would need' not in err, f'nothing fits: {err}')
    # every amount has a unit of its own, so that small ones are printed as well
    for memory, said in ('3KiB', '3.00 KiB'), ('0.5KiB', '512 B'):
        rc, j, err = plan(memory, ['micro 1', 'zero 3'], model=MODEL.replace('reserve = 1MiB', 'reserve = 0.25KiB'))
        words = 'needs|is|weights|gradients|optimizer|saved|working|buffers|reserve'
        amounts = re.findall(rf'(?:{words}) ([\d.]+) (\w+)', err)
        check(rc == 3 and f'capacity is {said}' in err and len(amounts) == 9 and all(u == 'B' or float(n) >= 1
              for n, u in amounts), f'{memory}: {amounts} {err}')
    # chosen by itself
    rc, j, err = plan(f'{whole * 0.75:.2f}MiB', ['zero 0'])
    check(rc == 0 and 'N0601' in err and 'micro = ' in err and 'share of 8' in err, err)
    # `plan` prints both choices of gradients between micro-batches for the chosen micro-batch
    for lines in ['zero 2'], ['micro 2', 'zero 2']:
        rc, j, err = plan(f'{whole * 0.75:.2f}MiB', lines, '--set', 'train.batch=1024')
        taken = [a['total'] for a in j['accumulate'] if a['taken']]
        check(rc == 0 and taken == [j['classes'][0]['bytes']['total']], f'{lines}: {taken} {j["classes"]}')
    # `check` judges the plans of FILE, and names those that it could not judge
    for memory, lines, rc, says in ('1GiB', ['micro 8'], 0, '1 plan: p (fits)'), ('1.5MiB', ['micro 8'], 3, 'E0801'), \
                                   ('1GiB', ['deterministic off'], 0, 'N0801'), ('1.5MiB', ['mico 8'], 1, 'E0601'):
        open(f'{folder}/m.shard', 'w').write(MODEL % (memory, ''.join(f'  {l}\n' for l in lines)))
        p = subprocess.run([SHARDC, 'check', 'm.shard'], cwd=folder, capture_output=True, text=True,
                           env=dict(os.environ, SHARDC_PATH=EXAMPLES, NO_COLOR='1'))
        check(p.returncode == rc and says in p.stdout + p.stderr and ('E0801' in p.stderr) == (rc == 3),
              f'{memory} {lines}: {p.returncode}\n{p.stdout}{p.stderr}')
    # the refusal of a command without --plan proposes the plans of the file, which is not meant for one rank
    p = subprocess.run([SHARDC, 'compile', 'm.shard', '-D', f'Mlp={1 << 30}', '-o', 'one'], cwd=folder,
                       capture_output=True, text=True, env=dict(os.environ, SHARDC_PATH=EXAMPLES, NO_COLOR='1'))
    check(p.returncode == 3 and 'E0801' in p.stderr and '`--plan p` takes one of the file' in p.stderr, p.stderr)
    # for a list of targets too, each of which is then compiled
    p = subprocess.run([SHARDC, 'compile', 'm.shard', '--set', 'train.batch=65536', '--target', 'sm_80,sm_86', '-o',
                        'two'], cwd=folder, capture_output=True, text=True,
                       env=dict(os.environ, SHARDC_PATH=EXAMPLES, NO_COLOR='1', PATH='/usr/bin:/bin'))
    check(p.returncode == 0 and 'N0601' in p.stderr and 'two (sm_86)' in p.stdout + p.stderr, p.stderr)
    # without a machine: a common GPU of the target
    for target, memory in ('sm_86', '21.00'), ('sm_80', '35.00'):
        p = subprocess.run([SHARDC, 'dump', f'{EXAMPLES}/gpt2.shard', '--model', 'GPT2', '--target', target, '-o',
                            f'{folder}/d.ir'], capture_output=True,
                           text=True, env=dict(os.environ, SHARDC_PATH=EXAMPLES, NO_COLOR='1'))
        check(f'available: {memory} GiB' in p.stderr, f'{target}: {p.stderr}')
    # the time of a step, from its parts; a node holds four ranks of the ring
    rc, j, err = plan('1GiB', ['micro 8', 'zero 0'])
    t, sent = j['seconds'], j['communication'][0]['bytes_per_step']
    check(abs(t['over']['data'] - sent * 7 / 8 / 40e9) < 1e-3 * t['over']['data'], f'{t} {sent}')
    check(abs(t['compute'] - j['flop_per_step'] / 1e12) < 1e-4 * t['compute'], f'{t}')
    waits = lambda t: t['exposed']['data'] + t['inputs']
    check(abs(j['seconds_per_step'] - max(t['compute'], t['memory']) - waits(t)) < 1e-4 * t['compute'], f'{t}')
    # messages in flight are hidden while kernels run; the rest of their time is waiting
    check(t['exposed'] == t['over'], f'{t}')
    for words, hides in ('', False), ('prefetch = 1 overlap = on', True):
        rc, j, err = plan('1GiB', ['micro 8', f'zero 3 {words}'])
        t = j['seconds']
        hidden = t['over']['data'] - t['exposed']['data']
        check(rc == 0 and (hidden > 0.1 * t['over']['data'] if hides else hidden == 0), f'{words}: {t} {err}')
        check(abs(j['seconds_per_step'] - max(t['compute'], t['memory']) - waits(t)) < 1e-4 * t['compute'], f'{t}')
    # what carries messages slows kernels, by its share of the workers while they travel; hops have a latency
    inter = MODEL.replace('node gpus = 4 arch = sm_80', 'node cpus = 1').replace('hbm = 100GB/s', '').replace(
        'nodes = 64', 'nodes = 8').replace('intra = 100GB/s inter = 40GB/s', 'inter = 40GB/s%s')
    words = ['micro 8', 'zero 3 prefetch = 1 overlap = on']

    def seconds(link, workers):
        rc, j, err = plan('1GiB', words, '--workers', workers, model=inter.replace('40GB/s%s', '40GB/s' + link))
        check(rc == 0, err)
        return j['seconds_per_step'], j['seconds']
    _, t = seconds('', '1')
    hidden = t['over']['data'] - t['exposed']['data']
    check(t['slowed'] == 0 and hidden > 0, t)
    for workers in 1, 4:
        total, u = seconds(' cpu = 80GB/s', str(workers))             # half of a processor while they travel
        beside = u['over']['data'] - u['exposed']['data']
        check(u['over'] == t['over'] and abs(u['slowed'] - beside / 2 / workers) < 0.02 * beside
              and abs(total - u['compute'] - u['exposed']['data'] - u['slowed']) < 1e-3 * total, f'{workers}: {t} {u}')
    _, u = seconds(' per_core = 20GB/s', '1')                          # it carries less than the link does
    check(abs(u['over']['data'] - 2 * t['over']['data']) < 1e-3 * t['over']['data'], f'{t} {u}')
    check(u['exposed'] == u['over'] and not u['slowed'], f'what takes all of a processor hides nothing: {u}')
    sent = plan('1GiB', words, '--workers', '1', model=inter.replace('40GB/s%s', '40GB/s'))[1]['communication'][0]
    calls = sum(c['calls'] * (14 if c['kind'] == 'all_reduce' else 7) for c in sent['collectives'])
    _, u = seconds(' latency = 20us', '1')
    check(abs(u['over']['data'] - t['over']['data'] - calls * 20e-6) < 1e-6, f'{calls}: {t} {u}')
    # weighed: a layer ahead that hides nothing more is not gathered, whatever is asked; what stays says why
    one, three = (plan('1GiB', ['micro 8', f'zero 3 prefetch = {n} overlap = on'])[1] for n in (1, 3))
    check(one == three and one['flights']['ahead'][0]['layers'] == 1, f'{one}\n{three}')
    check({b['why'] for b in one['flights']['blocking']} == {'needed at once', 'hides nothing'}, f'{one["flights"]}')
    fast = MODEL.replace('intra = 100GB/s inter = 40GB/s', 'intra = 100000GB/s inter = 1000000GB/s').replace(
        'f32 = 1TFLOPS', 'f32 = 0.000001TFLOPS')
    off, on = (plan('1GiB', ['micro 8', w], model=fast)[1]['seconds']
               for w in ('zero 3', 'zero 3 prefetch = 3 overlap = on'))
    check(on['exposed']['data'] < off['exposed']['data'], f'{off} {on}')
    print('what does not fit is refused, and what the help says fits')
finally:
    shutil.rmtree(folder)
