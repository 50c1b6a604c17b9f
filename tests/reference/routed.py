"""Tiny Mixtral, Qwen3-MoE and DeepSeek-V3 against transformers 5.24 (PyTorch 2.15): the losses of five steps of AdamW.

    python3 routed.py SHARDC WORK

Parameter k of the model's list has elements 0.05 sin(0.37 i + k), vectors are 1; tokens are 7 i mod 61. Losses:
relative error <= 1e-6 on one rank, 2e-6 under the plans of the file, as processes. DeepSeek-V3 runs with and without
bias balance: e_score_correction_bias += 0.02 sign(mean(c) - c) after each step, c the tokens of each expert in it.
Mixtral's balance is that of the batch, with micro-batches their mean: backward of loss / 2 of each.
"""
import array, json, math, os, re, shutil, struct, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
LATENT = [('attn', p) for p in ('q_a', 'q_norm.gain', 'q_b', 'kv_a', 'kv_norm.gain', 'kv_b', 'o')]
DENSE = [('dense', p) for p in ('gate', 'up', 'down')]
ROUTED = [('moe', p) for p in ('w_in', 'w_out', 'router', 'shared.gate', 'shared.up', 'shared.down')]
MODELS = {
    'routed_qwen3': (['embed', *['layers.%d.' + p for p in (
        'attn.wq', 'attn.wk', 'attn.wv', 'attn.wo', 'attn.q_norm.gain', 'attn.k_norm.gain', 'moe.w_in', 'moe.w_out',
        'moe.router', 'norm1.gain', 'norm2.gain')], 'norm.gain', 'lm_head'],
        [3.541763, 3.393197, 3.321309, 3.280297, 3.25035]),
    'routed_mixtral': (['embed', *[p + '_%d.' + q for p, q in (
        ('attn', 'wq'), ('attn', 'wk'), ('attn', 'wv'), ('attn', 'wo'), ('router', 'w'), ('moe', 'w_in'),
        ('moe', 'w_out'), ('norm1', 'gain'), ('norm2', 'gain'))], 'norm.gain', 'lm_head'],
        [4.798556, 4.321512, 3.982684, 3.849573, 3.74989]),
    'routed_deepseek': (['embed'] + [f'{a}_{i}.{p}'.replace('dense_0', 'dense').replace('moe_1', 'moe') for i in (0, 1)
                                     for a, p in [*LATENT, *(DENSE, ROUTED)[i], ('norm1', 'gain'), ('norm2', 'gain')]]
        + ['norm.gain', 'lm_head', 'moe.bias'],
        [4.006541, 3.760825, 3.563598, 3.408142, 3.38263]),
}
MODELS['routed_deepseek unbalanced'] = (MODELS['routed_deepseek'][0],
                                        [4.006541, 3.760579, 3.563233, 3.406843, 3.376359])
PARTS = {'routed_mixtral parts': [4.79855, 4.321536, 3.982697, 3.849555, 3.749852]}     # micro-batches of a sample
BIAS = [0.08, 0.0, -0.02, 0.06, -0.02, -0.08, -0.08, 0.04]    # after the five steps
BALANCED = '0.02 * sign('
LAYERS, TOKENS, BATCH, SEQ = 2, 61, 2, 16
ENV = dict(os.environ, SHARDC_PATH=f'{HERE}/../../examples')


def f32(x): return struct.unpack('<f', struct.pack('<f', x))[0]


def filled(k, shape):
    n = math.prod(shape)
    if len(shape) == 1: return [1.0] * n
    step = f32(0.37)
    return [f32(f32(0.05) * f32(math.sin(f32(f32(i * step) + k)))) for i in range(n)]


def listed(names):
    """The parameters in the order of transformers: our name, and the layer of a stack or None."""
    layer = [n for n in names if '%d' in n]
    for n in names:
        if '%d' not in n: yield n, None
        elif n == layer[0]:
            for i in range(LAYERS):
                yield from ((m.replace('.%d', '.*'), i) if '.%d' in m else (m % i, None) for m in layer)


def init(names, shapes, path):
    data = {}
    for k, (name, layer) in enumerate(listed(names)):
        shape = shapes[name]
        part = [0.0] * 8 if name == 'moe.bias' else filled(k, shape[1:] if layer is not None else shape)
        data.setdefault(name, []).extend(part)
    write_weights(data, shapes, path)


def write_weights(data, shapes, path):
    head, at = {}, 0
    for name, values in data.items():
        head[name] = dict(dtype='F32', shape=shapes[name], data_offsets=[at, at + 4 * len(values)])
        at += 4 * len(values)
    text = json.dumps(head).encode()
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text)
        for values in data.values(): f.write(array.array('f', values).tobytes())


def npy(path, values, shape):
    kind = 'i' if isinstance(values[0], int) else 'f'
    head = f"{{'descr': '<{kind}4', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
    head += ' ' * (-(len(head) + 11) % 64) + '\n'
    with open(path, 'wb') as f:
        f.write(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(head)) + head.encode())
        f.write(array.array(kind, values).tobytes())


def check_bias(folder):
    with open(f'{folder}/rank-00000.safetensors', 'rb') as f:
        head = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
        at, to = head['moe.bias']['data_offsets']
        data = f.read()[at:to]
    got = struct.unpack('<8f', data)
    assert all(abs(a - b) < 1e-6 for a, b in zip(got, BIAS)), got


def losses(shardc, file, plan, folder):
    out = f'{folder}/{plan or "one"}'
    subprocess.run([shardc, 'run', file, '-q', '--quick', *(['--plan', plan] if plan else []), '--', '--init',
                    f'{folder}/init.safetensors', '--out', out, '--quiet'], check=True, cwd=folder, env=ENV)
    if BALANCED in open(file).read(): check_bias(f'{out}/step-000005')
    return [x['loss'] for x in map(json.loads, open(f'{out}/metrics.jsonl')) if 'loss' in x]


def trained(optim, loss_of, after=lambda: None):
    """The losses of five steps of a model of PyTorch."""
    out = []
    for _ in range(5):
        loss = loss_of()
        out.append(float('%.9g' % loss.item()))
        optim.zero_grad(), loss.backward(), optim.step(), after()
    return out


def compare(name, shardc, file, folder, wanted):
    """The number of plans of the file (and one rank) whose losses differ from those of PyTorch."""
    bad = 0
    for plan in [None, *re.findall(r'^plan (\w+)', open(file).read(), re.M)]:
        got, right = losses(shardc, file, plan, folder), PARTS.get(f'{name} {plan}', wanted)
        errors = [abs(a - b) / b for a, b in zip(got, right)]
        print(f'{name}, {plan or "one rank"}: {len(got)} losses, worst relative error {max(errors, default=1):.1e}',
              flush=True)
        wrong = len(got) != len(right) or not all(e <= (2e-6 if plan else 1e-6) for e in errors)
        if wrong: print(got, right)
        bad += wrong
    return bad


def shapes_of(shardc, file, folder):
    subprocess.run([shardc, 'compile', file, '-o', f'{folder}/exe', '-q', '--quick'], check=True, env=ENV, cwd=folder)
    info = subprocess.run([f'{folder}/exe', 'info', '--json'], check=True, capture_output=True, text=True).stdout
    return {t['name']: t['shape'] for t in json.loads(info)['tensors'] if t['kind'] == 'parameter'}


def main():
    shardc, work, bad = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), 0
    ids = [7 * i % TOKENS for i in range(BATCH * SEQ)]
    after = [t for b in range(BATCH) for t in ids[b * SEQ + 1:(b + 1) * SEQ] + [-100]]
    for model, (names, wanted) in MODELS.items():
        folder, file = f'{work}/{model.replace(" ", "_")}', f'{HERE}/{model.split()[0]}.shard'
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        if ' ' in model:
            text = open(file).read()
            file = f'{folder}/model.shard'
            open(file, 'w').write(text.replace(BALANCED, '0 * sign('))
        npy(f'{folder}/tokens.npy', ids, (BATCH, SEQ))
        npy(f'{folder}/targets.npy', after, (BATCH, SEQ))
        init(names, shapes_of(shardc, file, folder), f'{folder}/init.safetensors')
        bad += compare(model, shardc, file, folder, wanted)
    sys.exit(bad > 0)


if __name__ == "__main__": main()
