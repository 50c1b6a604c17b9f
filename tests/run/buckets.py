"""The bucket of `zero` that is not written follows from the machine's links: buckets.py SHARDC

`plan`, `dump` and the programs that are tried for other settings take the smallest power of two MiB of whose time at
most 5 % is latency, by the formula of docs/plans.md, which this file repeats, for several links, meshes and stages;
with its note, and less where that does not fit in memory. Without `latency` it is by that of the arch. A written value
stays, and so does the default if another size gains nothing. `plan` tells how much of the time of messages is latency:
hops of all messages. Its rows for other sizes of buckets and micro-batches equal the output for plans with these sizes.
"""
import itertools, json, os, re, subprocess, sys
from common import EXAMPLES, check, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
MiB, GPU = 1 << 20, 'gpus = 4 arch = sm_80 bf16 = 300TFLOPS hbm = 2000GB/s'
MODEL = '''use "std"
dims {{ Batch; In = 4096; Wide = 4096; Layers = 4 }}
layer B(x: [Batch, In]) -> [Batch, In] {{
  sub l = Linear[In -> Wide]
  sub o = Linear[Wide -> In]
  return x + o(gelu(l(x)))
}}
model M {{ input x, y [Batch, In]
  stack h [Layers] of B
  loss mean[*]((h(x) - y)^2) }}
variant Small of M {{ In = 64; Wide = 64; Layers = 1 }}
train t for M {{ batch 64; steps 4; data columns(x = "x.npy", y = "y.npy"); optim {optim} }}
machine box {{
  node {node}
  link intra = 200GB/s inter = {inter}GB/s{latency}
}}
plan p for M {{ on box nodes = 16
  mesh {mesh}
  place Batch -> {batch}
  {zero}
  precision bf16
  {more}
}}
'''
GIVEN = dict(node=GPU + ' memory = 80GiB', inter=100, latency=' latency = 10us', mesh='data = 32', batch='data',
             zero='zero 3 over data', more='', optim='adamw')


def shardc(*args, **given):
    open(f'{folder}/m.shard', 'w').write(MODEL.format(**dict(GIVEN, **given)))
    p = subprocess.run([SHARDC, args[0], 'm.shard', *args[1:]], cwd=folder, capture_output=True, text=True,
                       env=dict(os.environ, NO_COLOR='1'))
    check(p.returncode == 0, f'{args} {given}: exit {p.returncode}\n{p.stdout[-500:]}\n{p.stderr}')
    return p.stdout, p.stderr


def plan(*args, **given):
    out, err = shardc('plan', '--json', *args, **given)
    return json.loads(out), err


def share(bytes_, mesh, over, inter, latency):
    """Of the time of a bucket: over the axes of `zero` pieces of pieces, then sums of these over the others."""
    late = time = 0
    strides = dict(zip(mesh, itertools.accumulate([1, *mesh.values()], lambda a, b: a * b)))
    for axis in sorted(mesh, key=lambda a: a not in over):
        n, stride, times = mesh[axis], strides[axis], 1 if axis in over else 2
        crosses = 4 % (stride * n) != 0
        rate = min(inter * max(1, min(4 // stride, n)) / 4, 200e9 if 4 // stride > 1 else 1e99) if crosses else 200e9
        late += crosses * times * (n - 1) * latency
        time += times * bytes_ * (n - 1) / n / rate + crosses * times * (n - 1) * latency
        if axis in over: bytes_ /= n
    return late / time


def wanted(memory, *links):
    """Bytes, and whether they are chosen."""
    least = 25 * MiB
    if share(least, *links) <= .05: return least, False
    size = 32 * MiB
    while share(size, *links) > .05 and size * 2 <= memory / 64: size *= 2
    return (size, True) if size <= memory / 64 else (least, False)


def chosen():
    n = 0
    meshes = [dict(data=32), dict(data=64), dict(data=4, node=8), dict(data=8, node=8), dict(data=2, node=16)]
    for mesh, inter, late, memory, stage in itertools.product(meshes, (25, 200), (1, 8, 60), (4, 80), (1, 3)):
        for over in {tuple(mesh), tuple(mesh)[:1]}:
            got, said = plan(mesh=', '.join(f'{a} = {k}' for a, k in mesh.items()), batch=', '.join(reversed(mesh)),
                             inter=inter, latency=f' latency = {late}us', node=f'{GPU} memory = {memory}GiB',
                             zero=f'zero {stage} over {", ".join(over)}')
            links = mesh, over, inter * 1e9, late * 1e-6
            size, picked = wanted(memory << 30, *links)
            what = f'{mesh} over {over}, {inter} GB/s, {late} us, {memory} GiB'
            check(got['bucket']['bytes'] == size, f'{what}: {got["bucket"]}, wanted {size}')
            check(abs(got['bucket']['latency'] - share(size, *links)) < 1e-4, f'{what}: {got["bucket"]} of {size}')
            check(picked == (f'bucket = {size // MiB}MiB was chosen' in said), f'{what}: {said}')
            n += picked
    check(n > 50, f'{n} were chosen')


def stays():
    """Written values, and sizes that would gain nothing."""
    for args, given in (
            (('--set', 'plan.zero.bucket=25MiB'), {}), ((), dict(zero='zero 3 over data bucket = 25MiB')),
            ((), dict(more='offload optimizer -> host')),
            ((), dict(zero='zero 1 over data overlap = on', optim='onebit_adam freeze = 2'))):
        got, said = plan(*args, **given)
        check(got['bucket']['bytes'] == 25 * MiB and 'bucket =' not in said.replace('bucket = 25MiB', ''),
              f'{given}: {got["bucket"]} {said}')
    got, said = plan(mesh='data = 4')
    check('bucket' not in got and 'N0601' not in said, f'inside a node: {got.get("bucket")} {said}')
    small = ('--dim', 'In=64', '--dim', 'Wide=64', '--dim', 'Layers=1')
    check('N0601' not in plan(*small)[1], 'a model of one bucket')


def published():
    """Without a latency in the machine block, that of the arch decides the bucket, as it does the forecast."""
    for mesh in 'data = 32', 'data = 4, node = 8':
        given = dict(mesh=mesh, batch=', '.join(re.findall('[a-z]+', mesh)))
        (silent, said), (written, _) = plan(latency='', **given), plan(latency=' latency = 15us', **given)
        check(silent['bucket'] == written['bucket'] and 'bucket = ' in said, f'{silent["bucket"]} {written["bucket"]}')
        rates = {rate['line']: rate for rate in silent['forecast']['published']}
        check('link latency' in rates and '= 15 us' in shardc('plan', latency='', **given)[0], f'{rates}')
        check(silent['forecast']['seconds_per_step'] == written['forecast']['seconds_per_step'], 'two forecasts')


def fits():
    """A size with which the program does not fit is reduced until it does."""
    def wide(*more):
        return subprocess.run([SHARDC, 'plan', f'{EXAMPLES}/deepseek_v3.shard', '--plan', 'wide', *more], text=True,
                              env=dict(os.environ, NO_COLOR='1'), capture_output=True)
    chosen = wide()
    size = re.search(r'bucket = (\d+)MiB was chosen', chosen.stderr)
    why = 'the plan needs more memory than a rank has'
    check(chosen.returncode == 0 and size and why in chosen.stderr, chosen.stderr)
    large = wide('--set', f'plan.zero.bucket={int(size[1]) * 4}MiB')
    check(large.returncode == 3 and 'E0801' in large.stderr, f'{size[1]} x 4: {large.stderr}')


def everywhere():
    """One size in a plan, in its dump, which compiles by itself, and without a line `zero`."""
    size = wanted(80 << 30, dict(data=32), ('data',), 100e9, 1e-5)[0]
    dump = shardc('dump', '--plan', 'p', '--after', 'inline')[0]
    check(f'set plan.zero.bucket = "{size}"' in dump, 'the dump has it')
    check('set made.zero.bucket = "chosen: latency is ' in dump, 'and says how it was chosen, as `info` does')
    check(plan(zero='')[0]['bucket']['bytes'] == size, 'no line `zero`')
    whole = plan()[0]
    check(whole['seconds_per_step'] < .9 * plan('--set', 'plan.zero.bucket=25MiB')[0]['seconds_per_step'], 'faster')


def latency():
    """Of the messages' time: n - 1 hops of every one, twice as many of all-reduces."""
    for more in '', ' overlap = on prefetch = 1':
        got = plan(zero='zero 3 over data' + more)[0]
        calls = {c['kind']: c['calls'] for c in got['communication'][0]['collectives']}
        hops = sum(31 * (1 + (kind == 'all_reduce')) * n for kind, n in calls.items())
        late = got['seconds']['latency']['data']
        check(abs(late / (hops * 1e-5) - 1) < 1e-3, f'{late} of {calls}')
        text = shardc('plan', zero='zero 3 over data' + more)[0]
        line = rf'\(between nodes, latency {late:.3g} s{" of both" if more else ""}\)'
        check(re.search(line, text) and re.search(r'(?m)^bucket \d+\.00 [MG]iB: latency \S+ % of', text), text)
    check('latency 0' not in shardc('plan', latency='')[0], 'no latency')


def alternatives():
    """Rows of `micro` and `bucket` are what plans written so say."""
    rows = plan(more='micro 1')[0]['alternatives']
    for row in rows:
        zero = f'zero 3 over data bucket = {row["value"]}' if row['setting'] == 'bucket' else 'zero 3 over data'
        size = plan()[0]['bucket']['bytes']
        other = plan('--set', f'plan.micro={row["value"]}' if row['setting'] == 'micro' else 'plan.micro=1',
                     '--set', f'plan.zero.bucket={row["value"] if row["setting"] == "bucket" else size}')[0]
        check(abs(other['seconds_per_step'] / row['seconds'] - 1) < 1e-4, f'{row}: {other["seconds_per_step"]}')
        check(abs(other['forecast']['seconds_per_step'] / row['forecast'] - 1) < 1e-4, f'{row}: {other["forecast"]}')
        check(other['classes'][0]['bytes']['total'] == row['total'], f'{row}: {other["classes"][0]["bytes"]}')
    taken = [(r['setting'], r['value']) for r in rows if r['taken']]
    check(taken == [('micro', 1), ('bucket', size)] and len(rows) >= 5, f'{rows}')
    text = shardc('plan', more='micro 1')[0]
    check(re.search(r'(?m)^  micro  = 1 +\(chosen\) .* s$', text) and '  micro  = 2 ' in text, text)
    small = plan('--set', 'plan.zero.bucket=25MiB')[0]['alternatives']
    check(size in [r['value'] for r in small], f'what suits the links is told: {small}')
    check('alternatives' not in plan(inter=100, node='gpus = 4 arch = sm_80 memory = 80GiB')[0], 'no clock')


try:
    alternatives()
    chosen()
    stays()
    published()
    fits()
    everywhere()
    latency()
finally:
    subprocess.run(['rm', '-rf', folder])
print('buckets follow from the links')
