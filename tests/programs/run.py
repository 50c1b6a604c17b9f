"""Random programs as executables: the losses of two steps against the interpreter's.

    python3 run.py SHARDC LOSSES FIRST LAST
"""
import json, os, random, shutil, struct, subprocess, sys, tempfile
from generate import Program

DATA = {'x': ('<f4', (4, 3, 4)), 'y': ('<f4', (4, 4)), 'i': ('<i4', (4,)), 'j': ('<i4', (4, 3)), 'b': ('|b1', (4, 3)),
        'k': ('|b1', (4, 3)), 'c': ('<i4', (4,))}
PACK = {'<f4': 'f', '<i4': 'i', '|b1': '?'}


def write_data(folder, samples=4):
    r = random.Random(5)
    draw = {'x': lambda: r.gauss(0, 1), 'y': lambda: r.gauss(0, 1), 'i': lambda: r.randrange(4),
            'j': lambda: r.randrange(6),
            'b': lambda: r.random() < .7, 'k': lambda: r.random() < .7, 'c': lambda: r.randrange(5)}
    for name, (kind, shape) in DATA.items():
        n, shape = 1, (samples, *shape[1:])
        for k in shape: n *= k
        body = struct.pack(f'<{n}{PACK[kind]}', *[draw[name]() for _ in range(n)])
        head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
        head += ' ' * ((64 - (11 + len(head)) % 64) % 64) + '\n'
        open(f'{folder}/{name}.npy', 'wb').write(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(head)) + head.encode()
                                                 + body)
        values = [float(v) for v in struct.unpack(f'<{n}{PACK[kind]}', body)]
        open(f'{folder}/{name}.f64', 'wb').write(struct.pack(f'<{n}d', *values))


def run(*command, folder):
    p = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1200)
    if p.returncode:
        raise RuntimeError(f'{" ".join(command)}: exit {p.returncode}\n{p.stdout[-500:]}{p.stderr[-1000:]}')
    return p.stdout


def differs(a, b, size): return not (abs(a - b) <= 2e-4 * size or (a != a and b != b))


def check(shardc, losses, n, folder):
    shutil.rmtree(f'{folder}/run', ignore_errors=True)
    open(f'{folder}/p.shard', 'w').write(Program(n).text())
    run(shardc, 'compile', 'p.shard', '-o', 'p.exe', folder=folder)
    run('./p.exe', 'train', '--out', 'run', '--shuffle', 'off', folder=folder)      # places count in `rand`
    got = [line['loss'] for line in map(json.loads, open(f'{folder}/run/metrics.jsonl')) if 'loss' in line][:2]
    run(shardc, 'dump', 'p.shard', '--after', 'optimizer', '-o', 'p.ir', folder=folder)
    want = [float(v) for v in run(losses, 'p.ir', '.', '2', folder=folder).split()]
    size = max(map(abs, want)) + 1e-2             # a step of rate 1 may blow rounding up
    if len(got) != 2 or any(differs(a, b, size) for a, b in zip(got, want)):
        raise RuntimeError(f'losses {got}, the interpreter says {want}')


def main():
    shardc, losses, failed = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), 0
    with tempfile.TemporaryDirectory() as folder:
        write_data(folder)
        for n in range(int(sys.argv[3]), int(sys.argv[4])):
            try: check(shardc, losses, n, folder)
            except (RuntimeError, subprocess.TimeoutExpired) as e: print(f'program {n}: {e}'); failed += 1
    print(f'{failed} failed')
    sys.exit(failed > 0)


if __name__ == '__main__': main()
