"""A tiny DiT against the same model written in PyTorch 2.15: the losses of five steps of AdamW.

    python3 dit_small.py SHARDC WORK
    python3 dit_small.py make         prints the losses; wants torch, and the shapes that a run of the test leaves in
                                      WORK/shapes.json: python3 dit_small.py make WORK

Parameter k in the order of names has elements ((31 i i + 7 i + 977 k) mod 1009 - 504) / 2520. Losses: relative error
<= 1e-6 on one rank, 2e-6 under the plans of the file, as processes.
"""
import json, math, os, shutil, sys
import routed, scores

BATCH, TOKENS, PATCH, FREQ, CLASSES = 4, 24, 8, 8, 11
LOSSES = [1.1438508, 1.00495434, 0.888158381, 0.794019639, 0.722061157]


def wave(n, a, b): return [routed.f32(math.sin(a * i + b)) for i in range(n)]


COLUMNS = {'noisy': ([BATCH, TOKENS, PATCH], wave(BATCH * TOKENS * PATCH, 0.7, 0.1)),
           'noise': ([BATCH, TOKENS, PATCH], wave(BATCH * TOKENS * PATCH, 0.3, 0.5)),
           'time': ([BATCH], [routed.f32(137.5 * i + 3) for i in range(BATCH)]),
           'label': ([BATCH], [(5 * i + 2) % CLASSES for i in range(BATCH)])}


def weights(shapes):
    return {name: [routed.f32(x / 2) for x in scores.elements(k, math.prod(shapes[name]))]
            for k, name in enumerate(sorted(shapes))}


def make(work):
    import torch
    from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention, silu
    torch.set_num_threads(1)
    shapes = json.load(open(f'{work}/shapes.json'))
    p = {n: torch.tensor(v).reshape(shapes[n]).requires_grad_() for n, v in weights(shapes).items()}
    data = {n: torch.tensor(v).reshape(s) for n, (s, v) in COLUMNS.items()}

    def plain(x): return layer_norm(x, x.shape[-1:], eps=1e-6)

    def linear(x, name, i=None):
        w, b = (p[f'{name}.{s}'] if i is None else p[f'{name}.{s}'][i] for s in 'wb')
        width = x.shape[-1]
        return x @ w.reshape(width, -1) + b.reshape(-1)

    def forward():
        angle = data['time'][:, None] * torch.exp(-math.log(10000) / FREQ * torch.arange(FREQ))
        c = linear(silu(linear(torch.cat([angle.cos(), angle.sin()], -1), 'time1')), 'time2')
        c = c + p['class'][data['label']]
        x = linear(data['noisy'], 'patch') + p['place']
        for i in range(3):
            shift1, scale1, gate1, shift2, scale2, gate2 = linear(silu(c), 'blocks.*.mod', i)[:, None].chunk(6, -1)
            h = plain(x) * (1 + scale1) + shift1
            q, k, v = (linear(h, f'blocks.*.attn.{n}', i).reshape(BATCH, TOKENS, 4, 8).transpose(1, 2) for n in 'qkv')
            y = scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(BATCH, TOKENS, 32)
            x = x + gate1 * linear(y, 'blocks.*.attn.out', i)
            h = plain(x) * (1 + scale2) + shift2
            x = x + gate2 * linear(gelu(linear(h, 'blocks.*.up', i), approximate='tanh'), 'blocks.*.down', i)
        shift, scale = linear(silu(c), 'mod')[:, None].chunk(2, -1)
        return ((linear(plain(x) * (1 + scale) + shift, 'head') - data['noise'])**2).mean()

    optim = torch.optim.AdamW(p.values(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)
    print(f'LOSSES = {routed.trained(optim, forward)}')


def compare(model, columns, wanted):
    """The losses of MODEL.shard, on one rank and under its plans, with those of PyTorch."""
    shardc, folder = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    file = f'{routed.HERE}/{model}.shard'
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for name, (shape, values) in columns.items(): routed.npy(f'{folder}/{name}.npy', values, shape)
    shapes = routed.shapes_of(shardc, file, folder)
    json.dump(shapes, open(f'{folder}/shapes.json', 'w'))
    routed.write_weights(weights(shapes), shapes, f'{folder}/init.safetensors')
    sys.exit(routed.compare(model, shardc, file, folder, wanted) > 0)


if __name__ == '__main__':
    if sys.argv[1] == 'make': make(sys.argv[2])
    else: compare('dit_small', COLUMNS, LOSSES)
