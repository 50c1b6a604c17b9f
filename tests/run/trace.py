"""`train --trace` of many ranks is one file on one clock: python3 trace.py SHARDC

Pipelines (one_f_one_b, zero_bubble, interleaved with zero 3, gpipe): every rank has its row, every turn of the table
its box, in the table's order; boxes of a rank are within its steps and do not overlap, waits are within turns; every
send has one receive, which does not end before the send began, by more than the file says that clocks may be off. `plan
--measured` draws it next to the table and prints the time that stages do not use; a file of another plan is refused.

Ranks whose clocks differ (each in a time namespace of its own, seconds apart) find that out to within what the file
says. If the system does not allow time namespaces, that part is left out with a message.
"""
import json, os, re, shutil, subprocess, sys, xml.etree.ElementTree as tree
from collections import defaultdict
from common import EXAMPLES, check, has_mpi, run, text_file, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
MODEL = '''use "gpt2"
variant Small of GPT2 { Pos = 8; Vocab = 257 pad 8; Embed = 16; Heads = 2; Layers = 6 }
train t for Small { size Seq = 8; batch 12; steps 4; data "text.txt" format = bytes; optim adamw lr = 2e-3; clip 1.0 }
plan one for Small { micro 12 }
plan turns for Small { mesh pipe = 3
 place Layers -> pipe
 pipeline one_f_one_b
 micro 2 }
plan zb for Small { mesh pipe = 3
 place Layers -> pipe
 pipeline zero_bubble
 micro 2 }
plan chunks for Small { mesh dp = 2, pipe = 2
 place Batch -> dp
 place Layers -> pipe
 pipeline interleaved chunks = 3
 micro 2
 zero 3 over dp }
plan all for Small { mesh pipe = 2
 place Layers -> pipe
 pipeline gpipe
 micro 3 }
'''
STAGES = {'turns': 3, 'zb': 3, 'chunks': 2, 'all': 2}
RANKS = {'turns': 3, 'zb': 3, 'chunks': 4, 'all': 2}
LETTER = {'forward': 'F', 'backward': 'B', 'weights': 'W'}


def tables(plan):
    """By stage, the turns in their order: F0 F1 B0 .., with a letter after them for chunks."""
    if plan == 'all':
        parts = range(4)
        return [[f'F{i}' for i in parts] + [f'B{i}' for i in parts]] * 2
    text = run(SHARDC, 'dump', 'm.shard', '--plan', plan, '--after', 'memory', cwd=folder)[0]
    found = re.findall(r'# stage \d+: (.*)', text)[:STAGES[plan]]
    check(len(found) == STAGES[plan] and not any('..' in t for t in found), f'{plan}: {found}')
    return [t.split() for t in found]


def end(e): return e['ts'] + e['dur']


def inside(box, outer): return outer['ts'] - 0.002 <= box['ts'] <= end(box) <= end(outer) + 0.002


def check_file(name, plan, stage_of):
    trace = json.load(open(f'{folder}/{name}'))
    told, events, ranks = trace['otherData'], trace['traceEvents'], RANKS[plan]
    check(told['ranks'] == ranks and told['complete'] and told['steps'] == [2, 3], f'{name}: {told}')
    check([c['rank'] for c in told['clocks']] == list(range(ranks)) and
          told['error_us'] == max(c['error_us'] for c in told['clocks']), f'{name}: {told["clocks"]}')
    names = [e['args']['name'] for e in events if e['name'] == 'process_name']
    check([n.split(':')[0] for n in names] == [f'rank {i}' for i in range(ranks)], f'{name}: {names}')
    of = defaultdict(lambda: defaultdict(list))
    for e in events:
        if e['ph'] == 'X': of[e['pid']][e['cat']].append(e)
    check(sorted(of) == list(range(ranks)), f'{name}: rows of {sorted(of)}')
    table = tables(plan)
    for rank, has in of.items():
        check([s['name'] for s in has['step']] == ['step 2', 'step 3'], f'{name}: steps of rank {rank}')
        for step in has['step']:
            turns = [t for t in has['turn'] if inside(t, step)]
            done = [LETTER[t['args']['kind']] + str(t['args']['part']) +
                    ('abcdefgh'[t['args']['chunk']] if plan == 'chunks' else '') for t in turns]
            check(done == table[stage_of(rank)], f'{name}: rank {rank} took {done}, the table says '
                  f'{table[stage_of(rank)]}')
            check(all(end(a) <= b['ts'] + 0.002 for a, b in zip(turns, turns[1:])), f'{name}: turns overlap')
        check(len(has['turn']) == 2 * len(table[stage_of(rank)]), f'{name}: turns outside of steps')
        for kind in 'kernel', 'message', 'wait', 'turn':
            check(has[kind] and all(any(inside(e, s) for s in has['step']) for e in has[kind]), f'{name}: {kind}')
        for m in has['message'] + has['wait']:
            args = m['args']
            if 'part' not in args: continue
            check(sum(inside(m, t) and all(t['args'][k] == args[k] for k in ('kind', 'part', 'chunk'))
                      for t in has['turn']) == 1, f'{name}: {m} is in no such turn')
    check_hops(name, events, of, told['error_us'])
    return told


def check_hops(name, events, of, error):
    """Arrows: each from a send to the receive of that part on the rank that it names."""
    flows = defaultdict(dict)
    for e in events:
        if e.get('cat') == 'hop':
            check(e['ph'] not in flows[e['id']], f'{name}: {e["id"]} twice')
            flows[e['id']][e['ph']] = e
    hops = {(r, m['name'], round(m['ts'], 3)): m for r, has in of.items() for m in has['message']
            if 'to' in m['args'] or 'from' in m['args']}
    sent = [m for (_, kind, _), m in hops.items() if kind == 'send']
    check(sent and len(flows) == len(sent) == len(hops) / 2, f'{name}: {len(flows)} arrows, {len(hops)} messages')
    for id, ends in flows.items():
        check(set(ends) == {'s', 'f'}, f'{name}: arrow {id} has {set(ends)}')
        a = hops[ends['s']['pid'], 'send', round(ends['s']['ts'], 3)]
        b = next(m for m in of[ends['f']['pid']]['message'] if m['name'] == 'receive' and inside(
            {'ts': ends['f']['ts'], 'dur': 0}, m))
        check(a['args']['to'] == b['pid'] and b['args']['from'] == a['pid'], f'{name}: {a} to {b}')
        check(all(a['args'][k] == b['args'][k] for k in ('kind', 'part', 'elements')), f'{name}: {a} to {b}')
        check(end(b) + error + 0.002 >= a['ts'], f'{name}: received before it was sent, by {a["ts"] - end(b)} us')


def check_picture(name, plan, step_ranks):
    """`plan --measured`: idle parts as they follow from the file, and both pictures."""
    measure = 'plan', 'm.shard', '--plan', plan, '--measured', name
    told = json.loads(run(SHARDC, *measure, '--json', '--html', 'p.html', cwd=folder)[0])['measured']
    for words in run(SHARDC, *measure, cwd=folder)[0], open(f'{folder}/p.html').read():
        one = json.load(open(f'{folder}/{name}'))['otherData']['error_us'] == 0
        check(('on one clock' in words) == one and ('be off by' in words) != one, f'{name}: clocks in {words}')
    events = [e for e in json.load(open(f'{folder}/{name}'))['traceEvents'] if e['ph'] == 'X']
    step = {e['pid']: e for e in events if e['cat'] == 'step' and e['name'] == f'step {told["step"]}'}
    of = {c: [[e for e in events if e['pid'] == r and e['cat'] == c and inside(e, step[r])] for r in step_ranks]
          for c in ('turn', 'wait')}
    total = max(end(t[-1]) for t in of['turn']) - min(t[0]['ts'] for t in of['turn'])
    check(abs(told['seconds'] - 1e-6 * total) < 1e-7, f'{name}: {told["seconds"]} s, the file has {total} us')
    check(told['steps'] == 2 and len(told['stages']) == STAGES[plan], f'{name}: {told}')
    for stage, turns, waits in zip(told['stages'], of['turn'], of['wait']):
        still = sum(w['dur'] for w in waits if any(inside(w, t) for t in turns))
        idle = 1 - (sum(t['dur'] for t in turns) - still) / total
        check(abs(stage['idle'] - idle) < 1e-4 and abs(stage['still'] - still / total) < 1e-4,
              f'{name}: {stage}, the file has {idle}, {still / total}')
        check(0 <= stage['idle_planned'] < 1, f'{name}: {stage}')
    page = open(f'{folder}/p.html').read()
    page = page[page.index('The schedule of the stages'):]
    planned, measured = [tree.fromstring(s) for s in re.findall(r'<svg.*?</svg>', page, re.S)]
    table = tables(plan)
    words = {'F': 'forward', 'B': 'backward', 'W': 'gradients of weights'}
    titles = [e.text for e in planned.findall('.//{*}title')]
    for s, turns in enumerate(table):
        for t in turns:
            check(titles.count(f'stage {s}, {words[t[0]]}: {t[1:]}') == 1, f'{plan}: no box of {t} of stage {s}')
    seen = [e.text for e in measured.findall('.//{*}title')]
    check({t.split(',')[0] for t in seen if ',' in t} == {f'stage {s}' for s in range(STAGES[plan])},
          f'{name}: lanes {seen}')
    for way in ' sends ', ' receives ':
        check(any(way in t for t in titles) and any(way in t for t in seen), f'{plan}: no {way}')


def refused():
    """Files that are not of this plan, or no trace at all."""
    def plan(name, file, says, expect=1):
        said = ''.join(run(SHARDC, 'plan', 'm.shard', '--plan', name, '--measured', file, cwd=folder, expect=expect))
        check(says in said, f'{name} with {file}: {said}')
    plan('zb', 'of_turns.json', 'stage 0 goes on with forward 3 of chunk 0, and the plan with gradients of weights 0')
    plan('turns', 'of_zb.json', 'E1403')
    plan('all', 'of_turns.json', 'on 3 ranks')
    plan('turns', 'm.shard', 'is no trace')
    plan('turns', 'nothing.json', '[E0001]: `nothing.json`: cannot open: No such file', expect=4)
    plan('turns,zb', 'of_zb.json', 'is about one plan', expect=2)
    plan('one', 'of_zb.json', 'on 3 ranks, and the plan of')
    trace = json.load(open(f'{folder}/of_turns.json'))
    events = [e for e in trace['traceEvents'] if e['name'] != 'step 3']
    own = {e['pid']: e for e in events if e['name'] == 'step 2'}
    last = max(i for i, e in enumerate(events) if e.get('cat') == 'turn' and e['pid'] == 2 and inside(e, own[2]))
    for change, says in (lambda e: e[:last] + e[last + 1:], 'goes on with nothing'), \
            (lambda e: e[:last] + [e[last]] * 2 + e[last + 1:], 'goes on with more turns'), \
            (lambda e: [x for x in e if x.get('cat') != 'step'], 'holds no step'), \
            (lambda e: e + [{**e[last], 'pid': -1}, {**e[last], 'pid': 1 << 62}], None), \
            (lambda e: e[:last] + [{**e[last], 'dur': -1}] + e[last + 1:], 'is no trace: an event whose time'), \
            (lambda e: e[:last] + [{**e[last], 'ts': own[2]['ts']}] + e[last + 1:], 'two turns at once'), \
            (lambda e: [{**x, 'dur': 0, 'ts': 1} for x in e if 'dur' in x and inside(x, own[x['pid']])],
             'take no time'):
        json.dump({**trace, 'traceEvents': change(events)}, open(f'{folder}/changed.json', 'w'))
        plan('turns', 'changed.json', says or 'measured:', expect=1 if says else 0)
    trace['otherData']['complete'] = False
    json.dump(trace, open(f'{folder}/changed.json', 'w'))
    plan('turns', 'changed.json', 'does not hold all of its steps')


def train(exe, ranks, out):
    run(SHARDC, 'run', exe, '-n', str(ranks), '--', 'train', '--out', out, '--threads', '1', '--trace',
        f'{out}.json:2..3', cwd=folder)


def may_differ():
    p = subprocess.run(['unshare', '--time', '--monotonic', '1000', 'true'], capture_output=True)
    return p.returncode == 0


def apart():
    """Each rank has a clock of its own, in whole seconds apart from the others'."""
    if not may_differ():
        print('LEFT OUT: nobody here may make a time namespace (unshare --time)')
        return
    environment = {**os.environ, 'WORLD_SIZE': '3', 'SHARDC_JOB': 'clocks', 'SHARDC_PATH': EXAMPLES}
    ahead = [7, 5000, 123]
    ranks = [subprocess.Popen(['unshare', '--time', '--monotonic', str(ahead[r]), './m', 'train', '--out', 'u',
                               '--threads', '1', '--trace', 'u.json:2..3'], cwd=folder,
                              env={**environment, 'RANK': str(r)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
             for r in range(3)]
    said = [p.communicate(timeout=1200)[0].decode() for p in ranks]
    check(not any(p.returncode for p in ranks), '\n'.join(said))
    told = check_file('u.json', 'turns', lambda rank: rank)
    for c, seconds in zip(told['clocks'], ahead):
        off = abs(c['ahead_us'] - 1e6 * (seconds - ahead[0]))
        check(off <= c['error_us'] + 0.01, f'rank {c["rank"]}: found {c}, it is {seconds - ahead[0]} s')
        check((c['error_us'] > 0) == (c['rank'] > 0), f'{c}: what is known of a clock of one\'s own')


open(f'{folder}/m.shard', 'w').write(MODEL)
text_file(f'{folder}/text.txt')
run(SHARDC, 'compile', 'm.shard', '--plan', 'turns,chunks,all', '-o', 'm', '--quick', cwd=folder)
run(SHARDC, 'compile', 'm.shard', '--plan', 'zb', '-o', 'zb', '--quick', cwd=folder)
for plan in 'turns', 'chunks', 'all', 'zb':
    train('./zb' if plan == 'zb' else './m', RANKS[plan], f'of_{plan}')
    told = check_file(f'of_{plan}.json', plan, lambda rank: rank // 2 if plan == 'chunks' else rank)
    check(told['error_us'] == 0, f'{plan}: one clock, and an error of {told["error_us"]}')
    check_picture(f'of_{plan}.json', plan, range(0, RANKS[plan], RANKS[plan] // STAGES[plan]))
refused()
apart()
if has_mpi():
    run(SHARDC, 'compile', 'm.shard', '--plan', 'turns', '-o', 'mpi', '--comm', 'mpi', '--quick', cwd=folder)
    run('mpirun', '--oversubscribe', '-n', '3', './mpi', 'train', '--out', 'p', '--threads', '1', '--trace',
        'p.json:2..3', cwd=folder)
    check_file('p.json', 'turns', lambda rank: rank)
shutil.rmtree(folder)
