"""A tiny nGPT against the same model written in PyTorch 2.15: the losses of five steps of AdamW, after each of which
every matrix is divided by its norms along Embed (`project`).

    python3 ngpt_small.py SHARDC WORK
    python3 ngpt_small.py make WORK     prints the losses; wants torch, and the shapes that a run of the test leaves in
                                        WORK/shapes.json

Parameters as in dit_small.py. Losses: relative error <= 1e-6 on one rank, 2e-6 under the plans of the file, as
processes.
"""
import json, math, sys
import dit_small, routed

BATCH, SEQ, VOCAB, LAYERS = 4, 16, 61, 3
LOSSES = [4.10806942, 4.07728386, 4.05953979, 4.04245567, 4.0257535]
COLUMNS = {name: ([BATCH, SEQ], [(7 * i + 3 * (i // 5) + add) % VOCAB for i in range(BATCH * SEQ)])
           for name, add in (('tokens', 2), ('targets', 9))}
# the axis of Embed, in each matrix of a layer
ALONG = {'q': 0, 'k': 0, 'v': 0, 'out': 2, 'gate': 0, 'up': 0, 'down': 1}


def make(work):
    import torch
    from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu
    torch.set_num_threads(1)
    shapes = json.load(open(f'{work}/shapes.json'))
    p = {n: torch.tensor(v).reshape(shapes[n]).requires_grad_() for n, v in dit_small.weights(shapes).items()}
    data = {n: torch.tensor(v).reshape(s) for n, (s, v) in COLUMNS.items()}

    def unit(x, axis=-1): return x / (x * x).sum(axis, keepdim=True).sqrt()

    def forward():
        x = unit(p['embed'][data['tokens']])
        for i in range(LAYERS):
            w = {n: p[f'layers.*.{n}'][i] for n in [*ALONG, 'rate1', 'rate2']}
            q, k, v = (torch.einsum('bse,ehd->bhsd', x, w[n]) for n in 'qkv')
            a = scaled_dot_product_attention(unit(q), unit(k), v, is_causal=True, scale=math.sqrt(8))
            h = unit(x + w['rate1'] * (unit(torch.einsum('bhsd,hde->bse', a, w['out'])) - x))
            m = (silu(h @ w['gate']) * (h @ w['up'])) @ w['down']
            x = unit(h + w['rate2'] * (unit(m) - h))
        return cross_entropy((p['scale'] * (x @ p['head'])).reshape(-1, VOCAB), data['targets'].reshape(-1))

    def project():
        with torch.no_grad():
            for name, axis in ALONG.items(): p[f'layers.*.{name}'].copy_(unit(p[f'layers.*.{name}'], axis + 1))
            p['embed'].copy_(unit(p['embed'])), p['head'].copy_(unit(p['head'], 0))

    optim = torch.optim.AdamW(p.values(), lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    print(f'LOSSES = {routed.trained(optim, forward, project)}')


if __name__ == '__main__':
    if sys.argv[1] == 'make': make(sys.argv[2])
    else: dit_small.compare('ngpt_small', COLUMNS, LOSSES)
