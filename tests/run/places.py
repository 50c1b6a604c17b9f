"""`doctor` and `run` on machines described in a folder: python3 places.py SHARDC

`doctor` tells sockets, NUMA nodes, their processors and GPUs; `run` gives each rank cores of its own where there are
several nodes, tells it so in SHARDC_CPUS, and leaves them alone on one node, or with SHARDC_BIND=off.
"""
import json, os, shutil, subprocess, sys
from common import check, run, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
CPUS = sorted(os.sched_getaffinity(0))


def put(name, text):
    os.makedirs(os.path.dirname(f'{folder}/sys/{name}'), exist_ok=True)
    open(f'{folder}/sys/{name}', 'w').write(f'{text}\n')


def describe(nodes, gpus):
    """Nodes: the processors of each, a socket of its own."""
    shutil.rmtree(f'{folder}/sys', ignore_errors=True)
    put('devices/system/cpu/online', ','.join(str(c) for n in nodes for c in n))
    put('devices/system/node/online', f'0-{len(nodes) - 1}')
    for i, node in enumerate(nodes):
        put(f'devices/system/node/node{i}/cpulist', ','.join(map(str, node)))
        for c in node: put(f'devices/system/cpu/cpu{c}/topology/physical_package_id', i)
    for i, node in enumerate(gpus):
        for name, value in ('vendor', '0x10de'), ('class', '0x030000'), ('numa_node', node):
            put(f'bus/pci/devices/0000:{i + 23:02x}:00.0/{name}', value)


def doctor():
    out = subprocess.run([SHARDC, 'doctor', '--json'], capture_output=True, text=True,
                         env=dict(os.environ, SHARDC_SYS=f'{folder}/sys')).stdout
    return {f['name']: f['value'] for f in json.loads(out)['findings']}


def cpus_of_ranks(n, **env):
    out, err = run(SHARDC, 'run', '/usr/bin/env', '-n', str(n), '--', 'grep', 'Cpus_allowed_list', '/proc/self/status',
                   env={'SHARDC_SYS': f'{folder}/sys', **env})
    return [line.split()[-1] for line in (out + err).splitlines() if 'Cpus_' in line]


try:
    describe([[0, 1, 2, 3], [4, 5, 6, 7]], [1, 0, -1])
    found = doctor()
    check(found['processors'] == '8 in 8 cores, 2 sockets, 2 NUMA nodes', found)
    check(found['NUMA node 0'] == 'socket 0, processors 0-3; GPU 1 (0000:18:00.0)', found)
    check(found['NUMA node 1'] == 'socket 1, processors 4-7; GPU 0 (0000:17:00.0)', found)
    check(found['no NUMA node'] == 'GPU 2 (0000:19:00.0)', found)
    if len(CPUS) > 1:
        describe([CPUS[:1], CPUS[1:2]], [])
        check(sorted(cpus_of_ranks(2)) == sorted(map(str, CPUS[:2])), cpus_of_ranks(2))
        told = run(SHARDC, 'run', '/usr/bin/env', '-n', '2', env={'SHARDC_SYS': f'{folder}/sys'})
        check(all(f'SHARDC_CPUS={c}\n' in ''.join(told) for c in CPUS[:2]), told)
        free = cpus_of_ranks(2, SHARDC_BIND='off')
        check(free[0] not in (str(CPUS[0]), str(CPUS[1])), f'left alone: {free}')
        check(set(cpus_of_ranks(3)) == set(free[:1]), 'fewer cores than ranks')
        describe([CPUS[:2]], [])
        check(set(cpus_of_ranks(2)) == set(free[:1]), 'one node')
    print('processors of ranks as the machine is described')
finally:
    shutil.rmtree(folder)
