"""`offload auto` moves to the host only as much as does not fit: python3 offload_auto.py SHARDC

`plan` of a GPT on a machine of one GPU with less and less memory: a plan that fits stays as it is; the chosen lines fit
and are printed; the plan with these lines written out gives the same program. `auto` moves the smallest sufficient
number of layers of a stack: a step is shorter than with all of them, and one layer less does not fit. If nothing fits,
E0801 names the tier. The machine must state the figures that `auto` compares.
"""
import json, os, re, subprocess, sys
from common import EXAMPLES, check, run, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
MODEL = '''use "gpt2"
variant Big of GPT2 { Pos = 1024; Vocab = 50257; Embed = 2048; Heads = 16; Layers = 20 }
train t for Big { size Seq = 1024; batch 64; steps 10; data "none.bin" format = u16; optim adamw; clip 1.0 }
machine box {
  node gpus = 1 arch = sm_80 memory = %s %s
  host memory = %s %s
}
plan p for Big {
  on box; mesh data = 1; place Batch -> data; zero 2 over data; precision f16 master = f32
  recompute h.* keep = input
  %s
}
'''
SPEED, LINK = 'f16 = 125TFLOPS hbm = 900GB/s', 'pcie = 16GB/s latency = 10us cores = 8 dram = 60GB/s'


# the same layers, half of them in a sub
IN_SUB = MODEL.replace('variant Big of GPT2 {', '''layer Part(x: [Batch, Seq, Embed]) -> [Batch, Seq, Embed] {
  stack h [Layers] of Block
  return h(x)
}
model Two {
  input tokens, targets [Batch, Seq] of Vocab
  param wte [Vocab, Embed] ~ normal(0.02)
  sub enc = Part
  sub dec = Part
  sub ln_f = LayerNorm[Embed]
  logits = dot[Embed](ln_f(dec(enc(wte[Vocab = tokens]))), wte)
  loss cross_entropy[Vocab](logits, targets)
}
variant Big of Two {''').replace('Layers = 20', 'Layers = 10').replace('recompute h.*',
                                                                        'recompute enc.h.*, dec.h.*')


def write(lines, memory='32GiB', host='64GiB', speed=SPEED, link=LINK, model=MODEL):
    open(f'{folder}/m.shard', 'w').write(model % (memory, speed, host, link, lines))


def plan(lines, *machine, **more):
    write(lines, *machine, **more)
    p = subprocess.run([SHARDC, 'plan', 'm.shard', '--plan', 'p', '--json'], cwd=folder, capture_output=True, text=True,
                       env=dict(os.environ, SHARDC_PATH=EXAMPLES, NO_COLOR='1'))
    return json.loads(p.stdout) if p.stdout.startswith('{') else None, p.stderr


def code(lines, memory, **more):
    """The module that the passes give, without the plan's own lines."""
    write(lines, memory, **more)
    said = run(SHARDC, 'dump', 'm.shard', '--plan', 'p', '--after', 'memory', cwd=folder)[0]
    return re.sub(r'  loc\(.*\)$', '', said[said.index('\nparam '):], flags=re.M)


def fewer(line):
    """One layer less of the last range of the line; None: it has none."""
    m = re.search(r'(.*)\[(\d+)\.\.(\d+)\](.*)', line)
    if not m: return None
    return f'{m[1]}[{m[2]}..{int(m[3]) - 1}]{m[4]}' if m[2] == '0' else f'{m[1]}[{int(m[2]) + 1}..{m[3]}]{m[4]}'


def chosen(memory, **more):
    told, said = plan('micro 4; offload auto -> host', memory, **more)
    what = re.search(r'N0601\]: `offload (.*) -> host` was chosen', said)
    check(told and what, f'{memory}: {said}')
    lines = '; '.join(f'offload {l} -> host' for l in what[1].split('; ')) if what[1] != 'nothing' else ''
    written, _ = plan('micro 4; ' + lines, memory, **more)
    check(code('micro 4; ' + lines, memory, **more) == code('micro 4; offload auto -> host', memory, **more),
          f'{memory}: {lines} is another program')
    for key in 'classes', 'fits', 'seconds_per_step':
        check(written.get(key) == told.get(key), f'{memory}: {key} of {lines}: {written.get(key)}, {told.get(key)}')
    return what[1], told, said


seen, ranges = [], 0
for memory in '22GiB', '14GiB', '10GiB', '5GiB':
    what, told, said = chosen(memory)
    if not seen: check(plan('micro 4; offload auto -> host', memory) == (told, said), f'{memory}: another choice')
    c = told['classes'][0]
    seen.append(what)
    print(f'{memory}: {what}; {told["seconds_per_step"]:.4g} s, {c["host"]["total"] / 2**30:.1f} GiB on the host')
    check(told['fits'], f'{memory}: {said}')
    if not fewer(what): continue
    line = '; '.join(f'offload {l} -> host' for l in what.split('; '))
    check(not plan(f'micro 4; {fewer(line)}', memory)[0]['fits'], f'{memory}: less than {what} fits')
    whole = plan('micro 4; ' + re.sub(r'\[\d+\.\.\d+\]', '.*', line), memory)[0]['forecast']['seconds_per_step']
    print(f'  of all layers {whole:.4g} s')
    check(told['forecast']['seconds_per_step'] < whole, f'{memory}: {what}: not shorter than {whole}')
    ranges += 1
check(ranges >= 2, 'some layers of a stack')
check(seen[0] == 'nothing' and len(set(seen)) >= 3, f'{seen}')
check(chosen('12GiB', speed='', link='')[1]['fits'], 'without speeds')     # by the bytes that move
for memory, host, tier in ('2GiB', '64GiB', 'on rank 0, capacity is 2.00 GiB'), ('8GiB', '1GiB', 'on rank 0'):
    told, said = plan('micro 4; offload auto -> host', memory, host)
    check(not told['fits'] and 'E0801' in said and tier in said, f'{memory}, {host}: {said}')

what, told, said = chosen('8GiB', model=IN_SUB)
line = '; '.join(f'offload {l} -> host' for l in what.split('; '))
print(f'8GiB, in subs: {what}; {told["seconds_per_step"]:.4g} s')
check(told['fits'] and re.search(r'(enc|dec)\.h\[', what), f'in subs: {what}')
check(not plan(f'micro 4; {fewer(line)}', '8GiB', model=IN_SUB)[0]['fits'], f'in subs: less than {what} fits')

# where stages share the layers, those of as few stages as do: the first one has the embedding, and keeps the most
STAGES = MODEL.replace('mesh data = 1; place Batch -> data; zero 2', 'mesh pipe = 4, data = 2; place Layers -> pipe; '
                       'place Batch -> data; zero 1').replace('gpus = 1', 'gpus = 8').replace('50257', '512')
# by the forecast of a step; without the rates of the host that it asks for by the bytes that move
for link, best, other, size in (LINK, 'params', 'optimizer, grads', '49.\\... MiB'), \
                               ('', 'optimizer, grads', 'params', '2\\.1. GiB'):
    what, told, said = chosen('5150MiB', host='256GiB', model=STAGES, link=link)
    hosts = {c['stages']: c['host']['total'] for c in told['classes']}
    check(told['fits'] and what == f'{best} of h[0..4]' and hosts.pop('first') and not any(hosts.values()),
          f'on stages: {what}: {hosts}')
    check(re.search(rf'of h\[0..4\]: .* device, {size} host', said), f'on stages: {said}')
    print(f'5150MiB, on four stages: {what}')
    if not link: continue
    written, _ = plan(f'micro 4; offload {other} of h[0..4] -> host', '5150MiB', host='256GiB', model=STAGES)
    taken, slower = (j['forecast']['seconds_per_step'] for j in (told, written))
    check(taken < slower and f'{taken:.4g} s a step by the forecast' in said, f'on stages: {taken}, {slower}: {said}')

# of a program for processors nothing travels, whatever the machine of the plan has
plan('micro 4; offload auto -> host', '1600MiB')
near = json.loads(run(SHARDC, 'plan', 'm.shard', '--plan', 'p', '--target', 'x86_64_v3', '--json', cwd=folder,
                      expect=3)[0])
check(near['seconds_per_step'] > 0, f'for processors: {near}')

REFUSED = [('offload auto -> host', 'needs `micro`'), ('micro 4; offload auto of h.* -> host', 'takes no `of`'),
           ('micro 4; offload auto -> host; offload params of wte -> host', 'chooses what goes'),
           ('micro 4; pipeline auto; offload auto -> host', 'together with `pipeline auto`')]
for lines, words in REFUSED:
    told, said = plan(lines)
    check(not told and 'E0602' in said and words in said and 'm.shard:11:' in said, f'{lines}: {said}')
told, said = plan('micro 4; offload auto -> host', host='0GiB')
check(not told and 'E0602' in said, said)
silent = re.sub(r'  host .*\n', '', MODEL % ('8GiB', SPEED, '', '', 'micro 4; offload auto -> host'))
open(f'{folder}/m.shard', 'w').write(silent)
p = subprocess.run([SHARDC, 'plan', 'm.shard', '--plan', 'p'], cwd=folder, capture_output=True, text=True,
                   env=dict(os.environ, SHARDC_PATH=EXAMPLES, NO_COLOR='1'))
check(p.returncode == 1 and 'says its memory' in p.stderr, p.stderr)
print(f'{len(seen)} machines, {len(REFUSED) + 2} words refused')
