"""Makes the reference figures with PyTorch: for each small model the initial weights, the data, the gradients of the
first step and the losses of 20 optimizer steps. The files it writes are committed; running it again needs torch, numpy
and safetensors, and must reproduce them up to the last bits of f32.

    python3 make.py [NAME...]        names: those of MODELS, below; the later ones are in zoo.py and unseen.py

NAME.bf16 is the model NAME from the same beginning under PyTorch's autocast to bf16, for the models of NARROW; NAME.f16
to f16 with its GradScaler, NAME.f16_skip the same from a scale at which the first steps overflow and are skipped (no
gradients then).

Parameters carry the paths of the model files; those of a stack are written stacked, [Layers, ...], as `h.*.name`.
"""
import json, math, os, sys
import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file
import unseen, zoo

HERE = os.path.dirname(os.path.abspath(__file__))
torch.manual_seed(0)
torch.set_num_threads(1)


def param(rng, *shape, std=0.02, mean=0.0):
    return torch.tensor((mean + std * rng.standard_normal(shape)).astype(np.float32), requires_grad=True)


def mlp(rng):
    w = {}
    for name, (i, o) in {'fc1': (20, 37), 'fc2': (37, 24), 'fc3': (24, 5)}.items():
        w[name + '.w'], w[name + '.b'] = param(rng, i, o, std=0.2), param(rng, o, std=0.05)
    x = rng.standard_normal((64, 20)).astype(np.float32)
    y = rng.integers(0, 5, 64).astype(np.int32)
    np.save(f'{HERE}/mlp.x.npy', x), np.save(f'{HERE}/mlp.y.npy', y)
    x, y = torch.tensor(x), torch.tensor(y).long()

    def loss():
        h = F.relu(x @ w['fc1.w'] + w['fc1.b'])
        h = F.gelu(h @ w['fc2.w'] + w['fc2.b'])
        return F.cross_entropy(h @ w['fc3.w'] + w['fc3.b'], y)
    return w, loss, dict(lr=3e-3, betas=(0.9, 0.999), decay=0.01, schedule=lambda t: 1.0, clip=None)


def tokens(rng, name, vocab, batch, seq):
    t = rng.integers(0, vocab, batch * seq + 1).astype(np.uint16)
    t.tofile(f'{HERE}/{name}.bin')
    t = torch.tensor(t.astype(np.int64))
    window = torch.stack([t[i * seq:i * seq + seq + 1] for i in range(batch)])
    return window[:, :-1], window[:, 1:]


def gpt2_small(rng):
    V, P, E, H, L, B, S = 67, 32, 48, 3, 2, 6, 24
    D, M = E // H, 4 * E
    w = {'wte': param(rng, V, E), 'wpe': param(rng, P, E),
         'h.*.ln_1.gain': param(rng, L, E, std=0.1, mean=1), 'h.*.ln_1.bias': param(rng, L, E),
         'h.*.attn.c_attn': param(rng, L, E, 3, H, D, std=0.1), 'h.*.attn.c_attn_b': param(rng, L, 3, H, D),
         'h.*.attn.c_proj': param(rng, L, H, D, E, std=0.1), 'h.*.attn.c_proj_b': param(rng, L, E),
         'h.*.ln_2.gain': param(rng, L, E, std=0.1, mean=1), 'h.*.ln_2.bias': param(rng, L, E),
         'h.*.mlp.c_fc.w': param(rng, L, E, M, std=0.1), 'h.*.mlp.c_fc.b': param(rng, L, M),
         'h.*.mlp.c_proj.w': param(rng, L, M, E, std=0.1), 'h.*.mlp.c_proj.b': param(rng, L, E),
         'ln_f.gain': param(rng, E, std=0.1, mean=1), 'ln_f.bias': param(rng, E)}
    x0, y0 = tokens(rng, 'gpt2_small', V, B, S)

    def block(x, i):
        p = {k[4:]: v[i] for k, v in w.items() if k.startswith('h.*.')}
        h = F.layer_norm(x, (E,), p['ln_1.gain'], p['ln_1.bias'])
        q, k, v = (torch.einsum('bse,eqhd->qbhsd', h, p['attn.c_attn'])
                   + p['attn.c_attn_b'][:, None, :, None, :]).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + torch.einsum('bhsd,hde->bse', y, p['attn.c_proj']) + p['attn.c_proj_b']
        h = F.layer_norm(x, (E,), p['ln_2.gain'], p['ln_2.bias'])
        return x + F.gelu(h @ p['mlp.c_fc.w'] + p['mlp.c_fc.b'],
                          approximate='tanh') @ p['mlp.c_proj.w'] + p['mlp.c_proj.b']

    def loss():
        x = w['wte'][x0] + w['wpe'][:S]
        for i in range(L): x = block(x, i)
        x = F.layer_norm(x, (E,), w['ln_f.gain'], w['ln_f.bias'])
        return F.cross_entropy((x @ w['wte'].T).reshape(-1, V), y0.reshape(-1))

    def schedule(t):
        if t < 4: return (t + 1) / 4
        return 0.1 + 0.9 * (1 + math.cos(math.pi * (t - 4) / 16)) / 2
    return w, loss, dict(lr=2e-3, betas=(0.9, 0.95), decay=0.1, schedule=schedule, clip=1.0)


def gpt2_muon(rng):
    w, loss, o = gpt2_small(np.random.default_rng(sum(map(ord, 'gpt2_small'))))      # the same data
    ins = {'h.*.attn.c_attn': 1, 'h.*.attn.c_proj': 2, 'h.*.mlp.c_fc.w': 1, 'h.*.mlp.c_proj.w': 1}
    return w, loss, o | dict(groups=[(list(ins), dict(lr=2e-2, decay=0.1, muon=ins))])


def llama_small(rng):
    V, E, K, G, D, M, L, B, S = 61, 64, 2, 2, 16, 88, 3, 5, 20
    w = {'embed': param(rng, V, E, std=0.3), 'lm_head': param(rng, V, E, std=0.1),
         'layers.*.norm1.gain': param(rng, L, E, std=0.1, mean=1),
         'layers.*.attn.wq': param(rng, L, K, G, D, E, std=0.1), 'layers.*.attn.wk': param(rng, L, K, D, E, std=0.1),
         'layers.*.attn.wv': param(rng, L, K, D, E, std=0.1), 'layers.*.attn.wo': param(rng, L, E, K, G, D, std=0.1),
         'layers.*.norm2.gain': param(rng, L, E, std=0.1, mean=1),
         'layers.*.mlp.gate.w': param(rng, L, E, M, std=0.1), 'layers.*.mlp.up.w': param(rng, L, E, M, std=0.1),
         'layers.*.mlp.down.w': param(rng, L, M, E, std=0.1), 'norm.gain': param(rng, E, std=0.1, mean=1)}
    x0, y0 = tokens(rng, 'llama_small', V, B, S)
    a = torch.arange(S)[:, None] * 500000.0 ** (-2 * torch.arange(D // 2) / D)
    cos, sin = torch.cat([a.cos()] * 2, -1), torch.cat([a.sin()] * 2, -1)

    def rope(x): return x * cos + torch.cat([-x[..., D // 2:], x[..., :D // 2]], -1) * sin
    def norm(x, g): return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * g

    def block(x, i):
        p = {k[9:]: v[i] for k, v in w.items() if k.startswith('layers.*.')}
        h = norm(x, p['norm1.gain'])
        q = rope(torch.einsum('bse,kgde->bkgsd', h, p['attn.wq']))
        k = rope(torch.einsum('bse,kde->bksd', h, p['attn.wk']))
        v = torch.einsum('bse,kde->bksd', h, p['attn.wv'])
        s = torch.einsum('bkgqd,bkcd->bkgqc', q, k) / math.sqrt(D)
        s = s.masked_fill(torch.ones(S, S).triu(1).bool(), float('-inf')).softmax(-1)
        x = x + torch.einsum('bkgqc,bkcd,ekgd->bqe', s, v, p['attn.wo'])
        h = norm(x, p['norm2.gain'])
        return x + (F.silu(h @ p['mlp.gate.w']) * (h @ p['mlp.up.w'])) @ p['mlp.down.w']

    def loss():
        x = w['embed'][x0]
        for i in range(L): x = block(x, i)
        return F.cross_entropy((norm(x, w['norm.gain']) @ w['lm_head'].T).reshape(-1, V), y0.reshape(-1))
    return w, loss, dict(lr=1e-3, betas=(0.9, 0.95), decay=0.1, schedule=lambda t: min(1, (t + 1) / 3), clip=None)


def nodecay(name, o): return name.endswith(('.gain', '.bias', '.b', '_b')) or name in o.get('nodecay', [])


def optimizer(w, o):
    groups = [dict(params=[v for k, v in w.items() if nodecay(k, o)], weight_decay=0.0),
              dict(params=[v for k, v in w.items() if not nodecay(k, o)], weight_decay=o['decay'])]
    if 'groups' in o: return zoo.several(w, o, optimizer)
    if 'muon' in o: return unseen.Muon(w, o['lr'], o['decay'], o['muon'])
    if 'lamb' in o: return zoo.lamb(w, o, nodecay)
    if 'sgd' in o: return torch.optim.SGD(groups, lr=o['lr'], **o['sgd'])
    return torch.optim.AdamW(groups, lr=o['lr'], betas=o['betas'], eps=1e-8)


SCALES = {'bf16': None, 'f16': 2.0 ** 16, 'f16_skip': 2.0 ** 24}


def make_narrow(name, kind):
    rng = np.random.default_rng(abs(sum(map(ord, name))))
    w, loss, o = globals()[name](rng)
    def narrow():
        with torch.autocast('cpu', dtype=torch.bfloat16 if kind == 'bf16' else torch.float16): return loss()
    train(f'{name}.{kind}', w, narrow, o, SCALES[kind])


def make(name):
    if '.' in name: return make_narrow(*name.split('.'))
    rng = np.random.default_rng(abs(sum(map(ord, name))))
    w, loss, o = (globals().get(name) or getattr(zoo, name, None) or getattr(unseen, name))(rng)
    save_file({k: numpy(v) for k, v in w.items()}, f'{HERE}/{name}.init.safetensors')
    train(name, {k: v for k, v in w.items() if k not in o.get('frozen', [])}, loss, o)


def numpy(t): return t.detach().numpy().copy()


def train(name, w, loss, o, scale=None):
    steps, losses = optimizer(w, o), []
    scaler = torch.amp.GradScaler('cpu', init_scale=scale or 1, enabled=scale is not None)
    for t in range(20):
        for g in steps.param_groups: g['lr'] = g.get('rate', o['lr']) * o['schedule'](t)
        steps.zero_grad(); l = loss(); scaler.scale(l).backward(); scaler.unscale_(steps); losses.append(l.item())
        if t == 0 and not name.endswith('_skip'):
            save_file({'grad.' + k: numpy(v.grad) for k, v in w.items()}, f'{HERE}/{name}.grads.safetensors')
        if o['clip']: torch.nn.utils.clip_grad_norm_(list(w.values()), o['clip'])
        scaler.step(steps); scaler.update()
    json.dump({'torch': torch.__version__, 'losses': losses}, open(f'{HERE}/{name}.losses.json', 'w'), indent=0)
    print(name, losses[0], losses[-1], *([scaler.get_scale()] if scale else []))


MODELS = ['mlp', 'gpt2_small', 'llama_small', 'vit_small', 'bert_small', 'idx_small', 'nesterov', 'ops_small',
          'parallel',
          'mixer', 'seqops', 'regress', 'wider', 'contrast', 'encdec', 'axial', 'recommend', 'codes', 'scan', 'generic',
          'bert_lamb', 'bert_groups', 'gpt2_muon',
          'mistral', 'gemma', 'neox', 'biases', 'latent', 'recurrent', 'ssd', 'clip_small', 'lora', 'mixture', 'hinge',
          'dpo', 'distill']
NARROW = [f'{m}.{kind}' for m in ('mlp', 'gpt2_small', 'llama_small') for kind in SCALES]
for n in sys.argv[1:] or MODELS + NARROW: make(n)
