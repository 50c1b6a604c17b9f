"""Machine blocks give target, capacity and ranks per node: machines.py SHARDC

Every arch of the settings table is a target of the compiler, or for plans alone, and takes the types of computation;
`compile`, `dump`, `plan` and a compilation that continues from a dump use the machine's arch; all the memory that a
block names can be used (141 GB of an H200); --target overrides the machine with a note; an executable refuses more
ranks on a node than the plan's machine has GPUs, and ranks on nodes such that an axis leaves them which is inside in
the plan, whatever launcher started them.
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
plan both for M { on cpu nodes = 2
  mesh tensor = 4, data = 2
  place Wide -> tensor
  place Batch -> data
}
'''
PLANNED = {'sm_70': 'sm_80'}                        # archs of plans alone, and whose programs they show
LAUNCHERS = {
    'torchrun': lambda r, w, l, n: dict(RANK=r, WORLD_SIZE=w, LOCAL_RANK=l, LOCAL_WORLD_SIZE=n),
    'mpirun': lambda r, w, l, n: dict(OMPI_COMM_WORLD_RANK=r, OMPI_COMM_WORLD_SIZE=w, OMPI_COMM_WORLD_LOCAL_RANK=l,
                                      OMPI_COMM_WORLD_LOCAL_SIZE=n),
    'mpiexec': lambda r, w, l, n: dict(PMI_RANK=r, PMI_SIZE=w, MPI_LOCALRANKID=l, MPI_LOCALNRANKS=n),
    'srun': lambda r, w, l, n: dict(SLURM_STEP_ID=0, SLURM_PROCID=r, SLURM_STEP_NUM_TASKS=w, SLURM_LOCALID=l,
                                    SLURM_NODEID=0, SLURM_STEP_TASKS_PER_NODE=f'{n}(x{w // n}),{w % n}')}


def shardc(*args, expect=0, env={}):
    p = subprocess.run([SHARDC, *args], cwd=folder, capture_output=True, text=True,
                       env=dict(os.environ, NO_COLOR='1', **env))
    check(p.returncode == expect, f'{args}: exit {p.returncode}\n{p.stdout[-500:]}\n{p.stderr}')
    return p.stdout, p.stderr


def target(*args):
    return re.search(r'(?m)^target (\w+) \{', shardc('dump', 'm.shard', '--after', 'memory', *args)[0]).group(1)


def table():
    rows = re.findall(r'^CHOICE\(MACHINE, node\.arch, (\w+),', open(f'{ROOT}/frontend/settings/settings.def').read(), re.M)
    said = shardc('plan', 'm.shard', '--plan', 'q', '--target', 'none', expect=2)[1]
    targets = re.search(r'targets: (.*)', said).group(1).split(', ')
    check([r for r in rows if r not in PLANNED] == targets, f'settings.def has {rows}; {said}')
    return targets


def launched(name, rank, world, local, here):
    """The output of one rank of a job about its nodes; the rank then ends, or finds that the others are on other
    machines."""
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(('RANK', 'WORLD', 'LOCAL', 'OMPI', 'PMI', 'MPI', 'SLURM'))}
    told = LAUNCHERS[name](rank, world, local, here) if name in LAUNCHERS else dict(RANK=rank, WORLD_SIZE=world)
    p = subprocess.run(['./both', 'train'], cwd=folder, capture_output=True, text=True,
                       env=dict(env, SHARDC_MEET='0.1', **{k: str(v) for k, v in told.items()}))
    check(p.returncode == 3, f'{name}: exit {p.returncode} {p.stderr}')
    return ''.join(re.findall(r'(?s)(?:error|warning)\[R0101\]: (?!communicator).*?(?=\nerror|$)', p.stderr))


try:
    open(f'{folder}/m.shard', 'w').write(MODEL % '40GiB')
    for arch in table():
        gpu = arch.startswith('sm_')
        for precision in ('tf32', 'bf16', 'f16') if gpu else ('bf16',):
            made = target('--plan', 'p' if gpu else 'q', '--set', f'machine.node.arch={arch}', '--set',
                          f'plan.precision={precision}')
            check(made == arch or arch == 'native', f'{arch} {precision}: made for {made}')
    for arch, shown in PLANNED.items():
        given = '--plan', 'p', '--set', f'machine.node.arch={arch}'
        check(target(*given) == shown, arch)
        said = shardc('compile', 'm.shard', *given, '-o', 'm', expect=1)[1]
        check('E0602' in said and f'`arch = {arch}`' in said and 'sm_90a' in said and not os.path.exists(f'{folder}/m'),
              said)
        shardc('dump', 'm.shard', *given, '--after', 'lower', '-o', 'low.ir')
        check('E0602' in shardc('compile', 'low.ir', '-o', 'm', expect=1)[1], f'{arch}: a dump')
    said = shardc('plan', 'm.shard', '--plan', 'p', '--set', 'machine.node.arch=sm_60', expect=1)[1]
    check('E0602' in said and '--set:1:19' in said and 'sm_90' in said, said)
    for newer in 'sm_110a', 'sm_121a', 'sm_130':
        for words in ('plan', newer), ('compile', f'sm_80,{newer}', '-o', 'm'):
            said = shardc(words[0], 'm.shard', '--plan', 'p', '--target', *words[1:], expect=2)[1]
            check(f'no target `{newer}`' in said and 'programs for `sm_90` run on it' in said, said)
    said = shardc('plan', 'm.shard', '--plan', 'p', '--target', 'sm_100', expect=2)[1]
    check('no target `sm_100`: it is `sm_100a`' in said, said)
    # all memory of the block
    open(f'{folder}/m.shard', 'w').write(MODEL % '141GB')
    j = json.loads(shardc('plan', 'm.shard', '--plan', 'p', '--json', '--set', 'machine.node.arch=sm_90')[0])
    check(j['capacity'] == 141 * 10**9 and j['fits'], j)
    said = shardc('plan', 'm.shard', '--plan', 'p', '-D', 'In=64', '--set', 'train.batch=1073741824', '--set',
                  'plan.micro=536870912', '--set', 'machine.node.arch=sm_90', expect=3)[1]
    check('131.32 GiB' in said, said)
    # --target overrides it, with a note; a dump continues from its own stage
    check(target('--plan', 'p', '--target', 'sm_86') == 'sm_86', '--target')
    check('N0602' in shardc('plan', 'm.shard', '--plan', 'p', '--target', 'sm_86')[1], 'a note')
    check('N0602' not in shardc('plan', 'm.shard', '--plan', 'p', '--target', 'sm_80')[1], 'no note')
    shardc('dump', 'm.shard', '--plan', 'p', '--after', 'lower', '-o', 'low.ir')
    check('\ntarget sm_80 {' in shardc('dump', 'low.ir', '--after', 'memory')[0], 'going on from a dump')
    # ranks per node
    shardc('compile', 'm.shard', '--plan', 'p', '-o', 'm', '--quick')
    p = subprocess.run(['./m', 'train'], cwd=folder, capture_output=True, text=True,
                       env=dict(os.environ, RANK='0', WORLD_SIZE='2', LOCAL_RANK='0', LOCAL_WORLD_SIZE='2'))
    check(p.returncode == 3 and 'R0101' in p.stderr
          and '2 ranks on this machine, and the plan is for nodes with 1 GPU' in p.stderr, p.stderr)
    # the launcher's nodes are the plan's: tensor = 4 inside of nodes of 4, data = 2 across
    shardc('compile', 'm.shard', '--plan', 'both', '-o', 'both', '--quick')
    for name in LAUNCHERS:
        for rank in 0, 5: check(launched(name, rank, 8, rank % 4, 4) == '', f'{name}: 4 on a node')
        check(launched(name, 3, 8, 3, 8) == '', f'{name}: all on one machine')
        for rank, local, here in (0, 0, 2), (7, 1, 2), (5, 2, 3), (1, 0, 4), (6, 3, 4):  # too few; round-robin
            said = launched(name, rank, 8, local, here)
            check('error' in said and f'rank {rank} is number {local} of {here} on this machine, so mesh axis `tensor` '
                  'of 4 ranks leaves its node: the plan has 4 ranks in each' in said
                  and f'--set plan.on.nodes={-(-8 // here)}' in said, f'{name} {rank} {local} {here}: {said}')
        said = launched(name, 0, 8, 0, 6)  # tensor is inside a node, but the nodes differ from the plan's
        check('warning' in said and '6 ranks on this machine, and the plan has 4 on each' in said, f'{name}: {said}')
    check(launched('by hand', 1, 8, 0, 4) == '', 'what nobody counts is not judged')
    print('machines give target, capacity and ranks per node')
finally:
    shutil.rmtree(folder)
