"""`shardc plan --html` and `--svg`: python3 pictures.py SHARDC

One page that loads nothing, the same bytes each time, small; well-formed; it holds the figures of `--json`, and its
peak is the one that pass `memory` found: no packing can be smaller. With chromium at hand it is drawn, and is
not empty.
"""
import json, os, re, shutil, sys, xml.etree.ElementTree as tree
from common import EXAMPLES, check, read, run, workdir

SHARDC, folder, FILE = os.path.abspath(sys.argv[1]), workdir(), f'{EXAMPLES}/tiny_ranks.shard'
HOST = '''use "gpt2"
variant Small of GPT2 { Pos = 4; Vocab = 16; Embed = 8; Heads = 2; Layers = 5 }
train t for Small { size Seq = 4; batch 4; steps 3; data "none.bin" format = u16; optim adamw; clip 1.0 }
machine box {
  node gpus = 1 arch = sm_80 memory = 40GiB f32 = 20TFLOPS hbm = 2000GB/s
  link intra = 300GB/s
  host memory = 1GiB pcie = 12GB/s cores = 2 dram = 20GB/s
}
plan p for Small { on box; zero 2 over data; mesh data = 1; place Batch -> data; offload optimizer, grads -> host }
'''
UNITS = {'B': 1, 'KiB': 2**10, 'MiB': 2**20, 'GiB': 2**30}


def bytes_of(text): return float(text.split()[0]) * UNITS[text.split()[1]]


def bands(svg, total):
    """Bytes of what stays, by the height of its band."""
    line = int(re.search(r'stroke="#666666"[^>]* d="M80 (\d+)H', svg)[1])
    found, below = {}, 250
    for top, name in re.findall(r'<path fill="#\w+" d="M80 250V(\d+).*?<title>(.*?)</title>', svg):
        found[name], below = (below - int(top)) / (250 - line) * total, int(top)
    return found


def plan(*args, **kw): return run(SHARDC, 'plan', FILE, *args, cwd=folder, **kw)


def largest(svg):
    return bytes_of(re.search(r'marks the peak, ([\d.]+ \w+);', svg).group(1))


def check_streams(words, lanes):
    """`dump --format html`: the step has a box for each of its operations, a bracket for each of its loops, and an
    arrow for each token."""
    run(SHARDC, 'dump', *words, '--format', 'html', '-o', 'd.html', cwd=folder)
    data = json.loads(re.search('<script id="data"[^>]*>(.*?)</script>', read(f'{folder}/d.html').decode(), re.S)[1])
    drawn = tree.fromstring(next(s['svg'] for s in data['streams'] if s['name'] == 'step'))
    text = '\n'.join(data['lines'][i] for i in data['stages'][-1]['lines'])
    parts, todo = dict(re.findall(r'^(?:entry|body) @([\w.]+)(.*?)^}', text, re.S | re.M)), ['step']
    for name in todo: todo += re.findall(r'= loop\[\w+\] @([\w.]+)', parts[name])
    own = ''.join(parts[name] for name in todo)
    names = [t.text for t in drawn.findall('.//{*}text')]
    boxes = [t.text for t in drawn.findall('.//{*}rect/{*}title')]
    arrows = drawn.findall('.//{*}path[@marker-end]')
    kernels, tokens = re.findall(r'= kernel @([\w.]+)', own), re.findall(r'after_\w+ = |arrived = ', own)
    check(lanes <= set(names), f'{lanes} in {names}')
    check(kernels and all(any(b.startswith(f'{k} in ') for b in boxes) for k in kernels), f'{kernels}: {boxes}')
    drawn_loops = [body for body in todo[1:] if any(n.startswith(f'{body} × ') for n in names)]
    check(len(todo) > 1 and drawn_loops == todo[1:], f'{todo}: {names}')
    check(len(arrows) >= len(tokens), f'{len(tokens)} tokens, {len(arrows)} arrows')


try:
    for plan_name in ('two', 'four'):
        svg = plan('--plan', plan_name, '--svg', '-')[0]
        picture = tree.fromstring(svg)
        check(len(svg) < 20000 and len(picture.findall('.//{*}path')) > 8, f'{len(svg)} bytes of svg')
        text = run(SHARDC, 'dump', FILE, '--plan', plan_name, '--after', 'memory', cwd=folder)[0]
        frame, live = map(int, re.search(r'^entry @step \{frame = (\d+), live = (\d+)', text, re.M).groups())
        total = json.loads(plan('--plan', plan_name, '--json')[0])['classes'][0]['bytes']['total']
        check(abs(largest(svg) - (total - frame + live)) < 0.01 * total,
              f'peak {largest(svg)}, of {total} - {frame} + {live}')
    for name in 'ab': plan('--html', f'{name}.html')
    page = read(f'{folder}/a.html')
    plans = len(re.findall('^plan ', open(FILE).read(), re.M))
    check(page == read(f'{folder}/b.html'), 'not the same twice')
    check(len(page) < 15000 * plans, f'{len(page)} bytes of {plans} plans')
    text = page.decode()
    loads = [u for u in re.findall(r'(?:src|href)=|url\(|https?://[^"]*', text) if u != 'http://www.w3.org/2000/svg']
    check(not loads and '<script' not in text, f'the page loads {loads}')
    for svg in re.findall(r'<svg.*?</svg>', text, re.S): tree.fromstring(svg)
    check(text.count('<section>') == plans and text.count('<svg') > plans, 'all plans and what compares them')
    for sent in json.loads(plan('--plan', 'four', '--json')[0])['communication']:
        for c in sent['collectives']: check(f'>{c["elements"]}<' in text, f'{c} is not on the page')
    # the lanes of a plan whose machine is known: kernels, two axes, omitted rounds
    lanes = run(SHARDC, 'plan', f'{os.path.dirname(FILE)}/plans.shard', '--plan', 'hybrid', '--set',
                'plan.zero.overlap=on', '--html', '-', cwd=folder)[0]
    lanes = lanes[lanes.index('Kernels and messages'):]
    drawn = [tree.fromstring(s) for s in re.findall(r'<svg.*?</svg>', lanes, re.S)]
    words = [t.text for t in drawn[0].findall('.//{*}text')]
    wanted = {'+ 18 rounds', 'over data', 'over node'}
    check(len(drawn) == 1 and words.count('over data') == 1 and wanted <= set(words), f'{words}')
    check(len(drawn[0].findall('.//{*}rect')) > 100, 'lanes without spans')
    # the streams of host memory, with arrows for waits
    open(f'{folder}/host.shard', 'w').write(HOST)
    lanes = run(SHARDC, 'plan', 'host.shard', '--target', 'sm_80', '--html', '-', cwd=folder)[0]
    drawn = tree.fromstring(re.findall(r'<svg.*?</svg>', lanes[lanes.index('Kernels, copies and messages'):], re.S)[0])
    words, arrows = [t.text for t in drawn.findall('.//{*}text')], drawn.findall(".//{*}path[@class='w']")
    check({'kernels', 'down', 'host', 'up'} <= set(words), f'{words}')
    check(arrows and any(a.find('{*}title').text == 'up waits for host' for a in arrows), 'no arrows')
    check_streams(('host.shard', '--target', 'sm_80', '--plan', 'p'),
                  {'kernels', 'down', 'host', 'up', 'data', 'inputs'})
    check_streams((FILE, '--plan', 'two', '--set', 'plan.zero=3'), {'kernels', 'data', 'over data'})
    # classes of stages: a column each, of one memory what --json tells
    stages = f'{os.path.dirname(FILE)}/gpt1t.shard'
    page = run(SHARDC, 'plan', stages, '--html', '-', cwd=folder)[0]
    totals = re.findall(r'>([\d.]+ \w+)</td>', re.search('<td>total</td>(.*?)</tr>', page)[1])
    classes = json.loads(run(SHARDC, 'plan', stages, '--json', cwd=folder)[0])['classes']
    most = max(classes, key=lambda c: c['bytes']['total'])['stages']
    check(len(classes) == 3 and f'stages `{most}`, which need the most' in page, f'{len(classes)} classes')
    for t, c in zip(totals, classes): check(abs(bytes_of(t) / c['bytes']['total'] - 1) < 0.01, f'{totals}')
    check(len(totals) == 3 and len(page) < 120000, f'{totals}, {len(page)} bytes')
    # what leaves nodes: by axis and class of stages, as --json tells it
    nodes = json.loads(run(SHARDC, 'plan', stages, '--json', cwd=folder)[0])['nodes']
    rows = re.findall('<tr>(.*?)</tr>', re.search('sent between nodes per step.*?</table>', page, re.S)[0])
    rows = [re.findall('<td.*?>(.*?)</td>', r) for r in rows]
    wanted = [(a, s) for a in nodes['axes'] for s in [None] + a['from'][:None if a['link'] == 'inter' else 0]]
    check(len(rows) == len(wanted) == 9, f'{rows}')
    for row, (a, s) in zip(rows, wanted):
        if s:
            check(row[0] == s['stages'] and abs(bytes_of(row[1]) / s['own'] - 1) < 0.01 and
                  abs(float(row[2][:-2]) / s['seconds_own'] - 1) < 0.01, f'{row} of {s}')
        else:
            crosses, said = a['link'] == 'inter', ' '.join(row)
            check(said.startswith(f'over {a["axis"]}') and f'{a["in_node"]} of ' in said and
                  ('nothing leaves' not in said if crosses else said.endswith('nothing leaves')) and
                  (f', {a["sets"]} sets' in said) == crosses, f'{row} of {a}')
    # the schedule, a bar per turn, each with its label; of 64 stages stretches of turns
    gantt = re.search('<h3>The schedule of the stages.*?(<svg.*?</svg>)', page, re.S)[1]
    lanes = tree.fromstring(gantt).findall('.//{*}rect')
    check(64 * 2 < len(lanes) < 64 * 8, f'{len(lanes)} bars of 64 stages')
    for plan_name, kinds in ('zero_bubble', 3), ('one_f_one_b', 2):
        page = run(SHARDC, 'plan', stages, '--plan', 'p3d', '--set', f'plan.pipeline={plan_name}', '--set',
                   'plan.mesh.pipe=4', '-D', 'Layers=8', '-D', 'Batch=64', '--html', '-', cwd=folder)[0]
        gantt = re.search('<h3>The schedule of the stages.*?(<svg.*?</svg>)', page, re.S)[1]
        said = [t.text for t in tree.fromstring(gantt).findall('.//{*}title')]
        bars = [t for t in said if re.match(r'stage \d, ', t)]
        check(len(set(said)) == len(said) and len(bars) == 4 * 8 * kinds, f'{plan_name}: {len(bars)} bars')
        for way in 'sends', 'receives':     # over three borders, eight parts, forward and backward
            check(sum(f' {way} ' in t for t in said) == 3 * 8 * 2, f'{plan_name}: {way} of {said}')
    # slots of copies to and from the host are a band of their own, of all that `plan` counts as buffers of one GPU
    open(f'{folder}/o.shard', 'w').write(read(f'{os.path.dirname(FILE)}/tiny.shard').decode() +
                                         'plan near for Tiny { micro 4 }\n'
                                         'plan away for Tiny { micro 4; offload optimizer, grads, params -> host }\n')
    for name, there in ('near', False), ('away', True):
        words = [SHARDC, 'plan', 'o.shard', '--target', 'sm_80', '--plan', name]
        svg, need = run(*words, '--svg', '-', cwd=folder)[0], run(*words, '--json', cwd=folder)[0]
        need = json.loads(need)['classes'][0]['bytes']
        slots = bands(svg, need['total']).get('slots of copies', 0)
        check((slots > 0) == there == (need['buffers'] > 0) and abs(slots - need['buffers']) < 0.01 * need['total'],
              f'{slots} bytes of slots, {need}')
    check('--svg' in plan('--svg', 'x.svg', expect=2)[1], 'one picture, three plans')
    chromium = shutil.which('chromium') or shutil.which('chromium-browser')
    if chromium:
        run(chromium, '--headless', '--no-sandbox', '--disable-gpu', '--window-size=1000,1400', '--screenshot=a.png',
            f'file://{folder}/a.html', cwd=folder)
        check(os.path.getsize(f'{folder}/a.png') > 20000, 'an empty picture')
    print('page and picture of three plans' + ('' if chromium else '; no chromium: not drawn'))
finally:
    shutil.rmtree(folder)
