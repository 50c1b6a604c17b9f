"""Compiles a reference model, trains it, and compares with the figures that make.py got from PyTorch.

    python3 run.py SHARDC NAME WORKDIR [compile options]

Losses of 20 steps: relative error <= 5e-5. Gradients of step 1, every parameter: |g - ref| <= 2e-5 max(|ref|, 1e-5
|all|) + 6e-8 |all|; the last term is a rounding of f32, for gradients that cancel to 0 (the bias of keys). With `--set
plan.precision=bf16` the figures are those of PyTorch's autocast (NAME.bf16), which rounds elsewhere: its gradients of
parameters are f32, ours are bf16, and so on. Losses: relative error <= 5e-3; gradients: |g - ref| <= 3e-2 max(|ref|,
1e-2 |all|). With f16 (NAME.f16) the bounds are an eighth of these; with a `plan.precision.init_scale` (NAME.f16_skip)
the first steps overflow and both sides skip them: only losses are compared. Needs the standard library only.
"""
import array, json, math, os, shutil, struct, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(HERE, '..', '..', 'examples')


def safetensors(path):
    with open(path, 'rb') as f:
        n, = struct.unpack('<Q', f.read(8))
        head, data = json.loads(f.read(n)), f.read()
    out = {}
    for name, t in head.items():
        if name == '__metadata__' or t['dtype'] != 'F32': continue
        a = array.array('f')
        a.frombytes(data[t['data_offsets'][0]:t['data_offsets'][1]])
        out[name] = (t['shape'], a)
    return out


def norm(a): return math.sqrt(sum(x * x for x in a))


def compare_gradients(got, ref, narrow):
    total, bad, worst = norm([norm(a) for _, a in ref.values()]), 0, 0
    for name, (shape, r) in ref.items():
        made = name.replace('grad.', 'grad.of.', 1)      # as the program calls it
        if made not in got: print(f'{name}: missing'); bad += 1; continue
        gshape, g = got[made]
        if gshape != shape: print(f'{name}: shape {gshape}, expected {shape}'); bad += 1; continue
        e = norm([x - y for x, y in zip(g, r)])
        e = max(0, e - 6e-8 * total) / max(norm(r), (1e-2 if narrow else 1e-5) * total)
        worst = max(worst, e)
        if not e <= (3e-2 * narrow or 2e-5): print(f'{name}: relative error {e:.2e}'); bad += 1
    print(f'{len(ref)} gradients, worst relative error {worst:.1e}')
    return bad


def compare_losses(got, ref, narrow):
    if len(got) != len(ref): print(f'{len(got)} losses, expected {len(ref)}'); return 1
    worst = max(abs(a - b) / abs(b) for a, b in zip(got, ref))
    print(f'{len(ref)} losses, worst relative error {worst:.1e}')
    return not worst <= (5e-3 * narrow or 5e-5)


def main():
    shardc, name, work, options = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
    shutil.rmtree(work, ignore_errors=True); os.makedirs(work)
    env = dict(os.environ, SHARDC_PATH=EXAMPLES)
    run = lambda *c: subprocess.run(c, check=True, env=env, cwd=HERE)
    exe, init = f'{work}/{name}', f'{HERE}/{name}.init.safetensors'
    run(shardc, 'compile', f'{HERE}/{name}.shard', '-o', exe, '--set', 'debug.gradients=on', *options)
    run(exe, 'train', '--init', init, '--steps', '1', '--out', f'{work}/one', '--dump', f'{work}/dump.safetensors')
    run(exe, 'train', '--init', init, '--out', f'{work}/all')
    lines = [json.loads(x) for x in open(f'{work}/all/metrics.jsonl')]
    kind = next((o[15:] for o in options if o.startswith('plan.precision=')), None)
    skips = any(o.startswith('plan.precision.init_scale') for o in options)
    narrow = {None: 0, 'bf16': 1, 'f16': 1 / 8}[kind]
    if kind: name += f'.{kind}' + '_skip' * skips
    bad = compare_losses([x['loss'] for x in lines if 'loss' in x],
                         json.load(open(f'{HERE}/{name}.losses.json'))['losses'], narrow)
    if skips: return bad + (sum('skipped' in x for x in lines) < 3)
    return bad + compare_gradients(safetensors(f'{work}/dump.safetensors'),
                                   safetensors(f'{HERE}/{name}.grads.safetensors'), narrow)


if __name__ == "__main__": sys.exit(main() > 0)
