"""The reference models through every pass, executed by the interpreter in bytes, against PyTorch: no kernels, no host
code.

    python3 interpret.py INTERPRET NAME WORKDIR

Losses of 20 steps: relative error <= 1e-5. A failure of this test is a fault before code generation. Standard library
only.
"""
import array, json, os, subprocess, sys
from run import EXAMPLES, HERE, safetensors

WINDOWS = {'gpt2_small': (6, 24), 'llama_small': (5, 20)}     # batch, seq: the whole data set


def npy(path):
    b = open(path, 'rb').read()
    end = 10 + int.from_bytes(b[8:10], 'little')
    a = array.array('f' if b"'<f4'" in b[:end] else 'i')
    a.frombytes(b[end:])
    return a


def inputs(name):
    if name == 'mlp': return {'x': npy(f'{HERE}/mlp.x.npy'), 'y': npy(f'{HERE}/mlp.y.npy')}
    batch, seq = WINDOWS[name]
    t = array.array('H', open(f'{HERE}/{name}.bin', 'rb').read())
    window = lambda shift: [t[b * seq + s + shift] for b in range(batch) for s in range(seq)]
    return {'tokens': window(0), 'targets': window(1)}


def main():
    program, name, work = sys.argv[1:]
    os.makedirs(work, exist_ok=True)
    values = {k: v for k, (_, v) in safetensors(f'{HERE}/{name}.init.safetensors').items()} | inputs(name)
    with open(f'{work}/values', 'wb') as f:
        for k, v in values.items(): f.write(f'{k} {len(v)}\n'.encode() + array.array('d', v).tobytes())
    out = subprocess.run([program, f'{HERE}/{name}.shard', f'{work}/values', '20'], stdout=subprocess.PIPE,
                         env=dict(os.environ, SHARDC_PATH=EXAMPLES), check=True, text=True).stdout
    got, want = [float(x) for x in out.split()], json.load(open(f'{HERE}/{name}.losses.json'))['losses']
    worst = max(abs(a - b) / abs(b) for a, b in zip(got, want))
    print(f'{len(got)} losses, worst relative error {worst:.1e}')
    return len(got) != len(want) or not worst <= 1e-5


if __name__ == '__main__': sys.exit(main())
