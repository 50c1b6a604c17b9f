"""The JSON that shardc writes: check --json and --message-format=json, against the plain messages; plan --json of one
plan and of several. json_output.py SHARDC ROOT"""
import json, os, re, subprocess, sys, tempfile

SHARDC, ROOT = sys.argv[1], os.path.abspath(sys.argv[2])
CASES = sorted(f'{ROOT}/tests/frontend/cases/{f}' for f in os.listdir(f'{ROOT}/tests/frontend/cases')
               if f.endswith('.shard'))
KEYS = ['code', 'file', 'line', 'column', 'message', 'help']
wrong = 0


def run(*args): return subprocess.run([SHARDC, *args], capture_output=True, text=True)


def expect(good, what):
    global wrong
    if not good: print(what); wrong += 1


def plain(path):
    """(file, line, column, code, message) of every message, from the short format."""
    found = re.findall(r'^(?:(.*?):(\d+):(\d+): )?\w+\[(\w+)\]: (.*)$',
                       run('check', '--message-format=short', path).stderr, re.M)
    return [(f, int(l or 0), int(c or 0), code, m) for f, l, c, code, m in found]


def listed(path, status=None):
    r = run('check', '--json', path)
    expect(r.stderr == '', f'{path}: --json says something on stderr: {r.stderr}')
    expect(status is None or r.returncode == status, f'{path}: status {r.returncode}, not {status}')
    o = json.loads(r.stdout)
    expect(list(o) == ['schema', 'models', 'plans', 'layouts', 'diagnostics'] and o['schema'] == 1,
           f'{path}: {list(o)}')
    expect(all(list(d) == KEYS for d in o['diagnostics']), f'{path}: keys')
    return o


for path in CASES:
    o = listed(path)
    got = [(d['file'], d['line'], d['column'], d['code'], d['message']) for d in o['diagnostics']]
    expect(got == plain(path), f'{path}: {got} is not {plain(path)}')
    lines = run('check', '--message-format=json', path).stderr.splitlines()
    expect([json.loads(l)['code'] for l in lines] == [g[3] for g in got], f'{path}: JSON lines')

o = listed(f'{ROOT}/examples/gpt2.shard', 0)
names = [(m['name'], m['parameters']) for m in o['models']]
expect(names == [('GPT2', 124439808), ('GPT2_XL', 1557611200)],
       o['models'])
both = json.loads(run('check', '--json', f'{ROOT}/examples/gpt2.shard', f'{ROOT}/examples/vit.shard').stdout)
expect([m['name'] for m in both['models']] == ['GPT2', 'GPT2_XL', 'ViT'], both['models'])
expect(listed('absent.shard', 4)['diagnostics'][0]['code'] == 'E0001', 'absent file')

PLANS = 'use "tiny"\n' + ''.join(f'plan {n} for Tiny {{\n  mesh data = {ranks}\n  place Batch -> data\n}}\n'
                                 for n, ranks in (('a', 2), ('b', 4), ('bad', 3)))
with tempfile.TemporaryDirectory() as d:
    with open(f'{d}/p.shard', 'w') as f: f.write(PLANS)
    for names, shown in (None, ['a', 'b']), ('a,b', ['a', 'b']), ('b,bad,a', ['b', 'a']), ('bad,bad', []), ('a', None):
        r = run('plan', f'{d}/p.shard', '--json', *(['--plan', names] if names else []))
        o = json.loads(r.stdout)
        got = [p['plan'] for p in o] if isinstance(o, list) else None
        expect(got == shown and r.returncode == (names not in ('a', 'a,b')), f'{names}: {r}')
    expect(o['plan'] == 'a', f'one plan: {o["plan"]}')
    with open(f'{d}/odd.shard', 'wb') as f: f.write(b'use "\xff\xc3\xa9\\"\nconst a = $\n')
    listed(f'{d}/odd.shard', 1)
    for args in (['compile', '--emit=ir'], ['dump'], ['check'], ['fmt']):
        r = run(*args, '--message-format=json', f'{d}/odd.shard')
        expect(r.returncode == 1 and r.stderr and all(json.loads(l)['code'] for l in r.stderr.splitlines()),
               f'{args}: {r.stderr}')
sys.exit(wrong > 0)
