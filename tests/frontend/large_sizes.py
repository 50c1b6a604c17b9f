"""Sizes near the limits of integer types: python3 large_sizes.py SHARDC ROOT [SEED] [MANY]

Examples with a dim set by -D, or an axis of a mesh by --set, to the largest 32-bit number, primes, numbers whose
products overflow 63 bits, 1 and 0: `plan` ends with an answer or a diagnostic that has a place, not with an internal
error. A command that takes a minute of processor time counts as one without an end (it takes a tenth of a second).
"""
import glob, os, random, re, resource, subprocess, sys

SHARDC, ROOT = (os.path.abspath(a) for a in sys.argv[1:3])
rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
MANY = int(sys.argv[4]) if len(sys.argv) > 4 else 60
VALUES = [2147483647, 2147483629, 4611686018427387847, 3037000500, 1048576, 65521, 1, 0]
EXAMPLES = os.path.join(ROOT, 'examples')


def cases():
    for file in sorted(glob.glob(f'{EXAMPLES}/*.shard')):
        text = re.sub(r'#.*', '', open(file).read())
        used = re.findall(r'^use "(\w+)"', text, re.M)
        text += ''.join(open(f'{EXAMPLES}/{u}.shard').read() for u in used if os.path.isfile(f'{EXAMPLES}/{u}.shard'))
        blocks = re.findall(r'^dims \{(.*?)\}', text, re.M | re.S)
        dims = {d for block in blocks for d in re.findall(r'\b[A-Z]\w*', block)}
        axes = {a for line in re.findall(r'^\s*mesh (.*)', text, re.M) for a in re.findall(r'(\w+) *=', line)}
        for dim in sorted(dims): yield [file, '-D', f'{dim}={{}}']
        for axis in sorted(axes): yield [file, '--set', f'plan.mesh.{axis}={{}}']
        for word in ('plan.micro', 'train.batch', 'plan.zero.bucket'): yield [file, '--set', f'{word}={{}}']


def limit(): resource.setrlimit(resource.RLIMIT_CPU, (60, 60))


LONG = [  # many micro-batches on the stages of a pipeline, many layers
    (('tiny_ranks', '--set', 'train.batch={}'), 262144),
    (('gpt1t', '--set', 'plan.mesh.data={}'), 2),
    (('gemma3', '-D', 'Layers={}'), 16381),
]
bad, ends = [], {}
every = list(cases())
chosen = [(c, v) for c in every for v in VALUES]
chosen = rng.sample(chosen, min(MANY, len(chosen)))
chosen += [((f'{EXAMPLES}/{c[0]}.shard', *c[1:]), v) for c, v in LONG]
for case, value in chosen:
    command = [SHARDC, 'plan', case[0], case[1], case[2].format(value)]
    p = subprocess.run(command, capture_output=True, text=True, errors='replace', preexec_fn=limit,
                       env={**os.environ, 'NO_COLOR': '1', 'SHARDC_PATH': EXAMPLES})
    ends[p.returncode] = ends.get(p.returncode, 0) + 1
    said = p.returncode == 0 or re.search(r'^error(\[E\d+\])?: ', p.stderr, re.M) or p.returncode == 2
    if p.returncode not in (0, 1, 2, 3) or not said or 'runtime error' in p.stderr:
        bad.append(f'{" ".join(command[1:])}: exit {p.returncode}\n{p.stderr[-600:]}')
print(f'{len(every)} dims, axes and words of the examples; by exit: {dict(sorted(ends.items()))}')
if bad: sys.exit('\n'.join(bad))
