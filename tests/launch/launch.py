"""`shardc launch`, and executables that start the ranks of their node: python3 launch.py SHARDC

Scripts are well-formed and have what the plans say; wrong combinations are refused. One executable of eight ranks gives
the same bits however it is started: by itself, as pods of Kubeflow (PET_*) and of an Indexed Job, with the variables of
torchrun, and by the script for mpirun, which takes a smaller plan where a host does not answer and goes on after ranks
were killed.
"""
import json, os, random, re, shutil, signal, subprocess, sys, time
from launched import CLEAN, PLANS, SHARDC, check, compiled, losses, ranks_of, run, script, unbroken, until, workdir

folder, rng = workdir(), random.Random(5)
STEPS = 12


def refused(says, *words, expect=2):
    out, err = run(SHARDC, 'launch', *words, cwd=folder, expect=expect)
    check(says in out + err and '#!' not in out, f'{words}: {out}{err}')


def case_refused():
    refused('did you mean `slurm`', 'slrm', 'm.shard')
    refused('one of slurm, mpirun, k8s', 'pbs', 'm.shard')
    refused('the memory of one machine', 'slurm', 'm.shard', '--plan', 'four', '--nproc-per-node', '2')
    refused('do not divide', 'slurm', 'm.shard', '--plan', 'four', '--nproc-per-node', '3')
    refused('takes one plan', 'k8s', 'm.shard', *PLANS)
    refused('has a line break', 'slurm', 'm.shard', '--plan', 'two', '--exe', './m\nrm')
    refused('launch mpirun', 'k8s', 'm.shard', '--plan', 'two', '--comm', 'mpi')
    refused('two are for 4 ranks', 'slurm', 'm.shard', '--plan', 'four,four')
    refused('gives `--resume` by itself', 'slurm', 'm.shard', '--plan', 'four', '--', '--resume')
    refused('a script is for `train`', 'slurm', 'm.shard', '--plan', 'four', '--', 'eval')
    refused('the optimizer is compiled in', 'slurm', 'm.shard', '--plan', 'four', '--', '--optim', 'sgd')
    refused('no plan named `fuor`', 'slurm', 'm.shard', '--plan', 'fuor', expect=1)
    for text in '0', '-1', 'x', '1025', '99999999999999999999':
        refused('takes a whole number', 'slurm', 'm.shard', f'--nproc-per-node={text}')
    refused('was given nothing', 'slurm', 'm.shard', '--nproc-per-node=')


def case_scripts():
    text = open(script(folder, 'slurm', '--data', "it's here.txt", '--out', 'runs/a b')).read()
    check('#SBATCH --nodes=1-4' in text and '#SBATCH --gpus-per-node=2' in text and 'plans=(8 4 2)' in text, text)
    check("""'it'\\''s here.txt'""" in text and "out='runs/a b'" in text and '@' not in text.replace('TERM@300', '')
          .replace('[@]', ''), text)
    one = run(SHARDC, 'launch', 'slurm', 'm.shard', '--plan', 'four', cwd=folder)[0]
    check('#SBATCH --nodes=1\n' in one and 'gpus' not in one and 'NCCL' not in one and 'SECRET' not in one, one)
    for kind in 'slurm', 'mpirun':
        for plans in (PLANS, ['--plan', 'two']):
            run('bash', '-n', script(folder, kind, plans=plans))
            if shutil.which('shellcheck'): run('shellcheck', script(folder, kind, plans=plans))
    text = open(script(folder, 'k8s', plans=['--plan', 'eight', '--target', 'sm_80'])).read()
    check('completions: 4\n' in text and "'--meet=m-0.m:29500'" in text and '--nproc-per-node=2' in text, text)
    words = ['--steps', '100', '--data', 'a$(HOME) $b']             # of which Kubernetes expands none
    more = run(SHARDC, 'launch', 'k8s', 'm.shard', '--plan', 'two', '--', *words, cwd=folder)[0]
    check("'--steps', '100', '--data', 'a$$(HOME) $$b'" in more, more)
    try: import yaml
    except ImportError: return
    service, job = yaml.safe_load_all(text)
    check(job['spec']['template']['spec']['subdomain'] == service['metadata']['name'], 'the name of the service')


def start(environments, *words, cwd=None):
    ps = [subprocess.Popen(['./m', 'train', '--steps', str(STEPS), *words], cwd=folder, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, env={**CLEAN, **{k: str(v) for k, v in e.items()}})
          for e in environments]
    return [(p.communicate(timeout=240)[0], p.returncode) for p in ps]


def good(all, out):
    check(all and not any(s for _, s in all), f'{out}: {all}')
    check(losses(folder, out) == whole, f'{out}: the bits of one node')


def port():
    import socket
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def case_pods():
    at = port()
    pods = [{'PET_NNODES': 4, 'PET_NODE_RANK': i, 'PET_NPROC_PER_NODE': 2, 'PET_MASTER_ADDR': '127.0.0.1',
             'PET_MASTER_PORT': at} for i in range(4)]
    good(start(pods, '--out', 'pet'), 'pet')
    text = open(script(folder, 'k8s', plans=['--plan', 'eight', '--target', 'sm_80'])).read()
    text = text.split('command: [')[1].split(']')[0].replace('m-0.m:29500', f'127.0.0.1:{port()}')
    words = re.findall(r"[^\s,']+", text)
    words = [w for w in words[2:] if not w.startswith('--out')]
    good(start([{'JOB_COMPLETION_INDEX': i} for i in range(4)], *words, '--out', 'indexed'), 'indexed')
    at = port()
    torch = [{'RANK': r, 'WORLD_SIZE': 8, 'LOCAL_RANK': r % 2, 'LOCAL_WORLD_SIZE': 2, 'MASTER_ADDR': '127.0.0.1',
              'MASTER_PORT': at, 'PET_NNODES': 4} for r in range(8)]
    good(start(torch, '--out', 'torchrun'), 'torchrun')


def case_node_refused():
    def bad(says, status, environment, *words):
        (text, code), = start([environment], *words, '--out', 'none')
        check(code == status and says in text, f'{words} {environment}: {code} {text}')
    bad('R0104', 2, {}, '--nnodes', '4', '--meet', '127.0.0.1:1')            # several plans
    bad('this executable has 3 plans', 2, {}, '--nnodes', '1')
    bad('which of them this is', 2, {}, '--nnodes', '4', '--nproc-per-node', '2', '--meet', '127.0.0.1:1')
    bad('nodes count from 0', 3, {}, '--nnodes', '4', '--nproc-per-node', '2', '--node-rank', '4')
    bad('no place where the ranks meet', 3, {}, '--nnodes', '4', '--nproc-per-node', '2', '--node-rank', '0')
    bad('LOCAL_RANK says that this process is one', 2, {'LOCAL_RANK': 0, 'RANK': 0, 'WORLD_SIZE': 8}, '--nnodes', '1')
    bad('a fixed number of ranks', 3, {'PET_NNODES': '1:4'})
    bad('PET_NPROC_PER_NODE is `two`', 3, {'PET_NNODES': '1', 'PET_NPROC_PER_NODE': 'two'})
    bad('built for 8 ranks', 3, {}, '--nproc-per-node', '3')
    for text in '0', '1025': bad('--nproc-per-node takes', 2, {}, '--nproc-per-node', text)


def case_mpirun():
    if not shutil.which('mpirun'): return
    long = 400
    path, want = script(folder, 'mpirun', '--steps', str(long), '--out', 'mpi'), unbroken(folder, long, 'long')
    open(f'{folder}/hosts', 'w').write('localhost\n' * 4)
    env = {**CLEAN, 'OMPI_MCA_rmaps_base_oversubscribe': '1', 'ALIVE': 'true'}
    text = open(path).read().replace('--host "${list:1}" --map-by "ppr:$here:node"', '--oversubscribe')  # one host
    open(path, 'w').write(text)
    log = open(f'{folder}/mpi.log', 'w')
    p = subprocess.Popen(['bash', path], cwd=folder, env=env, stdout=log, stderr=log)
    for n in 1, 2:
        until(lambda: len(losses(folder, 'mpi')) > 60 * n, 'steps')
        os.kill(rng.choice(ranks_of(folder)), signal.SIGKILL)
        until(lambda: open(log.name).read().count(' start 8 ranks') > n, lambda: open(log.name).read())
    until(lambda: len(losses(folder, 'mpi')) > 180, 'steps')
    p.send_signal(signal.SIGTERM)
    check(p.wait(60) == 75, open(log.name).read())
    same = losses(folder, 'mpi')
    check(same == want[:len(same)], 'the bits of an unbroken run')
    deaf = {**env, 'ALIVE': 'false HOST'}
    fewer = subprocess.run(['bash', path], cwd=folder, env=deaf, capture_output=True, text=True)
    check(fewer.returncode == 1 and 'no checkpoint was written in 5 starts' in fewer.stdout, f'no host: {fewer}')
    open(f'{folder}/hosts', 'w').write('localhost\nlocalhost\nlocalhost\n')
    fewer = subprocess.run(['bash', path], cwd=folder, env=env, capture_output=True, text=True)
    check(fewer.returncode == 0 and 'start 4 ranks on 2 of 3 hosts' in fewer.stdout, f'fewer: {fewer}')
    check(len(losses(folder, 'mpi')) == long, 'all steps')


try:
    compiled(folder)
    whole = unbroken(folder, STEPS)
    for name, case in list(globals().items()):
        if name.startswith('case_') and (not sys.argv[2:] or name[5:] in sys.argv[2:]): case(), print(name[5:])
finally:
    shutil.rmtree(folder)
