"""Every plan of every example: example_plans.py SHARDC EXAMPLES [full]

A plan compiles for the machine that it is written for, to the target that the machine names, or it is refused (E0901)
at exactly the lines whose comment says what they wait for (`# waits: ..`), by all commands or by those named. PLANS
lists them all, so that a new one is thought of. Programs are taken as far as the text of their host program (`compile
--emit=c`: all passes, no kernels), which is seconds for all; with `full`, also as executables, which takes minutes for
the large ones.
`compile`, `dump` and `plan` take the target from one place: its name and the capacity are the same in all three.
"""
import os, re, subprocess, sys, tempfile

SHARDC, EXAMPLES, FULL = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), 'full' in sys.argv[3:]
CPU = None                                # no machine: the one that compiles
PLANS = {
    'dit': {'shards': CPU},
    'distill': {'node': 'sm_80'},
    'dpo': {'node': 'sm_90'},
    'fp8': {'wide': CPU, 'one': CPU, 'four': CPU},
    'gpt1t': {'p3d': 'sm_80'},
    'int8': {'f32': CPU, 'gradients': CPU, 'four': CPU},
    'late': {'near': CPU, 'hosted': CPU, 'v100': 'sm_80'},
    'llama_long': {'context': 'sm_90', 'ring': 'sm_90', 'exchange': 'sm_90'},
    'llama_mesh': {'wide': 'sm_90'},
    'mixtral': {'spread': 'sm_90', 'stages': 'sm_90'},
    'moe': {'spread': CPU, 'hybrid': CPU, 'stages': CPU},
    'muon': {'two': CPU},
    'onebit': {'one': CPU, 'two': CPU, 'four': CPU, 'parted': CPU},
    'plans': {'cpu': 'x86_64_v3', 'zero2': 'sm_80', 'zero3_offload': 'sm_80', 'hybrid': 'sm_80'},
    'deepseek_v3': {'wide': 'sm_90'},
    'qwen3_moe': {'wide': 'sm_90'},
    't5': {'shards': CPU},
    'tiny_ranks': {'two': CPU, 'early': CPU, 'four': CPU, 'context': CPU, 'ahead': CPU, 'stages': CPU, 'turns': CPU,
                   'weights_last': CPU, 'rings': CPU, 'hosted': CPU},
    'zero_offload': {'near': CPU, 'optimizer': CPU, 'gradients': CPU, 'some': CPU, 'layers': CPU, 'stages': CPU,
                     'all': CPU},
    'tiny_zero': {'zero0': CPU, 'zero1': CPU, 'zero2': CPU, 'zero3': CPU},
    'zero_paper': {'n64': CPU, 't1024': CPU, 'c1': 'sm_80', 'c2': 'sm_80', 'c3': 'sm_80', 'c4': 'sm_80'},
}
wrong = []


def shardc(*args): return subprocess.run([SHARDC, *args, '--message-format=short'], capture_output=True, text=True)


def lines_of(path, plan):
    """The lines of a plan, from its head to its closing bracket: [(number, text)]."""
    lines = list(enumerate(open(path), 1))
    first = next(i for i, (_, l) in enumerate(lines) if re.match(rf'plan {plan}\b', l))
    last = next(i for i in range(first, len(lines)) if lines[i][1].startswith('}'))
    return lines[first:last]


def target_in(text):
    found = re.search(r'^target (\w+) \{', text, re.M)
    return found and found.group(1)


def to_c(path, plan, out):
    """Where stages have programs of their own: that of the last one."""
    command, some = ['compile', path, '--plan', plan, '--emit=c', '-o', out], ['--class', 'last']
    c = shardc(*command)
    return (shardc(*command, *some), some) if '--class first' in c.stderr else (c, [])


def compiles(path, plan, target, folder):
    out = f'{folder}/host.c'
    c, some = to_c(path, plan, out)
    d = shardc('dump', path, '--plan', plan, '--after', 'place', '-o', f'{folder}/m.ir')
    p = shardc('plan', path, '--plan', plan)
    if c.returncode or d.returncode or p.returncode:
        wrong.append(f'{path} {plan}: {c.stderr}{d.stderr}{p.stderr}'); return
    made = target_in(open(f'{folder}/m.ir').read())
    if target and (made != target or f'"{target}"' not in open(out).read()):
        wrong.append(f'{path} {plan}: made for {made}, not {target}')
    if FULL:
        e = shardc('compile', path, '--plan', plan, '-o', f'{folder}/model')
        if e.returncode: wrong.append(f'{path} {plan} as an executable: {e.stderr}')


def waits(path, plan, folder, where):
    wanted = [n for n, l in lines_of(path, plan) if '# waits: ' in l]
    for command in ('compile', '--emit=c', '-o', f'{folder}/host.c'), ('dump', '-o', f'{folder}/m.ir'), ('plan',):
        p = shardc(command[0], path, '--plan', plan, *command[1:])
        if '--class first' in p.stderr: p, _ = to_c(path, plan, command[-1])
        if where and command[0] not in where:
            if p.returncode: wrong.append(f'{command[0]} {path} {plan}: {p.stderr}')
            continue
        found = [int(n) for n in re.findall(r'^[^:]*:(\d+):\d+: error\[E0901\]', p.stderr, re.M)]
        if p.returncode != 1 or sorted(set(found)) != wanted or p.stderr.count('error[') != len(found):
            wrong.append(f'{command[0]} {path} {plan}: waits at {wanted}, refused at {found}: {p.stderr}')


found = {}
for name in sorted(os.listdir(EXAMPLES)):
    plans = re.findall(r'^plan (\w+)', open(f'{EXAMPLES}/{name}').read(), re.M) if name.endswith('.shard') else []
    if plans: found[name[:-6]] = plans
if found != {k: list(v) for k, v in PLANS.items()}: wrong.append(f'the examples have {found}')
with tempfile.TemporaryDirectory() as folder:
    for name, plans in PLANS.items():
        for plan, outcome in plans.items():
            if outcome and outcome[:5] == 'E0901': waits(f'{EXAMPLES}/{name}.shard', plan, folder, outcome.split()[1:])
            else: compiles(f'{EXAMPLES}/{name}.shard', plan, outcome, folder)
for line in wrong: print(line)
print(f'{sum(map(len, PLANS.values()))} plans in {len(PLANS)} examples')
sys.exit(len(wrong) > 0)
