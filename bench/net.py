"""Nodes of a small cluster on this machine: network namespaces, each with its own link of a given bit rate.

A node is a namespace with one veth interface; what it sends goes through tc's token bucket (tbf) of the given rate, so
both directions of a link carry that much at once, as a switch's port does. The switch is a bridge in a namespace of its
own, from which mpirun starts. Where the kernel has netem, a delay can be added to the link. `Net.mpirun` starts
programs under Open MPI, one daemon per node, which a launch agent starts in the node's namespace, on its share of the
processors; ranks talk over TCP alone. As a program, this file wraps each rank: it raises the rank's priority and writes
its wall and processor time.

Needs root, ip and tc (iproute2), mpirun. Must not: touch interfaces, namespaces or processes that it did not create;
leave its own after it ends.
"""
import json, os, resource, shutil, signal, socket, subprocess, sys, time

PACKET = 45000          # bytes of the largest packet, cut where it would leave a real machine
BURST = 56000           # bytes that may go at once: that packet with headers, and bytes that a late timer missed. An
                        # idle link gains as much; headers take more of a message from 1.3 MB on
BACKLOG = '50ms'        # longest queue before the link; TCP keeps it far shorter
UNITS = {'bit': 1, 'kbit': 1e3, 'mbit': 1e6, 'gbit': 1e9}


class Refused(Exception):
    pass


def bits(rate):
    """1gbit as tc reads it, in bits per second."""
    number = rate.rstrip('abcdefghijklmnopqrstuvwxyz')
    unit = rate[len(number):]
    if unit not in UNITS or not number.replace('.', '', 1).isdigit() or float(number) <= 0:
        raise Refused(f'`{rate}` is no rate: 1gbit, 100mbit, 500kbit')
    return float(number) * UNITS[unit]


def call(*command, fine=False):
    p = subprocess.run(command, capture_output=True, text=True)
    if p.returncode and not fine:
        said = (p.stderr or p.stdout).strip().splitlines()
        raise Refused(f'{" ".join(command)}: {said[-1] if said else "failed"}')
    return p.stdout


def works(*command): return subprocess.run(command, capture_output=True).returncode == 0


def check_tools():
    for tool in ('ip', 'tc', 'mpirun'):
        if not shutil.which(tool):
            raise Refused(f'{tool} is not there: network namespaces need iproute2, ranks Open MPI')
    try: name = f'shardc-{os.getpid()}'; call('ip', 'netns', 'add', name)
    except Refused as e: raise Refused(f'network namespaces cannot be made, root can: {e}')
    call('ip', 'netns', 'del', name)


def has_netem():
    name = f'shardc-{os.getpid()}'
    call('ip', 'netns', 'add', name)
    try: return works('tc', '-n', name, 'qdisc', 'add', 'dev', 'lo', 'root', 'netem', 'delay', '1ms')
    finally: call('ip', 'netns', 'del', name, fine=True)


def processors(node, nodes):
    """A node's share of this machine's; empty: there are fewer than nodes."""
    all = sorted(os.sched_getaffinity(0))
    return all[node * (len(all) // nodes):(node + 1) * (len(all) // nodes)]


class Net:
    """with Net(nodes, rate, delay, folder) as net: .."""
    def __init__(self, nodes, rate, delay, folder):
        self.nodes, self.rate, self.delay, self.folder = nodes, rate, delay, folder
        bits(rate)
        if not 2 <= nodes <= 64: raise Refused('2 to 64 nodes')
        self.switch, self.made = f'shardc{os.getpid()}switch', []
        self.names = [f'shardc{os.getpid()}n{i}' for i in range(nodes)]

    def __enter__(self):
        try:
            self.add(self.switch)
            call('ip', '-n', self.switch, 'link', 'add', 'bridge', 'type', 'bridge')
            call('ip', '-n', self.switch, 'addr', 'add', '10.213.7.254/24', 'dev', 'bridge')
            call('ip', '-n', self.switch, 'link', 'set', 'bridge', 'up')
            # packets need not pass the rules of a firewall on their way
            call('ip', 'netns', 'exec', self.switch, 'sysctl', '-qw', 'net.bridge.bridge-nf-call-iptables=0', fine=True)
            for i in range(self.nodes): self.add_node(i)
            self.write_agent()
        except BaseException:
            self.__exit__()
            raise
        return self

    def add(self, name):
        call('ip', 'netns', 'add', name)
        self.made.append(name)
        call('ip', '-n', name, 'link', 'set', 'lo', 'up')

    def add_node(self, i):
        name = self.names[i]
        self.add(name)
        call('ip', '-n', self.switch, 'link', 'add', f'port{i}', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', name)
        call('ip', '-n', self.switch, 'link', 'set', f'port{i}', 'master', 'bridge', 'up')
        call('ip', '-n', name, 'addr', 'add', f'{self.address(i)}/24', 'dev', 'eth0')
        call('ip', '-n', name, 'link', 'set', 'eth0', 'gso_max_size', str(PACKET), 'up')
        shape = 'tc', '-n', name, 'qdisc', 'add', 'dev', 'eth0'
        call(*shape, 'root', 'handle', '1:', 'tbf', 'rate', self.rate, 'burst', str(BURST), 'latency', BACKLOG)
        if self.delay: call(*shape, 'parent', '1:1', 'netem', 'delay', self.delay, 'limit', '100000')
        # without losses any will do; others than these two may look for the rate by sending less for a while
        for kind in ('cubic', 'reno'):
            if works('ip', 'netns', 'exec', name, 'sysctl', '-qw', f'net.ipv4.tcp_congestion_control={kind}'): break

    def __exit__(self, *why):
        for name in self.made:
            for pid in call('ip', 'netns', 'pids', name, fine=True).split():
                try: os.kill(int(pid), signal.SIGKILL)
                except OSError: pass
            call('ip', 'netns', 'del', name, fine=True)
        self.made = []

    def address(self, i): return f'10.213.7.{i + 1}'

    def inside(self, i): return ['ip', 'netns', 'exec', self.names[i]] + self.pinned(i)

    def pinned(self, i):
        mine = processors(i, self.nodes)
        return ['taskset', '-c', ','.join(map(str, mine))] if mine else []

    def sent(self):
        """Bytes that each link has carried, with headers."""
        told = [call('tc', '-n', n, '-s', '-j', 'qdisc', 'show', 'dev', 'eth0') for n in self.names]
        return [json.loads(t)[0]['bytes'] for t in told]

    def write_agent(self):
        """What mpirun calls instead of ssh: AGENT ADDRESS COMMAND .."""
        rows = ''.join(f'{self.address(i)}) set -- {" ".join(self.inside(i))} unshare --uts sh -c "hostname node{i}; $*" ;;\n'
                       for i in range(self.nodes))
        self.agent, self.hosts = f'{self.folder}/agent', f'{self.folder}/hosts'
        with open(self.agent, 'w') as out:
            out.write(f'#!/bin/sh\nhost=$1\nshift\ncase $host in\n{rows}')
            out.write('*) echo "$host is no node" >&2; exit 1 ;;\nesac\nexec "$@"\n')
        os.chmod(self.agent, 0o755)

    def mpirun(self, ranks, command, first=True):
        """The command for this number of ranks, equally many on each node; `used` reads the times of each."""
        with open(self.hosts, 'w') as out:
            for i in range(self.nodes): out.write(f'{self.address(i)} slots={ranks // self.nodes}\n')
        own = [sys.executable, os.path.abspath(__file__), f'{self.folder}/used', '1' if first else '0']
        net = '10.213.7.0/24'
        words = {'plm_rsh_agent': self.agent, 'plm': 'rsh', 'pml': 'ob1', 'btl': 'tcp,self',
                 'btl_tcp_if_include': net, 'oob_tcp_if_include': net}
        return ['ip', 'netns', 'exec', self.switch, 'mpirun', '--allow-run-as-root', '-n', str(ranks),
                '--hostfile', self.hosts, '--map-by', 'slot', '--bind-to', 'none',
                *(w for k, v in words.items() for w in ('--mca', k, v)), *own, *command]

    def used(self, ranks):
        rows = [json.load(open(f'{self.folder}/used.{r}')) for r in range(ranks)]
        for r in range(ranks): os.unlink(f'{self.folder}/used.{r}')
        return rows

    def stream(self, first=True, seconds=0.5):
        """Bytes per second of TCP, with no program around it, from each node to the next at once; and how many of them
        a processor would send in a second, taking as many, if it had nothing else to do."""
        here = os.path.dirname(os.path.abspath(__file__))
        script = f'import sys; sys.path.insert(0, {here!r}); import net; {"net.be_first(); " * first}net.'

        def python(i, words, **more):
            return subprocess.Popen(self.inside(i) + [sys.executable, '-B', '-c', script + words], **more)
        ps = [python(i, f'take({self.address(i)!r}, {seconds})', stdout=subprocess.PIPE, text=True)
              for i in range(self.nodes)]
        try:
            ps += [python(i, f'give({self.address((i + 1) % self.nodes)!r})', stdout=subprocess.PIPE, text=True)
                   for i in range(self.nodes)]
            rows = [json.loads(p.communicate(timeout=60)[0]) for p in ps]
            seconds = [rows[i]['processor'] + rows[i + self.nodes]['processor'] for i in range(self.nodes)]
            return [r['rate'] for r in rows[:self.nodes]], 1 / max(seconds)
        finally:
            for p in ps: p.kill(), p.wait()


PORT = 7117


def used():
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


def tell(n, before, began):
    print(json.dumps({'rate': n / (time.monotonic() - began), 'processor': (used() - before) / n}))


def take(address, seconds):
    s = socket.create_server((address, PORT))
    s.settimeout(30)
    c, room, n = s.accept()[0], bytearray(1 << 20), 0
    c.recv_into(room)                                                   # it flows
    began, before = time.monotonic(), used()
    while time.monotonic() - began < seconds: n += c.recv_into(room)
    tell(n, before, began)


def give(address):
    for k in range(200):
        try: c = socket.create_connection((address, PORT)); break
        except OSError: time.sleep(0.05)
    began, before, n, room = time.monotonic(), used(), 0, bytes(1 << 16)
    try:
        while True: n += c.send(room)
    except OSError: tell(n, before, began)


def be_first():
    """Raise the priority of this process within its session and of its session among others (autogroup)."""
    try:
        with open('/proc/self/autogroup', 'w') as out: out.write('-20')
    except OSError: pass
    try: os.setpriority(os.PRIO_PROCESS, 0, -20)
    except OSError: pass


def around(path, first, command):
    if first == '1': be_first()
    began, status = time.monotonic(), subprocess.call(command)
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(f'{path}.{os.environ["OMPI_COMM_WORLD_RANK"]}', 'w') as out:
        json.dump({'wall': time.monotonic() - began, 'user': use.ru_utime, 'system': use.ru_stime}, out)
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == '__main__': around(sys.argv[1], sys.argv[2], sys.argv[3:])
