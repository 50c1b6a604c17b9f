"""The written script under Slurm: python3 slurm.py SHARDC [KILLS]

Debian's Slurm runs four nodes on this machine (slurm_here.py). A job of eight ranks of the stand-in GPU is preempted,
requeued by hand, loses ranks at random instants and goes on: at most one save interval is lost each time, and all
losses have the bits of an unbroken run. Then it loses a node, and goes on under the plan of four ranks; then scancel
ends it for good. Skipped where Slurm is not installed.
"""
import functools, os, random, shutil, signal, sys, tempfile, time
from launched import CLEAN, SAVE, check, compiled, losses, ranks_of, script, unbroken, until
from slurm_here import Cluster, missing

if missing(): sys.exit(77)
print = functools.partial(print, flush=True)
KILLS, rng = int(sys.argv[2]) if len(sys.argv) > 2 else 4, random.Random(3)
STEPS = 200 + 40 * KILLS
folder = tempfile.mkdtemp(prefix='shardc_slurm_')      # Slurm's file names have no spaces
step = lambda: len(losses(folder, 'out'))
starts = lambda log: open(log).read().count(' start ') if os.path.exists(log) else 0


def goes_on(cluster, job, what):
    """The job, which was stopped, is started again and trains."""
    n = starts(log)
    def trains():
        cluster.hurry(job)
        return starts(log) > n and 'run directory' in open(log).read().split(' start ')[-1]
    until(trains, lambda: f'{what}: {open(log).read()}')
    at = step()
    until(lambda: step() > at + 2, what)


def kill_one(log, i):
    """Kills a random rank at a random instant; returns the steps that were lost."""
    at = step() + rng.randrange(1, 8 * SAVE)
    until(lambda: step() >= at, lambda: f'a step: {open(log).read()[-3000:]}')
    time.sleep(rng.uniform(0, 0.05))
    n, victims = starts(log), ranks_of(folder)
    if not victims or step() >= STEPS: return None
    reached = step()
    os.kill(rng.choice(victims), signal.SIGKILL)
    until(lambda: starts(log) > n, f'another start after kill {i}')
    tail = lambda: open(log).read().split(' start ')[-1]
    until(lambda: 'resumed at step ' in tail() or 'begins at step 1' in tail(), f'resume {i}')
    return reached - int(tail().split('resumed at step ')[1].split()[0]) if 'resumed at' in tail() else reached


try:
    compiled(folder)
    whole = unbroken(folder, STEPS)
    job_script = script(folder, 'slurm', '--steps', str(STEPS), '--out', 'out')
    with Cluster(f'{folder}/slurm') as cluster:
        job = cluster.submit('--partition=low', job_script, cwd=folder, env=CLEAN)
        log = f'{folder}/m-{job}.log'
        until(lambda: step() > 20, lambda: 'the first steps: ' + open(log).read())
        check('start 8 ranks on 4 of 4 nodes' in open(log).read(), open(log).read())
        other = cluster.submit('--partition=high', '--nodes=4', '--exclusive', '--wrap', 'sleep 2', cwd=folder)
        cluster.wait(other, 'COMPLETED')
        goes_on(cluster, job, 'preempted')
        check(int(cluster.state(job)['Restarts']) == 1, 'preempted once')
        print('preempted and requeued')
        cluster.said('scontrol', 'requeue', job)
        goes_on(cluster, job, 'requeued')
        check(int(cluster.state(job)['Restarts']) == 2, 'requeued')
        lost = [x for x in (kill_one(log, i) for i in range(KILLS)) if x is not None]
        check(len(lost) == KILLS and max(lost) <= SAVE + 2, f'steps lost by kills: {lost}')
        print(f'{len(lost)} kills: at most {max(lost)} steps lost, {sum(lost) / len(lost):.1f} on average')
        same = losses(folder, 'out')
        check(same == whole[:len(same)], 'the bits of an unbroken run')
        print(f'{len(same)} steps have the bits of an unbroken run')
        cluster.lose_node(4)
        goes_on(cluster, job, 'a node is lost')
        check('start 4 ranks on 2 of 3 nodes' in open(log).read(), open(log).read())
        print('a node is lost, goes on with 4 ranks')
        cluster.said('scancel', job)
        cluster.wait(job, 'CANCELLED')
        time.sleep(2)
        check(cluster.state(job)['JobState'] == 'CANCELLED', 'scancel is the end')
        again = cluster.submit('--partition=low', job_script, cwd=folder, env=CLEAN)
        cluster.wait(again, 'COMPLETED', 'FAILED', seconds=3600)
        got = losses(folder, 'out')
        kept = len(same) - 2 * SAVE                    # four ranks may take steps since the last checkpoint again
        check(len(got) == STEPS and got[:kept] == same[:kept], f'{len(got)} of {STEPS} steps, once')
        check(max(abs(a - b) for a, b in zip(got, whole)) < 2e-2, 'losses of the unbroken run')
    print(f'{STEPS} steps: the losses of an unbroken run, {len(same)} of them with the same bits')
finally:
    shutil.rmtree(folder, True)
