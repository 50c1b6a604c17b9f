"""Machine blocks give target, capacity and ranks per node: machines.py SHARDC

Every arch of the settings table is a target of the compiler and takes the types of computation; `compile`, `dump`,
`plan` and a dump that goes on are made for the machine's arch; all the memory that a block names can be used (141 GB of
an H200); --target goes over the machine with a note; an executable refuses more ranks on a node than the plan's machine
has GPUs.
"""
import json, os, re, shutil, subprocess, sys
from common import ROOT, check, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
MODEL = '''use "std"
dims { Batch; In = 4; Wide = 64 }
model M { input x, y [Batch, In]
  sub l = Linear[In -> Wide]
  sub o = Linear[Wide -> In]
  loss mean[*]((o(gelu(l(x))) - y)^2) }
train t for M { batch 8; steps 4; data columns(x = "x.npy", y = "y.npy"); optim adamw }
machine box {
  node gpus = 1 arch = sm_80 memory = %s
}
machine cpu {
  node arch = x86_64_v3 memory = 1GiB
}
plan p for M { on box nodes = 2
  mesh data = 2
  place Batch -> data
}
plan q for M { on cpu }
'''


def shardc(*args, expect=0, env={}):
    p = subprocess.run([SHARDC, *args], cwd=folder, capture_output=True, text=True,
                       env=dict(os.environ, NO_COLOR='1', **env))
    check(p.returncode == expect, f'{args}: exit {p.returncode}\n{p.stdout[-500:]}\n{p.stderr}')
    return p.stdout, p.stderr


def target(*args):
    return re.search(r'(?m)^target (\w+) \{', shardc('dump', 'm.shard', '--after', 'memory', *args)[0]).group(1)


def table():
    rows = re.findall(r'^CHOICE\(MACHINE, node\.arch, (\w+),', open(f'{ROOT}/frontend/settings.def').read(), re.M)
    said = shardc('plan', 'm.shard', '--plan', 'q', '--target', 'none', expect=2)[1]
    check(rows == re.search(r'targets: (.*)', said).group(1).split(', '), f'settings.def has {rows}; {said}')
    return rows


try:
    open(f'{folder}/m.shard', 'w').write(MODEL % '40GiB')
    for arch in table():
        gpu = arch.startswith('sm_')
        for precision in ('tf32', 'bf16', 'f16') if gpu else ('bf16',):
            made = target('--plan', 'p' if gpu else 'q', '--set', f'machine.node.arch={arch}', '--set',
                          f'plan.precision={precision}')
            check(made == arch or arch == 'native', f'{arch} {precision}: made for {made}')
    said = shardc('plan', 'm.shard', '--plan', 'p', '--set', 'machine.node.arch=sm_100', expect=1)[1]
    check('E0602' in said and '--set:1:19' in said and 'sm_90' in said, said)
    # all memory of the block
    open(f'{folder}/m.shard', 'w').write(MODEL % '141GB')
    j = json.loads(shardc('plan', 'm.shard', '--plan', 'p', '--json', '--set', 'machine.node.arch=sm_90')[0])
    check(j['capacity'] == 141 * 10**9 and j['fits'], j)
    said = shardc('plan', 'm.shard', '--plan', 'p', '-D', 'In=64', '--set', 'train.batch=1073741824', '--set',
                  'plan.micro=536870912', '--set', 'machine.node.arch=sm_90', expect=3)[1]
    check('131.3 GiB' in said, said)
    # --target goes over it, with a note; a dump goes on where it was
    check(target('--plan', 'p', '--target', 'sm_86') == 'sm_86', '--target')
    check('N0602' in shardc('plan', 'm.shard', '--plan', 'p', '--target', 'sm_86')[1], 'a note')
    check('N0602' not in shardc('plan', 'm.shard', '--plan', 'p', '--target', 'sm_80')[1], 'no note')
    shardc('dump', 'm.shard', '--plan', 'p', '--after', 'lower', '-o', 'low.ir')
    check('\ntarget sm_80 {' in shardc('dump', 'low.ir', '--after', 'memory')[0], 'going on from a dump')
    # ranks per node
    shardc('compile', 'm.shard', '--plan', 'p', '-o', 'm')
    p = subprocess.run(['./m', 'train'], cwd=folder, capture_output=True, text=True,
                       env=dict(os.environ, RANK='0', WORLD_SIZE='2', LOCAL_RANK='0', LOCAL_WORLD_SIZE='2'))
    check(p.returncode == 3 and 'R0101' in p.stderr
          and '2 ranks on this machine, and the plan is for nodes with 1 GPU' in p.stderr, p.stderr)
    print('machines give target, capacity and ranks per node')
finally:
    shutil.rmtree(folder)
