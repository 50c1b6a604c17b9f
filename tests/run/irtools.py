"""The IR as a place to work: mangled dumps, modules by hand, `opt`, and the forms of `dump`.

    python3 irtools.py SHARDC EXAMPLES
"""
import json, os, random, re, shutil, signal, subprocess, sys, time
from common import check, read, run, workdir

shardc, examples = sys.argv[1], sys.argv[2]
d = workdir()
tiny = f'{examples}/tiny.shard'
run(shardc, 'compile', tiny, '--emit=ir', '-o', f'{d}/last.ir', '--dump-ir', f'{d}/ir')
names = sorted(os.listdir(f'{d}/ir'))
texts = {n[3:-3]: read(f'{d}/ir/{n}').decode() for n in names}


# ---- heads, and white space ----

def mangle(text, rng):
    """More and less white space, comments, empty lines: nothing that the reader may look at."""
    out, lines = [], text.split('\n')
    for line in lines:
        if line.startswith('#'): continue
        parts = re.split(r'("(?:[^"\\]|\\.)*")', line)
        for i in range(0, len(parts), 2):
            parts[i] = re.sub(r' +', lambda m: rng.choice([' ', '  ', '\t', ' \t ']), parts[i])
            parts[i] = re.sub(r'([,:={}()\[\]])', lambda m: rng.choice(['', ' ', '\t']) + m[1] + rng.choice(['', ' ']),
                              parts[i])
        line = ''.join(parts)
        if rng.random() < .3: line += rng.choice(['  # a comment', ' # "quoted', '# %0 = add', ' ', '\t'])
        out += [rng.choice(['', '# {', '  '])] if rng.random() < .1 else []
        out.append(rng.choice(['', ' ', '\t']) + line.strip('\n'))
    return '\n'.join(out)


rng = random.Random(7)
for name, text in texts.items():
    head = text.split('\n')[1]
    check(re.match(r'# step: \S+ flop.*, \S+ bytes moved.*, peak (about )?\d+ bytes.*, \d+ kernels', head), head)
    for i in range(2):
        open(f'{d}/mangled.ir', 'w').write(mangle(text, rng))
        printed, _ = run(shardc, 'dump', f'{d}/mangled.ir')
        check(printed == text, f'{name}: white space changed the module')
check('%)' in texts['grad'].split('\n')[1], 'no change against the dump before')

# the head, `info` and JSON agree
run(shardc, 'compile', tiny, '-o', f'{d}/tiny', '-q', '--quick')
info = json.loads(run(f'{d}/tiny', 'info', '--json')[0])
step = next(e for e in info['entries'] if e['name'] == 'step')
m = json.loads(run(shardc, 'dump', f'{d}/last.ir', '--format=json')[0])
check((m['flop'], m['bytes'], m['peak']) == (step['flop'], step['bytes'], step['work_bytes']), 'head and info differ')

# ---- by hand ----

open(f'{d}/hand.ir', 'w').write('''shardc-ir 1
param @w : f32[A:4]
output @loss : f32[]
entry @step {
  %0 = load @w : f32[A:4]
  %1 = mul %0, %0 : f32[A:4]
  %2 = sum[A] %1 : f32[]
  store @loss, %2
}
''')
run(shardc, 'compile', f'{d}/hand.ir', '-o', f'{d}/hand', '-q', '--quick')
check(os.access(f'{d}/hand', os.X_OK), 'nothing was made of ten lines')
open(f'{d}/renamed.ir', 'w').write(texts['fuse'].replace('[Batch:8, Seq:128, Embed:96]',
                                                         '[Batch:8, Time:128, Embed:96]', 1))
_, said = run(shardc, 'compile', f'{d}/renamed.ir', '-o', f'{d}/no', expect=1)
check(re.search(r'renamed\.ir:\d+:\d+', said) and 'error[E' in said, 'no place in: ' + said)

# settings of a dump are checked as those of a block are
for pattern, value in [('train.batch = "', '0'), ('train.optim.lr = "', 'abc'), ('train.optim.lr = "', '-3'),
                       ('train.optim = "', 'foo'), ('train.save.async = "', 'perhaps'),
                       ('train.optim.betas = "', '0.9'), ('train.seed = "', '-1'), ('train.steps = "', '1e400'),
                       ('plan.precision = "', 'f33'), ('train.lr.floor = "', 'nan'), ('train.sead', ''),
                       ('whatever', '')]:
    for name in 'lower', 'grad', 'memory':
        if not value: edited = texts[name].replace('\nset train.seed', f'\nset {pattern}', 1)
        else: edited = re.sub(re.escape(pattern) + r'[^"]*', pattern + value, texts[name], count=1)
        check(edited != texts[name], f'no {pattern} after {name}')
        open(f'{d}/set.ir', 'w').write(edited)
        _, said = run(shardc, 'compile', f'{d}/set.ir', '-o', f'{d}/no', expect=1)
        check('error[E1103]: [setting-c' in said, f'{pattern}{value} after {name}: {said}')

# what a terminal obeys does not reach it: in source lines, names of files, facts
bad, obeyed = f'{d}/a\x1b[2Jb.shard', re.compile('[\x00-\x08\x0b-\x1f\x7f-\x9f]')
with open(bad, 'w', encoding='utf-8') as f:
    f.write('dims { Batch; C = 3 }\nmodel M { # \x1b[31m \x9b2J \x07\n  param "\x1b]0;x\x07" \x7f\n')
for form in 'human', 'short', 'json':
    for args in ['check', bad], ['check', f'{d}/\x1b[3Jnone.shard']:
        p = subprocess.run([shardc, *args, '--message-format', form, '--color', 'never'], capture_output=True)
        said = (p.stdout + p.stderr).decode()
        check(p.returncode and said and not obeyed.search(said), f'{form} {args}: {said!r}')

# a compiler that is told to end leaves no folder, however early
left = f'{d}/temporary'
os.mkdir(left)
for i in range(12):
    p = subprocess.Popen([shardc, 'compile', tiny, '-q', '-o', f'{d}/no'], stderr=subprocess.DEVNULL,
                         env={**os.environ, 'TMPDIR': left, 'SHARDC_CACHE_DIR': '', 'NO_COLOR': '1'})
    while not os.listdir(left) and p.poll() is None: pass
    time.sleep(i % 4 * .02)
    p.send_signal((signal.SIGTERM, signal.SIGINT, signal.SIGHUP)[i % 3])
    p.wait()
    for _ in range(3000):
        if not os.listdir(left): break
        time.sleep(.02)
    check(not os.listdir(left), 'a folder is left')

# ---- opt ----

order = [n for n in texts if n != 'lower']
for i, name in enumerate(order):
    before = f'{d}/ir/{names[i]}'
    check(run(shardc, 'opt', before, '-p', name)[0] == texts[name], f'opt -p {name} makes something else')
    check(run(shardc, 'opt', f'{d}/ir/{names[0]}', '--run-to', str(i + 1))[0] == texts[name], f'--run-to {i + 1}')
check(run(shardc, 'opt', f'{d}/ir/{names[0]}', '-p', ','.join(order))[0] == texts[order[-1]], 'all by name')
check(run(shardc, 'opt', f'{d}/ir/{names[0]}', '-p', ','.join(order), '--run-to', '0')[0] == texts['lower'], 'no pass')
_, stats = run(shardc, 'opt', f'{d}/ir/{names[0]}', '--stats', '-o', f'{d}/out.ir')
check(len(stats.strip().split('\n')) == len(order) and read(f'{d}/out.ir').decode() == texts[order[-1]], 'stats: '
      + stats)
clean = f"{d}/ir/{[x for x in names if x.endswith('-clean.ir')][0]}"
for wanted, args in [("needs a module that is `scheduled`", ['-p', 'memory']),
                     ("cannot run after `clean`", ['-p', 'grad']),
                     ("cannot run after `clean`", ['-p', 'pipeline'])]:
    check(wanted in run(shardc, 'opt', clean, *args, expect=1)[1], wanted)
dump_after = {n[3:-3]: f'{d}/ir/{n}' for n in names}
out, _ = run(shardc, 'opt', dump_after['order'], '-p', 'select{target.workers=7,target.l2=65536}')
check('workers = 7,' in out and 'l2 = 65536,' in out and out != texts['select'],
      'options of a pass')
for options in ('x=1', 'l2=x', 'workers=0'):
    run(shardc, 'opt', dump_after['order'], '-p', 'select{target.%s}' % options, expect=2)
for args in (['-p', 'select{'], ['-p', 'select{x}'], ['-p', 'select{a=b}x'], ['-p', 'select{a=b},']):
    run(shardc, 'opt', dump_after['order'], *args, expect=2)
# without a target a module meets this machine
open(f'{d}/bare.ir', 'w').write(re.sub(r'target .*\n', '', texts['clean']))
out, _ = run(shardc, 'opt', f'{d}/bare.ir', '-p', 'fuse')
check(re.search(r'^target \w+ \{.* workers = ', out, re.M), 'opt -p does not describe the machine')
for args in (['-p', 'gred'], ['--run-to', '-1'], ['--run-to', 'x'], ['--no-verify', '--verify-each']):
    run(shardc, 'opt', clean, *args, expect=2)

# ---- dump ----

listed = [l.split()[0] for l in run(shardc, 'dump', '--list')[0].strip().split('\n') if 'not built yet' not in l]
check(listed == order, f'--list: {listed}')
one, _ = run(shardc, 'dump', f'{d}/last.ir', '--func', 'step')
check(one in texts['memory'] and one.startswith('entry @step'), '--func')
run(shardc, 'dump', f'{d}/last.ir', '--func', 'stop', expect=2)
check(run(shardc, 'dump', tiny, '--diff', 'micro', 'precision')[0] == '', 'a pass that changes nothing has a diff')
run(shardc, 'dump', tiny, '--diff', 'fuse', 'micro', expect=2)
run(shardc, 'dump', tiny, '--diff', 'fuse', expect=2)


def module_lines(text): return [l for l in text.split('\n') if not l.startswith(('# ', 'after ', 'was ', 'source '))]


def patched(diff, lines):
    """What the unified diff makes of the lines."""
    out, at = [], 0
    for l in diff.split('\n')[2:-1]:
        if l.startswith('@@'):
            start = int(re.match(r'@@ -(\d+)', l)[1]) - 1
            out += lines[at:start]; at = start
        elif l[0] == '+': out.append(l[1:])
        else:
            check(lines[at] == l[1:], f'the diff has {l}, the text {lines[at]}')
            at += 1
            if l[0] == ' ': out.append(l[1:])
    return out + lines[at:]


for a, b in [('lower', 'grad'), ('inline', 'simplify'), ('order', 'memory'), ('clean', 'fuse')]:
    diff, _ = run(shardc, 'dump', f'{d}/ir/00-lower.ir', '--diff', a, b)
    check(patched(diff, module_lines(texts[a])) == module_lines(texts[b]),
          f'the diff {a} {b} does not make the second of the first')
    changed = sum(l[0] in '+-' for l in diff.split('\n')[2:-1])
    check(changed <= len(module_lines(texts[a])) + len(module_lines(texts[b])), 'diff too long')

for name in texts:
    m = json.loads(run(shardc, 'dump', f'{d}/ir/{[n for n in names if n[3:-3] == name][0]}', '--format', 'json')[0])
    check(sum(len(f['ops']) for f in m['functions']) == len(re.findall(r'^  (?!return)\S', texts[name], re.M)),
          f'json: ops after {name}')
graph, _ = run(shardc, 'dump', f'{d}/last.ir', '--format=dot')
nodes = set(re.findall(r'^    (\w+) \[shape=', graph, re.M))
edges = re.findall(r'^    (\w+) -> (\w+) \[label="[^"]*"\];$', graph, re.M)
check(edges and all(a in nodes and b in nodes for a, b in edges) and graph.count('{') == graph.count('}'), 'dot')
open(f'{d}/g.dot', 'w').write(graph)
if shutil.which('dot'): run('dot', '-Tplain', '-o', f'{d}/plain', f'{d}/g.dot')
run(shardc, 'dump', tiny, '--format', 'xml', expect=2)

# the page: all stages, whole, small, and nothing that a browser would have to fetch
run(shardc, 'dump', tiny, '--format', 'html', '-o', f'{d}/page.html')
page = read(f'{d}/page.html').decode()
data = json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)[1])
check([s['name'] for s in data['stages']] == list(texts), 'stages of the page')
for s in data['stages']:
    check([data['lines'][i] for i in s['lines']] == module_lines(texts[s['name']].rstrip('\n')),
          f'page: lines after {s["name"]}')
unchanged = [b for a, b in zip(texts, list(texts)[1:]) if module_lines(texts[a]) == module_lines(texts[b])]
check([s['name'] for s in data['stages'] if not s['changed']] == unchanged, 'page: passes that change nothing')
check(set(re.findall(r'https?://[^"\s]+',
                     re.sub(r'<script id="data".*?</script>', '', page, flags=re.S))) <= {'http://www.w3.org/2000/svg'},
      'page: not by itself')
check(data['host'].startswith('/*') and data['sources'][0]['text'] in read(tiny).decode(), 'page: host program, source')
check([k['name'] for k in data['kernels']] == re.findall(r'^kernel @(\S+?)\(', texts['memory'], re.M), 'page: kernels')
for k in data['kernels']:
    check(k['symbol'] + '_p0:' in [data['lines'][i] for i in k['lines']], f'page: assembly of {k["name"]}')
for f in data['frames']:
    # no two blocks that live at once overlap, and all are within the frame
    blocks = [b for b in f['blocks'] if b]
    check(all(0 <= b[1] and b[1] + b[2] <= f['bytes'] and b[3] <= b[4] <= f['ops'] for b in blocks),
          'page: block outside of its frame')
    for i, a in enumerate(blocks):
        for b in blocks[:i]:
            check(a[3] > b[4] or b[3] > a[4] or a[1] >= b[1] + b[2] or b[1] >= a[1] + a[2],
                  f'page: {a} and {b} overlap')

# ---- depth costs nothing ----

lines = []
for layers in (12, 48, 96):
    out, _ = run(shardc, 'dump', f'{examples}/gpt2.shard', '--model', 'GPT2_XL', '-D', f'Layers={layers}', '--set',
                 'plan.micro=1', '--after', 'memory')
    lines.append(out.count('\n'))
out, _ = run(shardc, 'dump', f'{examples}/gpt2.shard', '--model', 'GPT2_XL', '-D', 'Layers=96', '--format=html')
check(len(out) < 2e6, f'the page of 96 layers has {len(out)} bytes')
_, said = run(shardc, 'dump', f'{examples}/gpt2.shard', '--model', 'GPT2_XL', '--after', 'memory', '--timings')
times = [float(t) for t in re.findall(r'([\d.]+) ms', said)]
print(f'GPT-2 XL: {lines[1]} lines, passes {sum(times):.0f} ms')
check(len(set(lines)) == 1, f'lines of IR with 12, 48, 96 layers: {lines}')
shutil.rmtree(d)
