"""Layers over ranks: python3 stages.py SHARDC

One executable with a plan for one rank and pipelines of two, three and four ranks (alone, with tensor parallelism, with
ZeRO and recomputation): all train as one rank does, evaluate and sample; a run resumes under another plan; only the
first or last stage holds tensors that it alone reads; models that cannot be cut into stages are refused at the word.
"""
import json, os, re, shutil, sys
from common import check, run, text_file, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
MODEL = '''use "gpt2"
variant Small of GPT2 { Pos = 8; Vocab = 257 pad 8; Embed = 16; Heads = 2; Layers = 6 }
train t for Small { size Seq = 8; batch 12; steps 6; data "text.txt" format = bytes; optim adamw lr = 2e-3; clip 1.0 }
plan one for Small { micro 12 }
plan two for Small { mesh pipe = 2
 place Layers -> pipe
 pipeline sequential
 micro 3
 recompute h.* keep = input }
plan three for Small { mesh pipe = 3
 place Layers, Vocab -> pipe
 pipeline sequential }
plan four for Small { mesh dp = 2, pipe = 2
 place Batch -> dp
 place Layers -> pipe
 pipeline one_f_one_b
 micro 2
 zero 1 over dp }
plan six for Small { mesh tp = 2, pipe = 3
 place Heads, Mlp, Vocab -> tp else Seq
 place Layers -> pipe
 pipeline gpipe
 micro 4 }
plan turns for Small { mesh pipe = 3
 place Layers -> pipe
 micro 2
 recompute h.* keep = input }
plan all for Small { mesh pipe = 3
 place Layers -> pipe
 pipeline gpipe
 micro 2
 recompute h.* keep = input }
plan narrow for Small { mesh tp = 2, pipe = 2
 place Heads, Mlp, Vocab -> tp
 place Layers -> pipe
 pipeline gpipe
 micro 2
 precision bf16 grad = bf16
 recompute h.* keep = input }
plan apart for Small { mesh pipe = 2
 place Layers -> pipe
 pipeline sequential
 recompute h[0..2] keep = input }
plan chunks for Small { mesh dp = 2, pipe = 2
 place Batch -> dp
 place Layers -> pipe
 pipeline interleaved chunks = 3
 micro 2
 zero 3 over dp }
plan rings for Small { mesh pipe = 3
 place Layers -> pipe
 pipeline interleaved chunks = 2
 micro 2
 recompute h.* keep = input }
plan zb for Small { mesh pipe = 3
 place Layers -> pipe
 pipeline zero_bubble
 micro 2
 recompute h.* keep = input }
plan away for Small { mesh pipe = 3
 place Layers -> pipe
 pipeline one_f_one_b
 micro 2
 recompute h.* keep = input offload = host }
plan rung for Small { mesh pipe = 3
 place Layers -> pipe
 pipeline interleaved chunks = 2
 micro 2
 recompute h.* keep = input offload = host }
plan steep for Small { mesh pipe = 3
 place Layers -> pipe
 pipeline zero_bubble memory = 2
 micro 2
 recompute h.* keep = input }
plan ragged for Small { mesh pipe = 4
 place Layers -> pipe
 pipeline one_f_one_b uneven = on
 micro 2 }
plan pairs for Small { mesh pipe = 2
 place Layers -> pipe
 pipeline interleaved chunks = 2 uneven = on
 micro 3 }
plan fives for Small { mesh pipe = 5
 place Layers -> pipe
 pipeline zero_bubble uneven = on
 micro 4 }
plan auto for Small { mesh pipe = 3
 place Layers -> pipe
 pipeline auto
 micro 2 }
plan none for Small { mesh pipe = 2
 place Layers -> pipe
 pipeline gpipe
 micro 3
 recompute h.* keep = none }
plan words for Small { mesh pipe = 2
 place Layers, Vocab -> pipe
 pipeline gpipe
 micro 3 }
'''

UNTIED = '''use "llama"
variant Small of Llama3 { Vocab = 256; Embed = 16; Mlp = 32; Kv = 1; Group = 2; Head = 8; Layers = 6 }
train t for Small { size Seq = 8; batch 12; steps 6; data "text.txt" format = bytes; optim adamw lr = 2e-3; clip 1.0 }
plan one for Small { micro 12 }
plan three for Small { mesh pipe = 3
 place Layers -> pipe
 pipeline gpipe
 micro 3 }
plan four for Small { mesh dp = 2, pipe = 2
 place Batch -> dp
 place Layers -> pipe
 pipeline gpipe
 micro 2
 zero 2 over dp }
'''


def losses(out): return [r['loss'] for r in map(json.loads, open(f'{folder}/{out}/metrics.jsonl')) if 'loss' in r]


def start(ranks, *args):
    call = ['./model'] if ranks == 1 else [SHARDC, 'run', './model', '-n', str(ranks), '--']
    return ''.join(run(*call, *args, cwd=folder))


def train(ranks, out, *args): return start(ranks, 'train', '--out', out, '--threads', '1', *args)


def close(a, b, what): check(len(a) == len(b) and all(abs(x - y) < 2e-5 for x, y in zip(a, b)), f'{what}: {a} and {b}')


def chunks():
    """Two or three chunks of layers on a stage: losses of one rank, checkpoints for any plan, eval, samples."""
    run(SHARDC, 'compile', '--quick', 'm.shard', '--plan', 'one,chunks,rings', '-o', 'm_chunks', cwd=folder)

    def go(ranks, *args):
        call = ['./m_chunks'] if ranks == 1 else [SHARDC, 'run', './m_chunks', '-n', str(ranks), '--']
        return ''.join(run(*call, *args, '--threads', '1', cwd=folder))

    for n in 3, 4:
        go(n, 'train', '--out', f'c{n}')
        close(losses('r1'), losses(f'c{n}'), f'chunks on {n} ranks')
    go(3, 'train', '--out', 'c', '--steps', '2')
    for n, steps in (4, '3'), (1, '4'), (3, '6'): go(n, 'train', '--out', 'c', '--resume', '--steps', steps)
    close(losses('r1'), losses('c'), 'chunks, from plan to plan')
    said = [go(n, 'eval', '--out', 'c', '--valid', '10%') for n in (1, 3, 4)]
    check(len({s.split('loss')[1].split()[0] for s in said}) == 1, said)
    said = [go(n, 'sample', '--out', 'c', '--prompt', '97', '--tokens', '5') for n in (1, 3, 4)]
    check(len({s.strip().split('\n')[-1] for s in said}) == 1, said)
    text = run(SHARDC, 'dump', 'm.shard', '--plan', 'rings', '--after', 'memory', cwd=folder)[0]
    table = 'turns = [8, 6, 4], interleave = 2'
    check('# stage 0: F0a F1a F2a F0b F1b F2b F3a F4a B0b' in text and text.count(table) == 4, 'its table')
    for other, said in ('[8, 6, 4]', ''), ('[2, 6, 4]', 'turns-c11'), ('[8, 6, 13]', 'turns-c1'), \
            ('[8, 6]', 'turns-c4'), ('[12, 12, 12]', 'turns-c8'):
        open(f'{folder}/t.ir', 'w').write(text.replace('turns = [8, 6, 4]', f'turns = {other}'))
        err = run(SHARDC, 'dump', 't.ir', '--after', 'prove', cwd=folder, expect=1 if said else 0)[1]
        check(said in err, f'{other}: {err}')
    a, b = [json.loads(run(SHARDC, 'plan', 'm.shard', '--plan', p, '--set', 'plan.micro=1', '--json', cwd=folder)[0]
                       .split('\n')[0]) for p in ('turns', 'rings')]
    check(b['bubble'] < 0.6 * a['bubble'], f'half of the bubble: {a["bubble"]}, {b["bubble"]}')
    for zero in 'zero 2 over dp', 'zero 3 over dp', 'zero 3 over dp keep_gathered = on':  # by layer, in every chunk
        open(f'{folder}/by.shard', 'w').write(MODEL.replace('zero 3 over dp', zero))
        out, err = run(SHARDC, 'plan', 'by.shard', '--plan', 'chunks', '--json', cwd=folder)
        calls = {c['kind']: c['calls'] for a in json.loads(out.split('\n')[0])['communication'] if a['axis'] == 'dp'
                 for c in a['collectives']}
        check('W0703' not in err and calls['reduce_scatter'] > 3 * 3, f'{zero}: {err} {calls}')
    open(f'{folder}/both.shard', 'w').write(MODEL.replace('zero 3 over dp', 'zero 2 over dp, pipe'))
    err = run(SHARDC, 'compile', '--quick', 'both.shard', '--plan', 'chunks', '-o', 'both', cwd=folder)[1]
    check(err.count('W0703') and 'keeps the gradient of `wte` whole' in err, err)
    run(SHARDC, 'run', './both', '-n', '4', '--', 'train', '--out', 'both_', '--threads', '1', '--check-memory',
        cwd=folder)
    close(losses('r1'), losses('both_'), 'sums once of what stages share')
    for words, code in ('chunks = 4', 'E0704'), ('chunks = 1', 'E0602'), ('chunks = 9', 'E0602'):
        open(f'{folder}/bad.shard', 'w').write(MODEL.replace('interleaved chunks = 2', f'interleaved {words}'))
        check(code in run(SHARDC, 'plan', 'bad.shard', '--plan', 'rings', cwd=folder, expect=1)[1], words)


def meetings():
    """The sum of gradients over the stages after each micro-batch makes all wait for all; W0702 says so by formula."""
    bubble = {}
    for full in '', ' accumulate = full':
        one = 'steep for Small { mesh pipe = 3'
        text = MODEL.replace(one, f'{one}\n zero 2 over pipe{full}')
        open(f'{folder}/meet.shard', 'w').write(text.replace('zero_bubble memory = 2', 'one_f_one_b'))
        out, err = run(SHARDC, 'plan', 'meet.shard', '--plan', 'steep', '--set', 'plan.micro=1', '--json', cwd=folder)
        bubble[full] = json.loads(out.split('\n')[0])['bubble']
        check(('all stages synchronise in every micro-batch' in err) == (not full), f'{full}: {err}')
    check(bubble[''] > 2 * bubble[' accumulate = full'], f'{bubble}')


def over_nccl():
    """Rings of three stages and of two with three chunks, step for step as graphs, on the stand-ins; each of them has
    as many slots for sends as its class needs."""
    for plan, n in ('rings', 3), ('chunks', 4), ('away', 3), ('rung', 3):
        run(SHARDC, 'compile', 'm.shard', '--plan', plan, '--target', 'sm_80', '-o', f'g_{plan}', '--quick',
            cwd=folder)
        run(SHARDC, 'run', '-n', str(n), '--emulate', f'./g_{plan}', '--', 'train', '--out', f'g_{plan}_',
            '--check-memory', cwd=folder)
        close(losses('r1'), losses(f'g_{plan}_'), f'{plan} over NCCL')
    host = run(SHARDC, 'compile', 'm.shard', '--plan', 'rings', '--target', 'sm_80', '--emit=c', '--class', 'first',
               '-o', '-', cwd=folder)[0]
    said = run(SHARDC, 'plan', 'm.shard', '--plan', 'rings', '--target', 'sm_80', '--json', cwd=folder)[0]
    slots = [c['send_slots'] for c in json.loads(said.split('\n')[0])['classes']]
    check([s['bytes'] for s in slots] == 3 * [2 * 8 * 16 * 4] and slots[0]['count'] > slots[2]['count'] >= 1, slots)
    check(f".send_slots = {slots[0]['count']}," in host and 'static const rt_sends sends_' in host, 'in the C')
    said = run(SHARDC, 'plan', 'm.shard', '--plan', 'rings', '--target', 'sm_80', cwd=folder)[0]
    check(re.search(rf"send slots +{slots[0]['count']} x 1.00 KiB .*in buffers", said), said)


def on_host():
    """What layers keep waits on the host, as many micro-batches of it as are in flight on a stage: the same bits."""
    for plan, like in ('away', 'turns'), ('rung', 'rings'):
        for name in plan, like:
            run(SHARDC, 'compile', '--quick', 'm.shard', '--plan', name, '-o', f'm_{name}', cwd=folder)
            run(SHARDC, 'run', f'./m_{name}', '-n', '3', '--', 'train', '--out', f'h_{name}', '--threads', '1',
                '--check-memory', cwd=folder)
        check(losses(f'h_{plan}') == losses(f'h_{like}'), f'{plan} as {like}')
    said = run(SHARDC, 'plan', 'm.shard', '--plan', 'away', '--json', cwd=folder)[0].split('\n')[0]
    saved = [c['host']['saved'] for c in json.loads(said)['classes']]
    each = 2 * 2 * 8 * 16 * 4  # layers, samples, Seq, Embed, bytes
    check(saved == [3 * each, 2 * each, each], f'{saved}, {each} of a micro-batch')
def steep():
    """`zero_bubble memory = 2`: as one rank; a shorter step with recomputed layers; its saved bytes equal the plan."""
    run(SHARDC, 'compile', '--quick', 'm.shard', '--plan', 'steep', '-o', 'm_steep', cwd=folder)
    run(SHARDC, 'run', './m_steep', '-n', '3', '--', 'train', '--out', 'steep', '--threads', '1', '--check-memory',
        cwd=folder)
    close(losses('r1'), losses('steep'), 'up to five micro-batches kept')
    text = run(SHARDC, 'dump', 'm.shard', '--plan', 'steep', '--after', 'memory', cwd=folder)[0]
    check('# stage 0: F0 F1 F2 F3 F4 B0 W0' in text and text.count('turns = [5, 3, 1, 0, 2, 4]') == 3, 'its table')
    for to in (), ('--target', 'sm_80'), ('--target', 'sm_80', '--comm', 'local'):
        zb, two = [json.loads(run(SHARDC, 'plan', 'm.shard', '--plan', p, '--json', *to,
                                  cwd=folder)[0].split('\n')[0]) for p in ('zb', 'steep')]
        check(two['bubble'] < zb['bubble'], f'{to}: {two["bubble"]} of {zb["bubble"]}')
        check(two['classes'][0]['bytes']['saved'] > zb['classes'][0]['bytes']['saved'], f'{to}: more is kept')


def uneven():
    """Stages of different numbers of layers, and without any: as one rank, and checkpoints for any plan."""
    run(SHARDC, 'compile', '--quick', 'm.shard', '--plan', 'one,ragged,pairs,fives', '-o', 'm_uneven', cwd=folder)

    def go(ranks, *args):
        call = ['./m_uneven'] if ranks == 1 else [SHARDC, 'run', './m_uneven', '-n', str(ranks), '--']
        return ''.join(run(*call, *args, '--threads', '1', cwd=folder))

    for plan, n, layers in ('ragged', 4, [[2], [2], [0]]), ('pairs', 2, [[4], [2]]), ('fives', 5, [[2], [2, 2, 0], [0]]):
        said = json.loads(run(SHARDC, 'plan', 'm.shard', '--plan', plan, '--json', cwd=folder)[0].split('\n')[0])
        check([c['layers'] for c in said['classes']] == layers, f'{plan}: {said["classes"]}')
        go(n, 'train', '--out', f'un{n}', '--check-memory')
        close(losses('r1'), losses(f'un{n}'), f'uneven on {n} ranks')
    for n, steps in (4, '2'), (2, '3'), (1, '4'), (5, '6'):
        go(n, 'train', '--out', 'u', '--steps', steps, *(['--resume'] if n != 4 else []))
    close(losses('r1'), losses('u'), 'uneven, from plan to plan')
    said = [go(n, 'eval', '--out', 'u', '--valid', '10%') for n in (1, 2, 4, 5)]
    check(len({s.split('loss')[1].split()[0] for s in said}) == 1, said)
    said = [go(n, 'sample', '--out', 'u', '--prompt', '97', '--tokens', '5') for n in (1, 2, 4, 5)]
    check(len({s.strip().split('\n')[-1] for s in said}) == 1, said)
    for word, layers in ('uneven = off', 6), ('uneven = on', 3):
        open(f'{folder}/bad.shard', 'w').write(MODEL.replace('one_f_one_b uneven = on', f'one_f_one_b {word}'))
        err = run(SHARDC, 'plan', 'bad.shard', '--plan', 'ragged', '-D', f'Layers={layers}', cwd=folder, expect=1)[1]
        check('E0704' in err and ('uneven = on' in err) == (layers == 6), err)


def summed_once():
    """Copies of stages of different numbers of layers sum their gradients once a step, however many micro-batches
    there are."""
    plan = 'plan sums for Small { mesh dp = 2, pipe = 4\n place Batch -> dp\n place Layers -> pipe\n'
    sent = []
    for micro in 3, 1:
        lines = f' pipeline one_f_one_b uneven = on\n micro {micro} }}'
        open(f'{folder}/sums.shard', 'w').write(MODEL + plan + lines)
        said = json.loads(run(SHARDC, 'plan', 'sums.shard', '--plan', 'sums', '--json', cwd=folder)[0].split('\n')[0])
        sent += [c['sends_per_step']['dp']['bytes'] for c in said['classes']]
    check(sent[0] and sent[:len(sent) // 2] == sent[len(sent) // 2:], sent)
    run(SHARDC, 'equal', 'sums.shard', '--plan', 'sums', '-q', cwd=folder)


ENDS = '''use "std"
dims { Batch; In = %d; W = 32; H = 32; V = %d; Layers = %d }
layer Block(x: [Batch, W]) -> [Batch, W] {
  sub up = Linear[W -> H]
  sub down = Linear[H -> W]
  return x + down(relu(up(x)))
}
model M {
  input x [Batch, In] f32
  input y [Batch, V] f32
  sub pre = Linear[In -> W]
  sub post = Linear[W -> V]
  stack h [Layers] of Block
  loss mse(post(h(pre(x))), y)
}
train t for M { batch %d; steps 1; data columns(x = "x.npy", y = "y.npy"); optim sgd }
plan p for M { mesh pipe = %d
 place Layers -> pipe
 micro %d
 pipeline one_f_one_b uneven = %s }
'''


def ends(into, out, layers, stages, word, micro=8):
    open(f'{folder}/ends.shard', 'w').write(ENDS % (into, out, layers, 8 * micro, stages, micro, word))
    said, err = run(SHARDC, 'plan', 'ends.shard', '--json', cwd=folder)
    return json.loads(said.split('\n')[0]), err


def partitions(layers, stages):
    """All numbers of layers of stages in a row."""
    if stages == 1: return [(layers,)]
    return [(n, *rest) for n in range(layers + 1) for rest in partitions(layers - n, stages - 1)]


def min_max():
    """`uneven = on` against all partitions, by the computation of classes of even stages; the lost time equals the
    printed one."""
    rows = (4, 320, 7, 3), (4, 640, 9, 4), (192, 64, 7, 3), (160, 480, 11, 3), (4, 64, 5, 2)
    for into, out, layers, stages in rows:
        two, three = [[c['flop_per_step'] for c in ends(into, out, 3 * n, 3, 'off')[0]['classes']] for n in (2, 3)]
        each = three[1] - two[1]
        beside = [two[0] - two[1]] + [0] * (stages - 2) + [two[2] - two[1]]
        time = lambda p: max(n * each + b for n, b in zip(p, beside))
        rooms = [p for p in ([max(0, min(n, layers - s * n)) for s in range(stages)] for n in range(1, layers + 1))
                 if sum(p) == layers and p[-2]]
        said = ends(into, out, layers, stages, 'on')[0]
        taken = [n for c in said['classes'] for n in c['layers'] * (stages - 2 if c['stages'] == 'middle' else 1)]
        taken = taken if len(taken) == stages else [c for k in said['classes'] for c in k['layers']]
        check(taken in rooms and time(taken) <= 1.02 * min(map(time, rooms)), f'{taken} of {rooms}')
        least = min(map(time, partitions(layers, stages)))
        told = said['stage_flop']
        check(abs(told['slowest'] - time(taken)) < 0.03 * time(taken), f'{told}, {time(taken)}')
        check(abs(told['least'] - least) < 0.03 * least and told['least'] <= told['slowest'], f'{told}, {least}')
        check(told['slowest'] <= told['least'] + 1.03 * max(beside[0], 0) + 1, f'{told}, {beside}')


def by_memory():
    """`uneven = memory` takes the room whose largest class is the smallest, of all that there are."""
    chosen = []
    for into, out, layers, stages in ((4, 64, 7, 3), (4, 512, 6, 2), (512, 64, 8, 3), (4, 128, 7, 2)):
        said, err = ends(into, out, layers, stages, 'memory', 512)
        told = [(int(n), float(b) * 1024 ** ['B', 'KiB', 'MiB'].index(u)) for n, b, u in
                re.findall(r'= (\d+), the last stage has the rest: ([\d.]+) (\w+)', err)]
        n = int(re.search(r'(\d+) layers on a stage were chosen', err).group(1))
        check(told[0][0] == -(-layers // stages) and n == min(told, key=lambda t: t[1])[0], err)
        most = max(c['bytes']['total'] for c in said['classes'])
        check(abs(most - dict(told)[n]) < 0.01 * most and said['classes'][0]['layers'] == [n], f'{most}: {err}')
        chosen.append(n - told[0][0])
    check(any(chosen) and not all(chosen), f'{chosen}')


def auto():
    """`pipeline auto` takes the shortest step that fits, and prints all schedules that it tried: by its forecast, where
    the machine has one, else by its table."""
    def chosen(memory, *sets, node='', link=''):
        text = MODEL.replace('auto for Small {', 'auto for Small { on box nodes = 3;')
        open(f'{folder}/auto.shard', 'w').write(
            f'{text}machine box {{ node {node} memory = {memory} reserve = 0KiB {link} }}\n')
        out, err = run(SHARDC, 'plan', 'auto.shard', '--plan', 'auto', '--json',
                       *(x for s in sets for x in ('--set', s)), cwd=folder)
        return json.loads(out.split('\n')[0]), err

    plan, err = chosen('1GiB')
    check('`pipeline zero_bubble` was chosen' in err or '`pipeline interleaved chunks = 2` was chosen' in err, err)
    step = {k: float(v) for k, v in re.findall(r'= (\w+)(?: (?:chunks|memory) = 2)?: ([\d.e+]+) FLOP', err)}
    taken = re.search(r'`pipeline (\w+)', err).group(1)
    check(set(step) == {'one_f_one_b', 'zero_bubble', 'interleaved'} and step[taken] <= 1.01 * min(step.values()), err)
    check(chosen('1GiB', f'plan.pipeline={taken}')[0]['classes'] == plan['classes'], 'it is the plan of that schedule')
    check('`pipeline one_f_one_b` was chosen' in chosen('1GiB', 'plan.micro=12')[1], 'one micro-batch')
    least = max(c['bytes']['total'] for c in chosen('1GiB', 'plan.pipeline=one_f_one_b')[0]['classes'])
    check('`pipeline one_f_one_b` was chosen' in chosen(f'{-(-least // 1024)}KiB')[1], 'what fits')
    words, taken = {}, []
    for rate in '1MB/s', '100GB/s':  # chunks send more often; over fast links their bubble counts
        timed = dict(node='gpus = 1 arch = sm_80', link=f'\n  link inter = {rate} latency = 1us')
        plan, err = chosen('1GiB', **timed)
        taken.append(re.search(r'`pipeline (.*)` was chosen', err).group(1))
        step = {k: float(v) for k, v in re.findall(r'= ([a-z].*): ([\d.e+-]+) s a step by the forecast', err)}
        check(len(step) > 3 and step[taken[-1]] <= 1.01 * min(step.values()), err)
        own = chosen('1GiB', 'plan.pipeline=one_f_one_b', **timed)[0]['forecast']['seconds_per_step']
        check(abs(step['one_f_one_b'] / own - 1) < 1e-3, f'{own}: {err}')
        words[rate] = step['interleaved chunks = 2'] / step['one_f_one_b']
    check(words['1MB/s'] > 1.05 * words['100GB/s'], f'{words}: chosen {taken}')


def ends_own():
    """Embedding, head and last norm, their states and updates are of their stages alone."""
    open(f'{folder}/u.shard', 'w').write(UNTIED)
    out = run(SHARDC, 'plan', 'u.shard', '--plan', 'three', '--json', cwd=folder)[0]
    said = {c['stages']: c['bytes'] for c in json.loads(out)['classes']}
    table, layers = 256 * 16 * 4, said['middle']['weights']
    room = 256  # scalars, and what a global is rounded up to
    for stage in 'first', 'last':
        more = said[stage]['weights'] - layers, said[stage]['optimizer'] - said['middle']['optimizer']
        check(table <= more[0] < table + room and 2 * table <= more[1] < 2 * table + room, said)
    sent = {c['kind']: c for a in json.loads(out)['communication'] for c in a['collectives']}
    check(sent['all_reduce']['elements'] < 64, sent)  # numbers: no gradient goes over the stages
    run(SHARDC, 'compile', '--quick', 'u.shard', '--plan', 'one,three,four', '-o', 'model', cwd=folder)
    train(1, 'u1')
    for n in 3, 4:
        train(n, f'u{n}')
        close(losses('u1'), losses(f'u{n}'), f'untied, {n} ranks')
    train(3, 'away', '--steps', '2')
    for n, steps in (4, '3'), (1, '4'), (3, '6'): train(n, 'away', '--resume', '--steps', steps)
    close(losses('u1'), losses('away'), 'untied, from plan to plan')
    said = [start(n, 'eval', '--out', 'away', '--valid', '10%', '--threads', '1') for n in (1, 3)]
    check(len({s.split('loss')[1].split()[0] for s in said}) == 1, said)
    check(len(start(3, 'sample', '--out', 'away', '--prompt', 'a', '--tokens', '5', '--threads', '1')) > 5, 'a sample')
    err = run(SHARDC, 'compile', 'u.shard', '--plan', 'three', '--emit=c', '-o', 'x', cwd=folder, expect=2)[1]
    check('--class' in err, err)
    out = run(SHARDC, 'compile', 'u.shard', '--plan', 'three', '--emit=c', '--class', 'middle', '-o', '-',
              cwd=folder)[0]
    check('.stages = "middle"' in out and 'RT_RECEIVE' in out, 'the C of stages between')


try:
    open(f'{folder}/m.shard', 'w').write(MODEL)
    text_file(f'{folder}/text.txt')
    run(SHARDC, 'compile', '--quick', 'm.shard', '--plan', 'one,two,three,four,six', '-o', 'model', cwd=folder)
    train(1, 'r1')
    for n in 2, 3, 4, 6:
        train(n, f'r{n}')
        close(losses('r1'), losses(f'r{n}'), f'{n} ranks')
    run(SHARDC, 'compile', '--quick', 'm.shard', '--plan', 'turns', '-o', 'm_turns', cwd=folder)
    run(SHARDC, 'compile', '--quick', 'm.shard', '--plan', 'all', '-o', 'm_all', cwd=folder)
    for name in 'turns', 'all':
        run(SHARDC, 'run', f'./m_{name}', '-n', '3', '--', 'train', '--out', name, '--threads', '1', cwd=folder)
        run(SHARDC, 'run', f'./m_{name}', '-n', '3', '--', 'export', f'--resume={name}', '--out', f'x_{name}',
            cwd=folder)
    check(losses('turns') == losses('all') and len(losses('all')) == 6, 'the same bits in turn')
    for name in 'one', 'turns':  # kernels that several stages' programs share are stored once
        run(SHARDC, 'compile', 'm.shard', '--plan', name, '--target', 'sm_80', '-o', f'g_{name}', '--quick', cwd=folder)
    sizes = [os.path.getsize(f'{folder}/g_{name}') for name in ('one', 'turns')]
    check(sizes[1] < 1.6 * sizes[0], f'bytes of one program and of three: {sizes}')
    close(losses('r1'), losses('turns'), 'in turn')
    same = [open(f'{folder}/x_{name}/model.safetensors', 'rb').read() for name in ('turns', 'all')]
    check(same[0] == same[1], 'the same weights in turn')
    # sums in 16 bits: the programs of the two ends take other numbers of rounds until their buffers come again
    run(SHARDC, 'run', 'm.shard', '--plan', 'narrow', '--', 'train', '--out', 'narrow', '--threads', '1', cwd=folder)
    check(max(abs(a - b) for a, b in zip(losses('r1'), losses('narrow'))) < 0.01, losses('narrow'))
    for micro, parts in (2, 6), (3, 4), (4, 3):
        out = [run(SHARDC, 'plan', 'm.shard', '--plan', p, '--set', f'plan.micro={micro}', '--json', cwd=folder)[0]
               for p in ('turns', 'all', 'zb')]
        a, b, c = [json.loads(o.split('\n')[0]) for o in out]
        for stage, (x, y) in enumerate(zip(a['classes'], b['classes'])):   # min(3 - stage, parts) of them
            saved = x['bytes']['saved'], y['bytes']['saved']
            check(saved[0] * parts == saved[1] * min(3 - stage, parts), f'{stage} keeps of {parts} parts: {saved}')
        check(abs(a['bubble'] - b['bubble']) < 1e-3, 'the bubble of both')
        check(c['bubble'] < 0.4 * a['bubble'], f'a third of the bubble: {c["bubble"]}, {a["bubble"]}')
    text = run(SHARDC, 'dump', 'm.shard', '--plan', 'turns', '--after', 'memory', cwd=folder)[0]
    check('# stage 1: F0 F1 B0 F2 B1 F3' in text and text.count('turns = [3, 2, 1]') == 2, 'the table in the dump')
    for table, fine in ('[3, 2, 1]', True), ('[1, 2, 3]', False), ('[2, 3, 1]', False), ('[3, 3, 1]', True):
        open(f'{folder}/t.ir', 'w').write(text.replace('turns = [3, 2, 1]', f'turns = {table}'))
        err = run(SHARDC, 'dump', 't.ir', '--after', 'prove', cwd=folder, expect=0 if fine else 1)[1]
        check(fine or 'E1113' in err and 'wait for each other' in err, f'{table}: {err}')
    said = {x['stages']: x['bytes'] for x in c['classes']}  # both ends hold the tied embedding
    table = 257 * 16 * 4
    for stage in 'first', 'last':
        more = [said[stage][k] - said['middle'][k] for k in ('weights', 'optimizer')]
        check(table <= more[0] < table + 1024 and 2 * table <= more[1] < 2 * table + 2048, f'{said}')
    run(SHARDC, 'compile', '--quick', 'm.shard', '--plan', 'zb', '-o', 'm_zb', cwd=folder)
    run(SHARDC, 'run', './m_zb', '-n', '3', '--', 'train', '--out', 'zb', '--threads', '1', cwd=folder)
    close(losses('r1'), losses('zb'), 'gradients of weights behind those of inputs')
    text = run(SHARDC, 'dump', 'm.shard', '--plan', 'zb', '--after', 'memory', cwd=folder)[0]
    check('# stage 1: F0 F1 B0 F2 B1 W0' in text and text.count('turns = [3, 2, 1, 0, 1, 2]') == 3, 'its table')
    for table, said in ('3, 2, 1, 0, 1, 2', ''), ('2, 3, 1, 0, 1, 2', 'E1113'), ('3, 2, 1, 0, 1, 6', 'turns-c8'), \
            ('3, 2, 1, 0, 1, 7', 'turns-c1'), ('3, 0, 1, 0, 1, 2', 'turns-c1'), ('3, 2, 1, 0, 1', 'turns-c4'):
        open(f'{folder}/t.ir', 'w').write(text.replace('[3, 2, 1, 0, 1, 2]', f'[{table}]'))
        err = run(SHARDC, 'dump', 't.ir', '--after', 'prove', cwd=folder, expect=1 if said else 0)[1]
        check(said in err, f'{table}: {err}')
    steep()
    said = json.loads(run(SHARDC, 'plan', 'm.shard', '--plan', 'one,two,six', '--json', cwd=folder)[0])
    one, two, six = (p['bubble'] for p in said)
    check(one == 0 < six < two < 0.5, f'bubbles {one}, {two}, {six}')  # gpipe of 3 micro-batches over 3; one at a time
    train(3, 'moved', '--steps', '2')
    for n, steps in (4, '3'), (1, '4'), (6, '5'), (2, '6'): train(n, 'moved', '--resume', '--steps', steps)
    close(losses('r1'), losses('moved'), 'from plan to plan')
    said = [start(n, 'eval', '--out', 'moved', '--valid', '10%', '--threads', '1') for n in (1, 2, 4)]
    value = [float(s.split('loss')[1].split()[0].strip(':=,')) for s in said]
    check(max(value) - min(value) < 2e-5, said)
    check(start(2, 'sample', '--out', 'moved', '--prompt', '97', '--tokens', '5', '--threads', '1')[5:], 'a sample')
    chunks()
    meetings()
    over_nccl()
    on_host()
    uneven()
    summed_once()
    min_max()
    by_memory()
    auto()
    err = run(SHARDC, 'compile', 'm.shard', '--plan', 'apart', '-o', 'x', cwd=folder, expect=1)[1]
    check('E0901' in err and 'keep different values' in err, err)
    err = run(SHARDC, 'plan', 'm.shard', '--plan', 'none', cwd=folder, expect=1)[1]
    check('E0901' in err and 'keep = none' in err and '`keep = input` in its place' in err, err)
    with open(f'{folder}/m.shard') as file: kept = file.read().replace('keep = none', 'keep = input')
    with open(f'{folder}/kept.shard', 'w') as file: file.write(kept)
    run(SHARDC, 'plan', 'kept.shard', '--plan', 'none', cwd=folder)
    err = run(SHARDC, 'compile', 'm.shard', '--plan', 'words', '-o', 'x', cwd=folder, expect=1)[1]
    check('E0901' in err and 'an op outside the layers' in err, err)
    ends_own()
    print('pipelines of 2 to 6 ranks train as one')
finally:
    shutil.rmtree(folder)
