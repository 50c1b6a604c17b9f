"""Shared by the end-to-end tests: run a command, fail with its output, make small texts to train on."""
import array, atexit, json, os, shutil, struct, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, '..', '..'))
EXAMPLES = os.path.join(ROOT, 'examples')
os.environ.setdefault('SHARDC_EQUAL', 'off')  # as in tests/environment.cmake
MPI = {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}  # as in most containers


failed = []


def fail(message):
    failed.append(message)
    sys.exit(message)


def run(*command, cwd=None, expect=0, timeout=1200, env=None):
    """Runs; returns (stdout, stderr). Any other exit code than `expect` ends the test with all output."""
    e = {**os.environ, **MPI, 'SHARDC_PATH': EXAMPLES, 'NO_COLOR': '1', **(env or {})}
    p = subprocess.run(command, cwd=cwd, capture_output=True, text=True, errors='replace', timeout=timeout, env=e)
    if p.returncode != expect:
        fail(f'{" ".join(command)}\n  exit code {p.returncode}, expected {expect}\n{p.stdout}\n{p.stderr}')
    return p.stdout, p.stderr


def planned(shardc, folder, text):
    """What `plan --json` prints for plan p of a model, whether it fits or not, and its messages."""
    open(f'{folder}/m.shard', 'w').write(text)
    p = subprocess.run([shardc, 'plan', 'm.shard', '--plan', 'p', '--json'], cwd=folder, capture_output=True, text=True,
                       env=dict(os.environ, SHARDC_PATH=EXAMPLES, NO_COLOR='1'))
    check(p.stdout.startswith('{'), p.stderr)
    return json.loads(p.stdout), p.stderr


def check(condition, message):
    if not condition: fail('failed: ' + message)


def has_mpi():
    """Open MPI's commands, and its headers, which Debian has in another package."""
    if not (shutil.which('mpirun') and shutil.which('mpicc')): return False
    return not subprocess.run(['mpicc', '-fsyntax-only', '-x', 'c', '-'], input=b'#include <mpi.h>\n',
                              capture_output=True).returncode


def entries(data):
    """(dtype, shape, bytes) of each tensor of a file of safetensors, by name."""
    at = 8 + int.from_bytes(data[:8], 'little')
    return {k: (t['dtype'], t['shape'], data[at + t['data_offsets'][0]:at + t['data_offsets'][1]])
            for k, t in json.loads(data[8:at]).items() if k != '__metadata__'}


def tensors(data): return {k: raw for k, (_, _, raw) in entries(data).items()}


def floats(path):
    """The f32 tensors of a file of safetensors, by name, as flat arrays."""
    return {k: array.array('f', raw) for k, (t, _, raw) in entries(read(path)).items() if t == 'F32'}


def numbers(path, *types):
    """(dtype, numbers) of each tensor of these types, by name."""
    form = {'F32': 'f', 'BF16': 'f', 'I32': 'i', 'U8': 'B'}
    wide = lambda raw: b''.join(b'\0\0' + raw[i:i + 2] for i in range(0, len(raw), 2))
    return {k: (t, tuple(array.array(form[t], wide(raw) if t == 'BF16' else raw)))
            for k, (t, _, raw) in entries(read(path)).items() if t in types}


def bf16(x):
    """The nearest bf16 of an f32, ties to even."""
    bits = struct.unpack('<I', struct.pack('<f', x))[0]
    return struct.unpack('<f', struct.pack('<I', bits + 0x7fff + (bits >> 16 & 1) & 0xffff0000))[0]


def apart(a, b):
    """The largest relative difference of finite numbers."""
    return max(abs(x - y) / max(abs(y), 1e-9) for x, y in zip(a, b, strict=True) if abs(y) < float('inf'))


def trained(folder):
    """Losses, norms, parameters and states of the run `folder`/out, written with `--dump out.st`. The names of step
    counters and norms have no dot, or are a group's."""
    told = [r for r in map(json.loads, open(f'{folder}/out/metrics.jsonl')) if 'loss' in r]
    shutil.rmtree(f'{folder}/out')
    held = {k: v for k, v in tensors(read(f'{folder}/out.st')).items() if k.startswith(('h.', 'wte', 'wpe', 'ln_f'))}
    return [r['loss'] for r in told], [r.get('grad_norm') or 0 for r in told], held


def mend(path, *command):
    """Writes the edits of the one error that the command finds in the file; after them it finds none. The edits."""
    before = dict(cwd=os.path.dirname(path), capture_output=True, text=True,
                  env={**os.environ, 'SHARDC_PATH': EXAMPLES, 'NO_COLOR': '1'})
    command = [*command, '--message-format=json']
    said = subprocess.run(command, **before).stderr
    first = [r for r in map(json.loads, said.splitlines()) if r['code'][0] == 'E' or r['code'] == 'N0902'][0]
    check(first['edits'], f'no edit: {first}')
    data = read(path)
    for e in sorted(first['edits'], key=lambda e: -e['offset']):
        data = data[:e['offset']] + e['text'].encode() + data[e['offset'] + e['length']:]
    open(path, 'wb').write(data)
    p = subprocess.run(command, **before)
    check(p.returncode == 0, f'{first["edits"]} does not mend it: {p.stderr}')
    return first['edits']


def npy(path, kind, shape, values):
    """A .npy file of kind <f4, <i4 or |b1."""
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + '\n'
    open(path, 'wb').write(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(head)) + head.encode()
                           + struct.pack(f'<{len(values)}{kind[1] if kind != "|b1" else "?"}', *values))


def text_file(path, size=60000):
    """Real text, the same on every machine and in every state of this repository (tests/common/plays)."""
    data = open(os.path.join(ROOT, 'tests', 'common', 'plays'), 'rb').read()
    while len(data) < size: data += data
    open(path, 'wb').write(data[:size])
    return path


def kernels_in(cache):
    """The number of objects in a cache of kernels, whose other files are digests of 64 bytes."""
    return sum(os.path.getsize(os.path.join(at, name)) > 64 for at, _, names in os.walk(cache) for name in names)


def read(path): return open(path, 'rb').read()


def preload(library):
    """The library where LD_PRELOAD finds it, whose list has spaces between its names."""
    folder = tempfile.mkdtemp(prefix='shardc-preload-')
    atexit.register(shutil.rmtree, folder, True)
    return shutil.copy(library, folder)


def workdir():
    """A folder, removed at the end (it may be in memory) unless check, run or an exception ends the test."""
    d = tempfile.mkdtemp(prefix='shardc test ')          # a space in the path, on purpose
    atexit.register(lambda: failed or hasattr(sys, 'last_value') or shutil.rmtree(d, True))
    return d
