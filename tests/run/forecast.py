"""The forecast of `plan`: python3 forecast.py SHARDC

Its parts add up to the step, for plans of all kinds; it is never below the bound; twice the rate of products, memory,
launches or a link, given by the line `reached`, halves that part and no other; published rates are used and named where
the block has none; a rate that no arch has leaves no forecast, and its line is named; rates above their peaks are
refused at the word. Kernels by wgmma leave multiprocessors to messages where that makes a step faster.
"""
import json, os, re, shutil, subprocess, sys
from common import EXAMPLES, check, run, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
MODEL = '''use "gpt2"
variant S of GPT2 { Pos = 128; Vocab = 512; Embed = 256; Heads = 4; Layers = 8 }
train t for S { size Seq = 128; batch 64; steps 100; data "t.bin" format = u16; optim adamw lr = 1e-4; clip 1.0 }
machine box {
  node gpus = 4 arch = %s memory = 80GB %s
  host memory = 100GB dram = 100GB/s
  link intra = 200GB/s %s
}
plan p for S { on box nodes = 2; mesh %s
%s
  micro 4
  precision bf16
}
'''
PLANS = {'zero 2': ('data = 8', 'place Batch -> data\nzero 2 over data overlap = on'),
         'zero 3': ('data = 8', 'place Batch -> data\nzero 3 over data prefetch = 1'),
         'tensor': ('tensor = 4, data = 2', 'place Batch -> data\nplace Heads, Mlp, Vocab -> tensor else Seq'),
         'pipe': ('data = 2, pipe = 4', 'place Batch -> data\nplace Layers -> pipe\npipeline one_f_one_b'),
         'stages': ('tensor = 2, pipe = 4', 'place Heads, Mlp -> tensor\nplace Layers -> pipe\npipeline zero_bubble'),
         'host': ('data = 8', 'place Batch -> data\nzero 2 over data\noffload optimizer, grads -> host'),
         'recomputed': ('data = 8', 'place Batch -> data\nzero 1 over data\nrecompute h.* keep = input')}
ALL, INTER = 'bf16 = 300TFLOPS hbm = 2TB/s', 'inter = 50GB/s latency = 5us'


def plan(name, node=ALL, link=INTER, arch='sm_90', json_=True, target=None, workers=None, **reached):
    """Returns the JSON or the text of `plan`, stderr, and the exit status."""
    open(f'{folder}/m.shard', 'w').write(MODEL % (arch, node, link, *PLANS[name]))
    sets = [a for k, v in reached.items() for a in ('--set', f'machine.reached.{k}={v}')]
    line = [SHARDC, 'plan', 'm.shard', *sets, *['--json'][:json_], *(['--target', target] if target else []),
            *(['--workers', str(workers)] if workers else [])]
    p = subprocess.run(line, cwd=folder, capture_output=True, text=True,
                       env=dict(os.environ, SHARDC_PATH=EXAMPLES, NO_COLOR='1'))
    return json.loads(p.stdout) if json_ and p.stdout else p.stdout, p.stderr, p.returncode


def parts(forecast):
    s = forecast['seconds']
    return sum(s[part] for part in ('kernels', 'bubble', 'host', 'slowed', 'inputs', 'snapshots')) + \
        sum(s['exposed'].values())


def room():
    """Kernels by wgmma leave multiprocessors to messages in flight, where a step is then faster."""
    large = MODEL.replace('Pos = 128; Vocab = 512; Embed = 256; Heads = 4; Layers = 8',
                          'Embed = 1600; Heads = 25; Layers = 4').replace('Seq = 128; batch 64', 'Seq = 1024; batch 32')
    early = 'place Batch -> data\nzero 3 over data prefetch = 1 overlap = on'
    line = 'm.shard', '--model', 'S', '--plan', 'p', '--quiet', '--target'

    def told(lines, target, *options):
        open(f'{folder}/m.shard', 'w').write((large % ('sm_90a', ALL, INTER, 'data = 8', lines)).replace('micro 4', ''))
        return json.loads(run(SHARDC, 'plan', *line, target, *options, '--json', cwd=folder)[0])
    one, = (plan := told(early, 'sm_90a'))['spare']
    check(one['seconds'] < 0.98 * one['seconds_if_none'] and one['seconds'] <= one['seconds_if_all'], one)
    check(one['kernels'] and all(k['multiprocessors'] == 16 for k in one['kernels']), one)
    check(' of 132 multiprocessors' in one['decision'] and abs(parts(plan['forecast']) /
          plan['forecast']['seconds_per_step'] - 1) < 1e-3, plan['forecast'])
    for lines, target in (early, 'sm_90'), ('place Batch -> data\nzero 3 over data', 'sm_90a'):
        check('spare' not in told(lines, target), f'{target}: {lines}')
    told(early, 'sm_90a')
    text = run(SHARDC, 'dump', *line, 'sm_90a', '--after', 'clean', cwd=folder)[0]
    for channels, leaves in (16, True), (0, False), (132, False):
        open(f'{folder}/some.ir', 'w').write(text.replace(' channels = 16,', f' channels = {channels},'))
        kernels = run(SHARDC, 'dump', 'some.ir', '--after', 'spare', cwd=folder)[0]
        check(('spare = 16' in kernels) == leaves and (' spare = ' in kernels) == leaves, f'{channels} channels')


def background(pcie):
    """A plan of one GPU that copies its inputs and its snapshots over a link of that rate."""
    text = (MODEL % ('sm_80', 'f32 = 20TFLOPS hbm = 2TB/s', '', 'data = 1', 'place Batch -> data')).replace(
        'clip 1.0', 'clip 1.0; save every = 20 async = on').replace(' nodes = 2; ', '; ').replace('precision bf16', '')
    open(f'{folder}/m.shard', 'w').write(text)
    p = subprocess.run([SHARDC, 'plan', 'm.shard', '--json', '--set', f'machine.host.pcie={pcie}'], cwd=folder,
                       capture_output=True, text=True, env=dict(os.environ, SHARDC_PATH=EXAMPLES, NO_COLOR='1'))
    check(p.returncode == 0, p.stderr)
    return json.loads(p.stdout)


try:
    for name in PLANS:
        j = plan(name)[0]
        f = j['forecast']
        check(abs(parts(f) / f['seconds_per_step'] - 1) < 1e-3, f'{name}: parts {parts(f)} of {f}')
        s = f['seconds']
        check(abs(s['products'] + s['attention'] + s['memory'] + s['launches'] - s['kernels']) < 1e-3 * s['kernels'], s)
        check(f['seconds_per_step'] > j.get('seconds_per_step', 0), f'{name}: faster than the bound')
        check(abs(f['run']['seconds'] / f['seconds_per_step'] - 100) < 0.1, f'{name}: {f["run"]}')
        check(f['run']['steps'] == 100, f'{name}: {f["run"]}')
        check(abs(f['tokens_per_second'] * f['seconds_per_step'] / (64 * 128) - 1) < 1e-2, f'{name}: {f}')
        check(f['published'] == [dict(line='host pcie', value=64e9), dict(line='host latency', value=0)],
              str(f['published']))
        check((s['bubble'] > 0) == (name in ('pipe', 'stages')), f'{name}: bubble {s["bubble"]}')
        check((j['waited_flop_per_step'] > 0) == (name in ('pipe', 'stages')), f'{name}: {j}')
        seconds = j['memory_bytes_per_step'] / 2e12  # at `hbm`, of a plan without stages and host
        check(not name.startswith('zero') or abs(seconds / j['seconds']['memory'] - 1) < 1e-2, f'{name}: {seconds}')
        check(j['host_bytes'] > 0, f'{name}: {j}')
    # inputs are hidden by the step until their copy takes longer; snapshots are always waited for
    for pcie in '10GB/s', '0.1MB/s':
        j, pcie, slow = background(pcie), float(pcie[:-4]) * (1e9 if 'G' in pcie else 1e6), 'M' in pcie
        ahead, snapshot = j['classes'][0]['host_pinned']['ahead'], j['classes'][0]['host']['snapshot']
        s, step = j['seconds'], max(j['seconds']['compute'], j['seconds']['memory'])
        near = lambda have, want: check(ahead and snapshot and abs(have / want - 1) < 1e-3, f'{have}, not {want}: {s}')
        near(s['send_inputs'], ahead / pcie)
        near(s['snapshot'], snapshot / pcie)
        near(s['snapshots'], s['snapshot'] / 20)
        near(j['seconds_per_step'], max(step, s['send_inputs']) + s['snapshots'])
        check((s['inputs'] > 0.5 * ahead / pcie) == slow, f'inputs at {pcie} bytes per second: {s}')
    room()
    # a rate counts where it should, and nowhere else
    slow, fast = (plan('zero 2', products=f'{n}TFLOPS', attention='5TFLOPS', memory=f'{n}TB/s', launch=f'{4 // n}us',
                       inter=f'{n}GB/s')[0]['forecast']['seconds'] for n in (1, 2))
    for part in 'products', 'memory', 'launches':
        check(abs(slow[part] / fast[part] - 2) < 1e-3, f'{part}: {slow[part]}, {fast[part]}')
    check(slow['attention'] == fast['attention'], f'attention {slow} {fast}')
    check(1.5 < slow['over']['data'] / fast['over']['data'] <= 2, f'data {slow["over"]} {fast["over"]}')
    said = plan('zero 2', json_=False, products='10TFLOPS', launch='2us')[0]
    check('\n  machine block, measured, error about 10 %: products, launches\n' in said, said)
    # published rates, and what nobody publishes
    for name in 'zero 2', 'host':
        said, _, status = plan(name, node='', json_=False)
        check('published rates in place of missing lines: node bf16 = 989 TFLOP/s, node hbm = 3350 GB/s' in said
              and 'host pcie = 64 GB/s, host latency = 0 us\n' in said and not status, said)
    said = plan('zero 2', link='', json_=False)[0]
    check('\nno forecast: the machine block gives no `link inter`\n' in said and '\nforecast' not in said, said)
    check(plan('zero 2', link='')[0]['forecast'] == dict(lacks='link inter'), 'lacks')
    # a measured rate needs no peak
    both = [plan('zero 2', link=link, inter='30GB/s')[0]['forecast'] for link in ('inter = 50GB/s', '')]
    check(both[0]['seconds_per_step'] == both[1]['seconds_per_step'] and both[0]['reached'] == both[1]['reached'],
          f'{both}')
    said = plan('zero 2', node='hbm = 900GB/s', arch='sm_70', json_=False)[0]
    check('no forecast: the machine block gives no `node bf16`' in said, said)          # a V100 has no such products
    # each word of the block left out: the forecast stays, or `plan` names the word and the value it took, or no value
    node, host, link = ALL + ' disk = 2GB/s', 'dram = 100GB/s pcie = 20GB/s latency = 2us', INTER + ' intra = 200GB/s'
    whole = MODEL.replace('dram = 100GB/s', '%s').replace('intra = 200GB/s %s', '%s')
    published = {'node bf16': 989.4e12, 'node hbm': 3.35e12, 'link intra': 450e9, 'host pcie': 64e9, 'host latency': 0,
                 'link latency': 15e-6}
    used = {'tensor': set(published) | {'link inter'}, 'host': set(published) | {'link inter', 'host dram'}}
    for name in used:
        def without(line, word=''):
            texts = [re.sub(rf'\b{word} = \S+ ?', '', text) if at == line and word else text
                     for at, text in zip(('node', 'host', 'link'), (node, host, link))]
            open(f'{folder}/m.shard', 'w').write(whole % ('sm_90', *texts, *PLANS[name]))
            return json.loads(run(SHARDC, 'plan', 'm.shard', '--json', cwd=folder)[0])['forecast']
        full = without('')
        for line, text in ('node', node), ('host', host), ('link', link):
            for word in re.findall(r'(\w+) =', text):
                f, both = without(line, word), f'{line} {word}'
                want = full if both not in used[name] else dict(lacks=both) if both not in published else \
                    f | dict(published=[dict(line=both, value=published[both])])
                check(f == want, f'{name} without `{both}`: {f}, not {want}')
    # --target: another set of kernels for the machine, or programs that it cannot run
    one, other, alien = (plan('zero 2', target=t)[0].get('forecast') for t in ('sm_90', 'sm_90a', 'x86_64_v3'))
    check(other['arch'] == 'sm_90a' and other['seconds']['products'] < one['seconds']['products'], f'{one} {other}')
    check(plan('zero 2', target='sm_80')[0]['forecast']['arch'] == 'sm_90' and not alien, f'{alien}')
    # sm_70, a program of its time: an offloaded step in turn, a PCIe link that two GPUs share
    MODEL = MODEL.replace('precision bf16', 'precision f16')
    v100 = dict(node='f16 = 125TFLOPS hbm = 900GB/s', arch='sm_70')
    PLANS['alone'] = ('data = 1', 'offload optimizer, grads -> host')
    PLANS['pair'] = ('data = 2', 'place Batch -> data\nzero 2 over data\noffload optimizer, grads -> host')
    for name, ranks, link in ('alone', 1, 12e9), ('pair', 2, 6e9):
        j = plan(name, **v100)[0]
        moved = j['classes'][0]['moved_per_step']
        parts_of_step, host = 64 // 4 // ranks, j['forecast']['seconds']['host']
        one = 2 * moved['down'] / link                               # each micro-batch down and up, the last one in f32
        rest = host - one - moved['down'] / parts_of_step * 6 / (100e9 / ranks)
        most = 36 * moved['down'] / 2 / parts_of_step / (100e9 / ranks) + moved['up'] / link
        check(moved['up'] / link <= rest * 1.001 and rest < most, f'{name}: {host} s: copies {one}, update {rest}')
    # ranks that share cores: kernels have the same share of the node, messages half, and a stage is faster while
    # others wait; never below the bound
    MODEL = MODEL.replace('gpus = 4 arch', 'arch').replace('  host memory = 100GB dram = 100GB/s\n', '')
    cpus = dict(node='f16 = 1TFLOPS hbm = 100GB/s cores = %d', arch='x86_64_v3', link='')
    PLANS['four'] = ('data = 4', 'place Batch -> data\nzero 0')
    PLANS['turns'] = ('pipe = 4', 'place Layers -> pipe\npipeline one_f_one_b')
    MODEL = MODEL.replace(' nodes = 2', '')
    for name in 'four', 'turns':
        own, shared = (plan(name, **cpus | dict(node=cpus['node'] % cores), balance=1)[0] for cores in (4, 2))
        for j in own, shared:
            check(j['seconds_per_step'] <= j['forecast']['seconds_per_step'], f'{name}: faster than the bound')
        own, shared = own['forecast'], shared['forecast']
        check('ranks_on_a_core' not in json.dumps(own) or own['ranks_on_a_core'] == 1, own)
        check(shared['ranks_on_a_core'] == 2 and own['seconds']['kernels'] == shared['seconds']['kernels'], shared)
        if name == 'four':
            check(abs(shared['seconds']['over']['data'] / own['seconds']['over']['data'] - 2) < 0.1, f'{own} {shared}')
        else: check(shared['seconds']['bubble'] < 0.5 * own['seconds']['bubble'], f'{own} {shared}')
    # .. and messages take the time of the processor that carries them, whatever kernels wait for them on their own
    rates = dict(products='0.5TFLOPS', intra='1GB/s')
    waits = [plan('four', **cpus | dict(node=cpus['node'] % cores, link=f'per_core = {carried}GB/s'), **rates)[0]
             ['forecast']['seconds']['over']['data'] for cores, carried in ((4, 4), (2, 4), (2, 0.5))]
    check(0.45 < waits[1] / waits[0] < 0.6 and 1.9 < waits[2] / waits[0] < 2.1, f'messages on shared cores: {waits}')
    # peaks that the block leaves out are those of its cores, or of those for which the program is cut
    told = [plan('four', **cpus | dict(node=node, workers=8))[0] for node in ('cores = 1', 'cores = 16', '')]
    peaks = [{p['line']: p['value'] for p in one['forecast']['published']}['node f16'] for one in told]
    check(peaks[1] == 16 * peaks[0] == 2 * peaks[2], f'peaks of 1, 16 and 8 cores: {peaks}')
    # threads of a rank (`joined`), and ranks (`balance`), wait for the slowest; one thread waits for no other
    PLANS['single'] = ('data = 1', '')
    rates = dict(products='0.5TFLOPS', attention='0.1TFLOPS', memory='50GB/s', launch='1us')
    for name, cores, workers, *shares in ('single', 2, 2, 0.5, 1), ('single', 1, 2, 1, 1), ('single', 2, 1, 1, 1), \
            ('four', 4, 4, 1, 0.5), ('four', 8, 8, 0.5, 0.5), ('four', 2, 2, 1, 1), ('turns', 4, 4, 1, 1):
        for word, share in zip(('joined', 'balance'), shares):
            seconds = [plan(name, **cpus | dict(node=cpus['node'] % cores, workers=workers),
                            **rates | dict(joined=1, balance=1) | {word: value})[0]['forecast']['seconds']
                       for value in (1, 0.5)]
            for part in 'products', 'attention', 'memory':
                check(abs(seconds[0][part] / seconds[1][part] - share) < 1e-3, f'{name}, {word}: {part} {seconds}')
    # .. a stage may be on the slow rank, and is on it where there is a pipeline for each; nodes wait for each other
    PLANS['pairs'] = ('pipe = 2', 'place Layers -> pipe\npipeline one_f_one_b')
    PLANS['twice'] = ('pipe = 2, data = 2', 'place Layers -> pipe\nplace Batch -> data\npipeline one_f_one_b')
    slower = {}
    for name in 'pairs', 'twice':
        slow, even = (plan(name, **cpus | dict(node=cpus['node'] % 4), **rates | dict(joined=1, balance=value))[0]
                      ['forecast']['seconds'] for value in (0.8, 1))
        own = slow['kernels']
        check(own == even['kernels'] and even['bubble'] < slow['bubble'] < even['bubble'] + own / 3, f'{slow} {even}')
        slower[name] = (own + slow['bubble']) / (own + even['bubble'])
    check(1 < slower['pairs'] < slower['twice'] <= 1.25 * (1 + 1e-9), f'{slower}')
    one_node, MODEL = MODEL, MODEL.replace('on box', 'on box nodes = 4')
    slow, even = (plan('four', **cpus | dict(node=cpus['node'] % 1, link=INTER), **rates | dict(balance=value))[0]
                  ['forecast']['seconds'] for value in (0.8, 1))
    MODEL = one_node
    check(abs(slow['products'] * 0.8 / even['products'] - 1) < 1e-3, f'{slow} {even}')
    # .. and the last of ranks that share cores comes a turn later, once for each wait of all
    own, shared = (plan('four', **cpus | dict(node=cpus['node'] % cores), balance=1)[0]['forecast']['seconds']
                   for cores in (4, 2))
    check(own['slowed'] == 0 and 0 < shared['slowed'] < 0.01, f'{own} {shared}')
    _, said, status = plan('four', json_=False, **cpus | dict(node='cores = 4 gpus = 4', arch='sm_90'))
    check(status == 1 and 'E0602' in said and '`cores` of a node with GPUs' in said, said)
    MODEL = MODEL.replace('node arch', 'node gpus = 4 arch').replace('precision f16', 'precision bf16').replace(
        'link intra', 'host memory = 100GB dram = 100GB/s\n  link intra').replace('on box', 'on box nodes = 2')
    # refused at the word
    for word, value in ('memory', '3TB/s'), ('intra', '201GB/s'), ('inter', '51GB/s'), ('dram', '101GB/s'), \
            ('launch', '0us'), ('products', '0TFLOPS'), ('joined', '0'), ('joined', '50%'), ('balance', '0'), \
            ('balance', '50%'):
        _, said, status = plan('zero 2', json_=False, **{word: value})
        check(status == 1 and 'E0602' in said and f'machine.reached.{word}={value}' in said, f'{word}: {said}')
    print(f'{len(PLANS)} plans')
finally:
    shutil.rmtree(folder)
