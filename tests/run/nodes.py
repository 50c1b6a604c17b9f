"""The mapping of the mesh to the nodes of the plan's machine: python3 nodes.py SHARDC

Random meshes over nodes of random sizes, also meshes that the nodes do not divide, with stages of `zero` and of
pipelines: the test counts what `plan` says of nodes again, rank by rank, from the messages of each class (rings; b s e
elements per border and micro-batch between stages). If and only if the order of the axes that keeps the most bytes
inside nodes saves a hundredth of them, and of the step by its forecast, W0701 says so with all numbers; its edits,
written into the plan, give the stated bytes and seconds, compile, and leave no better order. W0708 is said of an axis
that no node holds, and its edit makes it fit. Ranks of a node run on its processors in order, and a ring that leaves a
node has its share of the outgoing bandwidth.
"""
import itertools, json, os, random, re, shutil, subprocess, sys
from common import EXAMPLES, check, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
BATCH, SEQ, EMBED, LINKS = 32, 16, 64, 25e6
MODEL = '''use "gpt2"
variant Small of GPT2 { Pos = 16; Vocab = 128; Embed = 64; Heads = 4; Layers = 4 }
train t for Small { size Seq = 16; batch 32; steps 6; data "text.txt" format = bytes; optim adamw lr = 2e-3 }
machine box { node gpus = %d arch = sm_80 memory = 40GiB f32 = 1TFLOPS hbm = 100GB/s
  link intra = 100GB/s inter = 25MB/s latency = 1us }
plan p for Small {
  on box nodes = %d
  mesh %s
%s}
'''
PLACES = {'tensor': 'place Heads, Mlp, Vocab -> tensor', 'pipe': 'place Layers -> pipe'}


def text_of(mesh, gpus, lines):
    ranks = 1
    for _, n in mesh: ranks *= n
    batch = [a for a, _ in mesh if a in ('data', 'wide')]
    places = [PLACES[a] for a, _ in mesh if a in PLACES]
    if batch: places.append(f'place Batch -> {", ".join(sorted(batch))}')
    return MODEL % (gpus, -(-ranks // gpus), ', '.join(f'{a} = {n}' for a, n in mesh),
                    ''.join(f'  {l}\n' for l in places + lines))


def plan(text):
    open(f'{folder}/m.shard', 'w').write(text)
    p = subprocess.run([SHARDC, 'plan', 'm.shard', '--json', '--message-format=json'], cwd=folder, capture_output=True,
                       text=True, env=dict(os.environ, SHARDC_PATH=EXAMPLES, NO_COLOR='1'))
    check(p.returncode == 0, f'{text}\nexit {p.returncode}\n{p.stderr}')
    said = [json.loads(l) for l in p.stderr.splitlines() if l.startswith('{')]
    return json.loads(p.stdout), [m for m in said if m['code'] in ('W0701', 'W0708')]


def class_of(stage, stages, classes):
    return '' if '' in classes else 'first' if not stage else 'last' if stage == stages - 1 else 'middle'


def counted(mesh, in_node, classes):
    """Bytes that leave nodes: of each axis in all; by axis and class, (own, all) of the worst node."""
    sizes = dict(mesh)
    ranks = list(itertools.product(*(range(n) for _, n in reversed(mesh))))
    where = {tuple(reversed(c)): i // in_node for i, c in enumerate(ranks)}
    names = [a for a, _ in mesh]
    hop = (BATCH // sizes.get('data', 1) // sizes.get('wide', 1)) * SEQ * EMBED * 4  # of all micro-batches
    left, stages = {a: {} for a in names}, sizes.get('pipe', 1)
    for c, node in where.items():
        stage = c[names.index('pipe')] if 'pipe' in names else 0
        who = class_of(stage, stages, classes)
        for k, a in enumerate(names):
            n, sent = sizes[a], classes[who]['sends_per_step'][a]['bytes']
            to = lambda x: where[c[:k] + (x,) + c[k + 1:]] != node
            hops = [x for x in (stage - 1, stage + 1) if 0 <= x < n] if a == 'pipe' and n > 1 else []
            out = sum(hop for x in hops if to(x))
            ring = sent - hop * (2 if a == 'pipe' and n > 1 and not who else len(hops))  # one program: both ways
            check(ring >= 0, f'{mesh}: stage {stage} sends {sent} over {a}, less than to its neighbours')
            if n > 1 and to((c[k] + 1) % n): out += ring * (n - 1) / n
            left[a].setdefault(node, {}).setdefault(who, 0)
            left[a][node][who] += out
    with_class = lambda a, w: [x for x in left[a].values() if w in x]
    own = {(a, w): (max(x[w] for x in with_class(a, w)), max(sum(x.values()) for x in with_class(a, w)))
           for a in names for w in classes}
    return {a: sum(sum(x.values()) for x in left[a].values()) for a in names}, own


def sets_of(mesh, axis, in_node):
    """Nodes that talk over the axis, joined as long as any do."""
    coordinates = [tuple(reversed(c)) for c in itertools.product(*(range(n) for _, n in reversed(mesh)))]
    k, groups, sets = [a for a, _ in mesh].index(axis), {}, []
    for i, c in enumerate(coordinates): groups.setdefault(c[:k] + c[k + 1:], set()).add(i // in_node)
    for g in groups.values():
        joined = [s for s in sets if s & g]
        sets = [s for s in sets if not s & g] + [set().union(g, *joined)]
    where = {c: i // in_node for i, c in enumerate(coordinates)}
    most = max(sum(where[c[:k] + (x,) + c[k + 1:]] == where[c] for x in range(dict(mesh)[axis])) for c in coordinates)
    return len(sets), most


def near(a, b): return abs(a - b) <= 1e-9 * max(abs(a), abs(b), 1)


def judged(mesh, gpus, lines):
    """Compare the figures of `plan` with those that this test counts; returns (bytes that leave nodes, messages)."""
    text = text_of(mesh, gpus, lines)
    j, said = plan(text)
    ranks = j['ranks']
    if ranks <= gpus:
        check('nodes' not in j and not said, f'{text}: one node\n{j.get("nodes")}\n{said}')
        return 0, said, j
    classes = {c.get('stages', ''): c for c in j['classes']}
    left, own = counted(mesh, gpus, classes)
    check((j['nodes']['count'], j['nodes']['ranks']) == (-(-ranks // gpus), gpus), f'{text}: {j["nodes"]}')
    check(near(j['nodes']['leaves'], sum(left.values())), f'{text}: {j["nodes"]["leaves"]} leave nodes, not {left}')
    for a in j['nodes']['axes']:
        name = a['axis']
        check(near(a['leaves'], left[name]), f'{text}: over {name} {a["leaves"]}, not {left[name]}')
        check((a['sets'], a['in_node']) == sets_of(mesh, name, gpus), f'{text}: {a}')
        check((a['link'] == 'inter') == (a['in_node'] < dict(mesh)[name] or bool(left[name])), f'{text}: {a}')
        for f in a['from']:
            o, all_ = own[name, f['stages']]
            check(near(f['own'], o) and near(f['all'], all_), f'{text}: over {name} {f}, not {o}, {all_}')
            check(abs(f['seconds_own'] - o / LINKS) <= 1e-5 * o / LINKS, f'{text}: {f}')
            check(abs(f['seconds_all'] - all_ / LINKS) <= 1e-5 * all_ / LINKS, f'{text}: {f}')
    return j['nodes']['leaves'], said, j


def edited(m):
    text = open(f'{folder}/m.shard', 'rb').read()
    for e in sorted(m['edits'], key=lambda e: -e['offset']):
        text = text[:e['offset']] + e['text'].encode() + text[e['offset'] + e['length']:]
    return text.decode()


def mesh_in(text):
    return [(a, int(n)) for a, n in re.findall(r'(\w+) = (\d+)', re.search(r'(?m)^  mesh (.*)', text).group(1))]


def ordered(mesh, gpus, lines):
    """W0701 appears if and only if another order is better. Returns whether it appeared."""
    written, said, now = judged(mesh, gpus, lines)
    said = [m for m in said if m['code'] == 'W0701']
    seconds = lambda j: j['forecast']['seconds_per_step']
    mesh_after, least, after = mesh, written, now
    if said:
        better = edited(said[0])
        mesh_after = mesh_in(better)
        check(sorted(mesh_after) == sorted(mesh) and mesh_after != mesh, f'{mesh}: edited to {mesh_after}')
        least, again, after = judged(mesh_after, gpus, lines)
        again = [m for m in again if m['code'] == 'W0701']
        check(not again, f'{mesh} on {gpus} GPUs: still said of {mesh_after}: {again}')
        check(least < 0.99 * written, f'{mesh} on {gpus} GPUs: {written} to {least} in {mesh_after}')
        check(seconds(after) < 0.99 * seconds(now), f'{mesh} on {gpus} GPUs: {mesh_after} is no faster')
        stated = f'a step: {seconds(now):.3g} s by the forecast', f'{seconds(after):.3g} s'
        check(all(words in str(said[0]) for words in stated), f'{said[0]}: not {stated}')
    every = {o: judged(list(o), gpus, lines) for o in itertools.permutations(mesh)}
    fewest = min(v[0] for v in every.values())
    slowest = max(seconds(v[2]) for v in every.values() if near(v[0], fewest))
    check(fewest >= 0.99 * least or slowest >= 0.99 * seconds(after),
          f'{mesh} on {gpus} GPUs, {lines}: {mesh_after} is no best of {every}')
    return bool(said)


def known(mesh, gpus, leaves, sets):
    """Known results: only the axes in `leaves` leave nodes, and `sets` gives the number of node sets that work at
    once."""
    j = judged(mesh, gpus, [])[2]
    have = {a['axis']: a for a in j['nodes']['axes']}
    check({a for a in have if have[a]['leaves']} == set(leaves), f'{mesh}: {have}')
    for a, n in sets.items(): check(have[a]['sets'] == n, f'{mesh}: {have[a]}')


def too_wide(mesh, gpus, lines, want):
    said = [m for m in plan(text_of(mesh, gpus, lines))[1] if m['code'] == 'W0708']
    check(len(said) == 1 and f'{dict(mesh)["tensor"]} ranks, {gpus} GPUs' in said[0]['message'], f'{mesh}: {said}')
    better = edited(said[0])
    check(mesh_in(better) == want, f'{mesh}: {mesh_in(better)}, not {want}')
    check(not plan(better)[1], f'{better}: still said')


def processors(mesh, gpus, cpus):
    """The ranks that share a processor, and the time of an axis that leaves the processor and stays in the node."""
    text = text_of(mesh, gpus, []).replace('arch =', f'cpus = {cpus} arch =')
    text = text.replace('inter =', 'cpus = 10GB/s inter =')
    j = plan(text)[0]
    bare = plan(text.replace('cpus = 10GB/s', ''))[0]
    ranks, stride = j['ranks'], 1
    here = min(ranks, gpus)
    spot = lambda r: (r // here, r % here * cpus // here)
    sends = {c['axis']: c for c in j['communication']}
    for a in j['nodes']['axes']:
        n = dict(mesh)[a['axis']]
        ring = lambda r: [r + (x - r // stride % n) * stride for x in range(n)]
        most = max(sum(spot(o) == spot(r) for o in ring(r)) for r in range(ranks))
        check(a['on_cpu'] == most, f'{text}: {a}, not {most}')
        bytes_ = sends[a['axis']]['bytes_per_step'] * (n - 1) / n
        rate = min(100e9, 10e9 * most / (here // cpus)) if most < n else 100e9
        if a['link'] == 'intra':
            took = j['seconds']['over'][a['axis']]
            check(abs(took - bytes_ / rate) < 1e-4 * bytes_ / rate, f'{text}: {j["seconds"]}')
        else: check(j['seconds']['over'][a['axis']] == bare['seconds']['over'][a['axis']], f'{text}: {j["seconds"]}')
        stride *= n


def exchanged():
    """All-to-alls of experts take as long as the node's network needs for all that its ranks send out."""
    box = re.search('machine box.*?}', MODEL, re.S).group(0) % 4
    text = open(f'{EXAMPLES}/moe.shard').read() + box + '''
plan far for MoE {
  on box nodes = 2
  mesh data = 8
  place Experts -> data else Batch
}'''
    open(f'{folder}/far.shard', 'w').write(text)
    out = subprocess.run([SHARDC, 'plan', f'{folder}/far.shard', '--plan', 'far', '--json'], capture_output=True)
    j = json.loads(out.stdout.split(b'\n')[0])
    took, least = j['seconds']['over']['data'], j['nodes']['axes'][0]['from'][0]['seconds_own']
    check(any(r['kind'] == 'all_to_all' for r in j['communication'][0]['collectives']), j['communication'])
    check(abs(took - least) < 1e-3 * least, f'{took} s, the network takes {least} s')


try:
    exchanged()
    processors([('tensor', 4), ('data', 2)], 8, 2)
    processors([('data', 2), ('tensor', 4)], 8, 2)
    processors([('tensor', 2), ('data', 8)], 8, 4)
    processors([('wide', 2), ('tensor', 2), ('data', 2)], 4, 2)
    known([('tensor', 4), ('data', 2), ('pipe', 2)], 4, ['data', 'pipe'], {'data': 2, 'pipe': 2, 'tensor': 4})
    known([('tensor', 2), ('data', 2), ('pipe', 2)], 4, ['pipe'], {'data': 2})
    rng, told = random.Random(20), []
    cases = [([('pipe', 4), ('tensor', 4)], 4, ['micro 4']), ([('data', 4), ('tensor', 2)], 4, ['zero 3']),
             ([('data', 4), ('pipe', 2)], 4, []), ([('wide', 2), ('data', 2)], 2, ['zero 1'])]
    while len(cases) < 10:
        axes = rng.sample(['tensor', 'data', 'pipe', 'wide'], rng.choice([2, 3, 3]))
        mesh = [(a, rng.choice([2, 4])) for a in axes]
        zero = [f'zero {rng.randint(1, 3)}'] if {'data', 'wide'} & set(axes) else []
        cases.append((mesh, rng.choice([2, 3, 4, 6]), zero + ['micro 1'] * rng.randint(0, 1)))
    for mesh, gpus, lines in cases:
        told.append(ordered(mesh, gpus, lines))
    check(3 <= sum(told) < len(told), f'told of {told}')
    too_wide([('tensor', 4), ('data', 2)], 2, [], [('tensor', 2), ('data', 4)])
    too_wide([('tensor', 4), ('data', 2)], 3, ['micro 16'], [('tensor', 1), ('data', 2)])
    too_wide([('tensor', 4)], 2, [], [('tensor', 2)])
    both = text_of([('tensor', 4)], 2, []).replace('place Heads, Mlp', 'place Batch, Heads, Mlp')
    said = [m for m in plan(both)[1] if m['code'] == 'W0708']
    check(mesh_in(edited(said[0])) == [('tensor', 2)], f'the axis of Batch is the same one: {said}')
    print(f'{len(cases)} meshes over nodes, W0701 for {sum(told)}')
finally:
    shutil.rmtree(folder)
