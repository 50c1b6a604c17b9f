"""A private Slurm on this machine: a controller and several nodes, which are slurmd processes with addresses of their
own.

    with Cluster(folder, nodes=4, cpus=2) as cluster:
        job = cluster.submit('--partition=low', script, cwd=folder)
        cluster.wait(job, 'COMPLETED')
"""
import os, shutil, socket, subprocess, sys, time

NEEDS = ['slurmctld', 'slurmd', 'sbatch', 'srun', 'scontrol', 'squeue', 'scancel']
CONF = '''ClusterName=here
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=2
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
ReturnToService=2
SlurmdTimeout=6
KillWait=5
GresTypes=gpu
SchedulerParameters=sched_interval=2,batch_sched_delay=0
NodeName=127.0.0.[1-{nodes}] NodeHostname={host} Port=[{first}-{last}] CPUs={cpus} RealMemory=100 Gres=gpu:{cpus}
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime={grace} State=UP
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF State=UP
'''


def missing(): return [x for x in NEEDS if not shutil.which(x)] or ([] if os.getuid() == 0 else ['root'])


def free_ports(n):
    """The first of n ports in a row that nothing uses."""
    for first in range(23000, 32000, n):
        sockets = []
        try:
            for p in range(first, first + n):
                sockets.append(socket.socket())
                sockets[-1].bind(('127.0.0.1', p))
            return first
        except OSError: pass
        finally: [s.close() for s in sockets]
    sys.exit('no free ports')


class Cluster:
    def __init__(self, folder, nodes=4, cpus=2, grace=20):
        self.folder, self.nodes, self.process = folder, nodes, {}
        os.makedirs(f'{folder}/state')
        port = free_ports(nodes + 1)
        open(f'{folder}/slurm.conf', 'w').write(CONF.format(
            host=socket.gethostname().split('.')[0], port=port, first=port + 1, last=port + nodes, nodes=nodes,
            cpus=cpus, folder=folder, user=subprocess.getoutput('id -un'), grace=grace))
        open(f'{folder}/gres.conf', 'w').write(f'AutoDetect=off\nName=gpu File={folder}/gpu[0-{cpus - 1}]\n')
        open(f'{folder}/cgroup.conf', 'w').write('CgroupPlugin=cgroup/v1\nCgroupMountpoint=/nowhere\n')
        for i in range(cpus): open(f'{folder}/gpu{i}', 'w').close()
        self.env = {**os.environ, 'SLURM_CONF': f'{folder}/slurm.conf'}

    def start(self, *command, name):
        self.process[name] = subprocess.Popen(command, env=self.env, stdout=subprocess.DEVNULL,
                                              stderr=open(f'{self.folder}/{name}.err', 'a'))

    def start_node(self, i):
        self.start('slurmd', '-D', '-N', f'127.0.0.{i}', '-f', f'{self.folder}/slurm.conf', name=f'127.0.0.{i}')

    def lose_node(self, i):
        """As by a loss of power: the daemon and all that it has started end at once."""
        mine, found = self.process.pop(f'127.0.0.{i}'), set()
        def below(pid):
            found.add(pid)
            for task in os.listdir(f'/proc/{pid}/task'):
                try: children = open(f'/proc/{pid}/task/{task}/children').read().split()
                except OSError: continue
                for c in children: below(int(c))
        steps = [int(p) for p in subprocess.run(['pgrep', '-f', f'slurmstepd'], capture_output=True,
                                                text=True).stdout.split() if self.of_node(int(p), f'127.0.0.{i}')]
        for pid in [mine.pid, *steps]:
            try: below(pid)
            except OSError: pass
        for pid in found:
            try: os.kill(pid, 9)
            except OSError: pass
        mine.wait()

    def of_node(self, pid, node):
        """Does this process, a step daemon, belong to that node of this cluster?"""
        try: return any(os.readlink(f'/proc/{pid}/fd/{f}') == f'{self.folder}/{node}.log'
                        for f in os.listdir(f'/proc/{pid}/fd'))
        except OSError: return False

    def __enter__(self):
        self.start('slurmctld', '-D', '-f', f'{self.folder}/slurm.conf', name='slurmctld')
        for i in range(1, self.nodes + 1): self.start_node(i)
        self.until(lambda: self.said('sinfo', '-h', '-p', 'low', '-o', '%D %t') == f'{self.nodes} idle', 'nodes', 40)
        return self

    def __exit__(self, *error):
        if error[0]: print(self.said('squeue'), self.said('sinfo'), self.said('tail', f'{self.folder}/slurmctld.log'))
        self.said('scancel', '-u', subprocess.getoutput('id -un'))
        time.sleep(1)
        for p in self.process.values(): p.terminate()
        for p in self.process.values(): p.wait(30)

    def said(self, *command):
        p = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=60)
        return (p.stdout + p.stderr).strip()

    def until(self, fine, what, seconds=240):
        end = time.time() + seconds
        while not fine():
            if time.time() > end: sys.exit(f'failed: waited for {what}')
            time.sleep(0.2)

    def submit(self, *command, cwd, env=None):
        out = subprocess.run(['sbatch', '--parsable', *command], cwd=cwd, env={**self.env, **(env or {})},
                             capture_output=True, text=True)
        if out.returncode: sys.exit(f'sbatch: {out.stderr}')
        return out.stdout.strip()

    def state(self, job):
        text = self.said('scontrol', 'show', 'job', job)
        return {k: v for k, v in (w.split('=', 1) for w in text.split() if '=' in w)}

    def hurry(self, job):
        """Slurm lets a requeued job wait for two minutes."""
        if self.state(job).get('JobState') == 'PENDING':
            self.said('scontrol', 'update', f'JobId={job}', 'StartTime=now')

    def wait(self, job, *states, seconds=240):
        self.until(lambda: self.state(job).get('JobState') in states, f'{job} to be {states}', seconds)
        return self.state(job)
