"""Files of experts: python3 expert_files.py SHARDC

Weights of small Mixtral, Qwen3-MoE and DeepSeek-V3 models under the names of Hugging Face, one tensor per expert and
matrix or all experts in one: `--init` reads both, `export` writes the first of them, bit for bit. A file that lacks an
expert, or has one more, is refused with its name.
"""
import array, json, os, random, shutil, struct, sys
from common import EXAMPLES, check, entries, run, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
SIZES = {'Vocab': 48, 'Embed': 16, 'Mlp': 6, 'Layers': 2, 'Kv': 2, 'Group': 2, 'Head': 4, 'Seq': 16}
ATTENTION = {'q_proj': [16, 16], 'k_proj': [8, 16], 'v_proj': [8, 16], 'o_proj': [16, 16]}


def write(path, tensors):
    """{name: (shape, numbers)} as safetensors of f32."""
    head, data = {}, b''
    for name, (shape, numbers) in tensors.items():
        piece = struct.pack(f'<{len(numbers)}f', *numbers)
        head[name] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [len(data), len(data) + len(piece)]}
        data += piece
    text = json.dumps(head).encode()
    open(path, 'wb').write(struct.pack('<Q', len(text)) + text + data)


def read(path):
    with open(path, 'rb') as file: data = file.read()
    return {k: (shape, array.array('f', raw).tolist()) for k, (_, shape, raw) in entries(data).items()}


def numbers(r, shape):
    n = 1
    for size in shape: n *= size
    return shape, [struct.unpack('<f', struct.pack('<f', r.gauss(0, 0.3)))[0] for _ in range(n)]


def single(experts, prefix, gate, names, extra):
    """A file with one tensor per expert."""
    r, t = random.Random(5), {}
    t['model.embed_tokens.weight'], t['lm_head.weight'] = numbers(r, [48, 16]), numbers(r, [48, 16])
    t['model.norm.weight'] = numbers(r, [16])
    for n in range(2):
        layer = f'model.layers.{n}.'
        for name in 'input_layernorm', 'post_attention_layernorm': t[f'{layer}{name}.weight'] = numbers(r, [16])
        for name, shape in {**ATTENTION, **extra}.items(): t[f'{layer}self_attn.{name}.weight'] = numbers(r, shape)
        t[f'{layer}{gate}.weight'] = numbers(r, [experts, 16])
        for i in range(experts):
            for name, shape in zip(names, ([6, 16], [6, 16], [16, 6])):
                t[f'{layer}{prefix}.{i}.{name}.weight'] = numbers(r, shape)
    return t


def fused(tensors, experts, prefix, gate, names):
    """The same numbers with all experts in one tensor, the rows of `gate` before those of `up`."""
    t = {k.replace(gate, 'mlp.gate'): v for k, v in tensors.items() if f'.{prefix}.' not in k}
    for n in range(2):
        of = lambda i, name: tensors[f'model.layers.{n}.{prefix}.{i}.{name}.weight'][1]
        t[f'model.layers.{n}.mlp.experts.gate_up_proj'] = (
            [experts, 12, 16], [x for i in range(experts) for name in names[:2] for x in of(i, name)])
        t[f'model.layers.{n}.mlp.experts.down_proj'] = (
            [experts, 16, 6], [x for i in range(experts) for x in of(i, names[2])])
    return t


def refused(exe, path, tensors, *words):
    write(path, tensors)
    _, said = run(exe, 'export', '--init', path, '--out', f'{folder}/none', cwd=folder, expect=4)
    for word in words: check(word in said, f'no {word}: {said}')


def both_ways(model, experts, prefix, gate, names, extra={}):
    exe, at = f'{folder}/{model}', f'{folder}/{model}.safetensors'
    sizes = [x for d, n in {**SIZES, 'Experts': experts}.items() for x in ('-D', f'{d}={n}')]
    run(SHARDC, 'compile', '--quick', f'{EXAMPLES}/{model}.shard', '-o', exe, *sizes, '-q', cwd=folder)
    one = single(experts, prefix, gate, names, extra)
    for n, tensors in enumerate((one, fused(one, experts, prefix, gate, names))):
        write(at, tensors), shutil.rmtree(f'{exe}.out', ignore_errors=True)
        run(exe, 'export', '--init', at, '--out', f'{exe}.out', cwd=folder)
        back = read(f'{exe}.out/model.safetensors')
        check(back == one, f'{model} {n}: {set(back) ^ set(one)} {[k for k in one if back.get(k) != one[k]][:3]}')
    config = json.load(open(f'{exe}.out/config.json'))
    check(experts in config.values(), f'{model}: {config}')
    last = f'model.layers.1.{prefix}.{experts - 1}.{names[1]}.weight'
    refused(exe, at, {k: v for k, v in one.items() if k != last}, last)
    more = last.replace(f'.{experts - 1}.', f'.{experts}.')
    refused(exe, at, {**one, more: one[last]}, more, 'no parameter')
    print(model, len(one), 'tensors, both ways', flush=True)


def over_ranks():
    """Each of four ranks has a part of the experts, and a part of their matrices."""
    text = open(f'{EXAMPLES}/mixtral.shard').read()
    open(f'{folder}/ranks.shard', 'w').write(text + '''plan four for Mixtral {
  mesh  ep = 2, tensor = 2
  place Experts -> ep else Batch
  place Mlp, Kv -> tensor
  zero  3 over ep
}
''')
    exe, at = f'{folder}/ranks', f'{folder}/ranks.safetensors'
    sizes = [x for d, n in {**SIZES, 'Experts': 8, 'Mlp': 6}.items() for x in ('-D', f'{d}={n}')]
    sizes += ['--set', 'train.batch=8']
    run(SHARDC, 'compile', '--quick', 'ranks.shard', '--plan', 'four', '-o', exe, *sizes, '-q', cwd=folder)
    one = single(8, 'block_sparse_moe.experts', 'block_sparse_moe.gate', ('w1', 'w3', 'w2'), {})
    write(at, one)
    run(SHARDC, 'run', '-n', '4', exe, '--', 'export', '--init', at, '--out', f'{exe}.out', cwd=folder)
    back = read(f'{exe}.out/model.safetensors')
    check(back == one, f'ranks: {[k for k in one if back.get(k) != one[k]][:3]}')
    print('four ranks', len(one), 'tensors', flush=True)


def deepseek():
    """Layers of the file are those of two stacks; its experts are fused or not."""
    sizes = dict(Vocab=48, Embed=16, First=2, Layers=2, Heads=2, Narrow=6, Latent=5, Plain=4, Turn=4, Head=4, Wide=10,
                 Mlp=6, Experts=16, Groups=8, Seq=64)
    exe, at, r = f'{folder}/deepseek', f'{folder}/deepseek.safetensors', random.Random(6)
    text = open(f'{EXAMPLES}/deepseek_v3.shard').read().replace('*+3', '*+2')
    text = text.replace('Slot    = 3 * Seq / 64', 'Slot = Seq')
    open(f'{folder}/deepseek.shard', 'w').write(text)
    dims = [x for d, n in sizes.items() for x in ('-D', f'{d}={n}')]
    run(SHARDC, 'compile', '--quick', 'deepseek.shard', '-o', exe, '-q', *dims, cwd=folder)
    t = {'model.embed_tokens.weight': [48, 16], 'lm_head.weight': [48, 16], 'model.norm.weight': [16]}
    for n in range(4):
        layer = f'model.layers.{n}.'
        t.update({f'{layer}{name}.weight': [16] for name in ('input_layernorm', 'post_attention_layernorm')})
        t.update({f'{layer}self_attn.{name}.weight': shape for name, shape in (
            ('q_a_proj', [6, 16]), ('q_a_layernorm', [6]), ('q_b_proj', [16, 6]), ('kv_a_proj_with_mqa', [9, 16]),
            ('kv_a_layernorm', [5]), ('kv_b_proj', [16, 5]), ('o_proj', [16, 8]))})
        if n > 1: t.update({f'{layer}mlp.gate.weight': [16, 16], f'{layer}mlp.gate.e_score_correction_bias': [16]})
        of = ['mlp'] if n < 2 else ['mlp.shared_experts', *[f'mlp.experts.{i}' for i in range(16)]]
        for name in of:
            wide = 10 if n < 2 else 6
            t.update({f'{layer}{name}.{m}_proj.weight': [16, wide] if m == 'down' else [wide, 16]
                      for m in ('gate', 'up', 'down')})
    one = {name: numbers(r, shape) for name, shape in t.items()}
    write(at, one)
    run(exe, 'export', '--init', at, '--out', f'{exe}.out', cwd=folder)
    back = read(f'{exe}.out/model.safetensors')
    check(back == one, f'deepseek: {set(back) ^ set(one)} {[k for k in one if back.get(k) != one[k]][:3]}')
    refused(exe, at, {**one, 'model.layers.4.input_layernorm.weight': one['model.norm.weight']}, 'model.layers.4')
    print('deepseek', len(one), 'tensors', flush=True)


both_ways('mixtral', 8, 'block_sparse_moe.experts', 'block_sparse_moe.gate', ('w1', 'w3', 'w2'))
both_ways('qwen3_moe', 16, 'mlp.experts', 'mlp.gate', ('gate_proj', 'up_proj', 'down_proj'),
          {'q_norm': [4], 'k_norm': [4]})
over_ranks()
deepseek()
