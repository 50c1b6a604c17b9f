"""Architectures that no example of the project uses, for make.py, written as in their papers: loops over time remain
loops. Each function gives the parameters, the loss and the settings of one NAME.shard."""
import math
import torch
import torch.nn.functional as F
from zoo import HERE, param, save, round_of, stacked, linear, layer_norm, lin, ln, sub, steady, ein


def rms(p, x, dims=1, eps=1e-5):
    return x * torch.rsqrt((x * x).mean(tuple(range(-dims, 0)), keepdim=True) + eps) * p['gain']
def gain(rng, p, name, *shape): p[name + '.gain'] = param(rng, *shape, std=0.1, mean=1)
def many(rng, p, std=0.3, **shapes): p.update({k: param(rng, *s, std=std) for k, s in shapes.items()})
def free(rng, p, name, *shape): p[name + '.w'] = param(rng, *shape, std=0.3)


def text(rng, name, V, B, S):
    t = rng.integers(0, V, B * S + 1)
    t.astype('uint16').tofile(f'{HERE}/{name}.bin')
    t = torch.tensor(t)
    return t[:-1].reshape(B, S), t[1:].reshape(B, S)


def rope(x, theta=10000.0):
    """[.., S, .., D] with the sequence second: x is [B, S, .., D]."""
    S, D = x.shape[1], x.shape[-1]
    a = torch.arange(S)[:, None] * theta ** (-2 * torch.arange(D // 2) / D)
    a = a.reshape(1, S, *[1] * (x.dim() - 3), D // 2)
    u, v = x[..., :D // 2], x[..., D // 2:]
    return torch.cat([u * a.cos() - v * a.sin(), v * a.cos() + u * a.sin()], -1)


def causal(S): return torch.ones(S, S).tril().bool()
def window(S, n): return causal(S) & (torch.arange(S)[:, None] - torch.arange(S) < n)
def soft(s, mask): return s.masked_fill(~mask, -1e30).softmax(-1)
def ce(x, y): return F.cross_entropy(x.reshape(-1, x.shape[-1]), y.reshape(-1))
def qkv(h, p, *names): return (ein('bse,ehd->bshd', h, p[n]) for n in names)


class Muon(torch.optim.Optimizer):
    """torch.optim.Muon for the matrices of a stack; `ins`: the number of their dims that products sum, which are first.
    PyTorch's own iteration, but in f32."""
    def __init__(self, w, lr, decay, ins): super().__init__([dict(params=[v], ins=ins[k]) for k, v in w.items()],
            dict(lr=lr, decay=decay))

    @staticmethod
    def orthogonal(x):
        narrow, torch.bfloat16 = torch.bfloat16, torch.float32
        try: return torch.optim._muon._zeropower_via_newtonschulz(x, (3.4445, -4.7750, 2.0315), 5, 1e-7)
        finally: torch.bfloat16 = narrow

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            p, ins = g['params'][0], g['ins']
            buf = self.state[p].setdefault('buf', torch.zeros_like(p))
            buf.lerp_(p.grad, 1 - 0.95)
            x, p[:] = p.grad.lerp(buf, 0.95), p * (1 - g['lr'] * g['decay'])
            for i in range(len(p)):
                a = x[i].reshape(math.prod(p.shape[1:1 + ins]), -1).T        # outputs, inputs
                ratio = max(1, a.shape[0] / a.shape[1]) ** 0.5
                p[i] -= g['lr'] * ratio * self.orthogonal(a).T.reshape(p[i].shape)


def mistral(rng):
    V, E, K, G, D, M, B, S = 29, 16, 2, 2, 4, 24, 4, 11
    w = {'embed': param(rng, V, E, std=0.3), 'head': param(rng, V, E, std=0.3)}

    def block(rng, p):
        gain(rng, p, 'norm1', E), gain(rng, p, 'norm2', E)
        many(rng, p, wq=(E, K, G, D), wk=(E, K, D), wv=(E, K, D), wo=(K, G, D, E))
        free(rng, p, 'gate', E, M), free(rng, p, 'up', E, M), free(rng, p, 'down', M, E)
    stacked(rng, w, 'layers.*.', 2, block), gain(rng, w, 'norm', E)
    x0, y0 = text(rng, 'mistral', V, B, S)

    def loss():
        x = w['embed'][x0]
        for i in range(2):
            p = round_of(w, 'layers.*.', i)
            h = rms(sub(p, 'norm1'), x)
            q, k = rope(ein('bse,ekgd->bskgd', h, p['wq']), 1000), rope(ein('bse,ekd->bskd', h, p['wk']), 1000)
            a = soft(ein('bqkgd,bskd->bkgqs', q, k) / math.sqrt(D), window(S, 4))
            x = x + ein('bkgqs,bskd,kgde->bqe', a, ein('bse,ekd->bskd', h, p['wv']), p['wo'])
            h = rms(sub(p, 'norm2'), x)
            x = x + (F.silu(h @ p['gate.w']) * (h @ p['up.w'])) @ p['down.w']
        return ce(rms(sub(w, 'norm'), x) @ w['head'].T, y0)
    return w, loss, steady(2e-3)


def gemma(rng):
    V, E, H, D, M, B, S = 29, 16, 2, 6, 20, 4, 9
    w = {'embed': param(rng, V, E, std=0.3)}

    def pair(rng, p):
        for side in 'near.', 'far.':
            for n in range(1, 5): gain(rng, p, f'{side}n{n}', E)
            many(rng, p, **{side + n: (E, H, D) for n in ('wq', 'wk', 'wv')}, **{side + 'wo': (H, D, E)})
            free(rng, p, side + 'gate', E, M), free(rng, p, side + 'up', E, M), free(rng, p, side + 'down', M, E)
    stacked(rng, w, 'pairs.*.', 2, pair), gain(rng, w, 'norm', E)
    x0, y0 = text(rng, 'gemma', V, B, S)

    def block(p, x, mask):
        h = rms(sub(p, 'n1'), x)
        q, k, v = qkv(h, p, 'wq', 'wk', 'wv')
        s = 2 * torch.tanh(ein('bqhd,bkhd->bhqk', rope(q), rope(k)) / math.sqrt(D) / 2)
        x = x + rms(sub(p, 'n2'), ein('bhqk,bkhd,hde->bqe', soft(s, mask), v, p['wo']))
        h = rms(sub(p, 'n3'), x)
        return x + rms(sub(p, 'n4'), (F.gelu(h @ p['gate.w'], approximate='tanh') * (h @ p['up.w'])) @ p['down.w'])

    def loss():
        x = w['embed'][x0] * math.sqrt(E)
        for i in range(2):
            p = round_of(w, 'pairs.*.', i)
            x = block(sub(p, 'far'), block(sub(p, 'near'), x, window(S, 3)), causal(S))
        return ce(3 * torch.tanh(rms(sub(w, 'norm'), x) @ w['embed'].T / 3), y0)
    return w, loss, steady(2e-3)


def neox(rng):
    V, E, H, D, M, B, S = 29, 16, 2, 6, 32, 4, 9
    w = {'embed': param(rng, V, E, std=0.3), 'head': param(rng, E, V, std=0.3)}

    def block(rng, p):
        layer_norm(rng, p, 'n1', E), layer_norm(rng, p, 'n2', E)
        linear(rng, p, 'query', E, H, D, outs=2, std=0.3), linear(rng, p, 'key', E, D,
                                                                  std=0.3), linear(rng, p, 'value', E, D, std=0.3)
        linear(rng, p, 'out', H, D, E, std=0.3), linear(rng, p, 'up', E, M,
                                                        std=0.3), linear(rng, p, 'down', M, E, std=0.3)
    stacked(rng, w, 'h.*.', 2, block), layer_norm(rng, w, 'norm', E)
    x0, y0 = text(rng, 'neox', V, B, S)
    def turned(x): return torch.cat([rope(x[..., :4]), x[..., 4:]], -1)

    def loss():
        x = w['embed'][x0]
        for i in range(2):
            p = round_of(w, 'h.*.', i)
            h = ln(sub(p, 'n1'), x, 1e-5)
            q, k, v = ein('bse,ehd->bshd', h, p['query.w']) + p['query.b'], lin(sub(p, 'key'),
                                                                                h), lin(sub(p, 'value'), h)
            a = soft(ein('bqhd,bkd->bhqk', turned(q), turned(k)) / math.sqrt(D), causal(S))
            y = ein('bhqk,bkd,hde->bqe', a, v, p['out.w']) + p['out.b']
            x = x + y + lin(sub(p, 'down'), F.gelu(lin(sub(p, 'up'), ln(sub(p, 'n2'), x, 1e-5))))
        return ce(ln(sub(w, 'norm'), x, 1e-5) @ w['head'], y0)
    return w, loss, steady(2e-3)


def biases(rng):
    V, E, H, D, M, N, B, S = 29, 16, 4, 4, 20, 5, 4, 9
    w = {'embed': param(rng, V, E, std=0.3), 'rel': param(rng, H, N, std=0.3)}
    layer_norm(rng, w, 'alibi.n', E)
    many(rng, w, **{f'alibi.{n}': (E, H, D) for n in ('w', 'wk')}, **{'alibi.wo': (H, D, E)})
    for t in 't5.', 'last.':
        gain(rng, w, t + 'n1', E), gain(rng, w, t + 'n2', E), free(rng, w, t + 'up', E,
                                                                   M), free(rng, w, t + 'down', M, E)
        many(rng, w, **{t + n: (E, H, D) for n in ('wq', 'wk', 'wv')}, **{t + 'wo': (H, D, E)})
    x0, y0 = text(rng, 'biases', V, B, S)
    far = torch.arange(S)[:, None] - torch.arange(S)
    slope = torch.tensor([2.0 ** (-8 * (i + 1) / H) for i in range(H)])[:, None, None]

    def t5(p, x):
        q, k, v = qkv(rms(sub(p, 'n1'), x), p, 'wq', 'wk', 'wv')
        s = ein('bqhd,bkhd->bhqk', q, k) + w['rel'][:, far.clamp(0, N - 1)]
        x = x + ein('bhqk,bkhd,hde->bqe', soft(s, causal(S)), v, p['wo'])
        return x + F.relu(rms(sub(p, 'n2'), x) @ p['up.w']) @ p['down.w']

    def loss():
        x, p = w['embed'][x0], sub(w, 'alibi')
        q, v = qkv(ln(sub(p, 'n'), x, 1e-5), p, 'w', 'wk')
        a = soft(ein('bqhd,bkhd->bhqk', q, v) / math.sqrt(D) - slope * far, causal(S))
        x = x + ein('bhqk,bkhd,hde->bqe', a, v, p['wo'])
        return ce(t5(sub(w, 'last'), t5(sub(w, 't5'), x)) @ w['embed'].T, y0)
    return w, loss, steady(2e-3)


def latent(rng):
    V, E, H, D, T, C, W, B, S = 29, 16, 2, 4, 2, 5, 3, 4, 9
    w = {'embed': param(rng, V, E, std=0.3)}

    def block(rng, p):
        gain(rng, p, 'n', E), gain(rng, p, 'nl', C)
        many(rng, p, dq=(E, W), uq=(W, H, D), rq=(W, H, T), dkv=(E, C), rk=(E, T), uk=(C, H, D), uv=(C, H, D),
             wo=(H, D, E))
    stacked(rng, w, 'h.*.', 2, block)
    x0, y0 = text(rng, 'latent', V, B, S)

    def loss():
        x = w['embed'][x0]
        for i in range(2):
            p = round_of(w, 'h.*.', i)
            h = rms(sub(p, 'n'), x)
            q, c = h @ p['dq'], rms(sub(p, 'nl'), h @ p['dkv'])
            k, v = ein('bsc,chd->bshd', c, p['uk']), ein('bsc,chd->bshd', c, p['uv'])
            q = torch.cat([ein('bsw,whd->bshd', q, p['uq']), rope(ein('bsw,whd->bshd', q, p['rq']))], -1)
            k = torch.cat([k, rope(h @ p['rk'])[:, :, None].expand(-1, -1, H, -1)], -1)
            y = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True)
            x = x + ein('bhqd,hde->bqe', y, p['wo'])
        return ce(x @ w['embed'].T, y0)
    return w, loss, steady(2e-3)


def recurrent(rng):
    B, S, I, H, C, N, O = 6, 7, 5, 6, 6, 3, 4
    w = {'skip': param(rng, C, std=0.1, mean=1)}
    many(rng, w, 0.4, w=(I, 4, H), u=(H, 4, H), b=(4, H), up=(I, C), dt=(I, C), log_a=(C, N), wb=(I, N), wc=(I, N))
    linear(rng, w, 'head', H, O, std=0.4), linear(rng, w, 'tail', C, O, std=0.4)
    x, y = rng.standard_normal((B, S, I)).astype('f4'), rng.integers(0, O, B)
    save('recurrent', x=x, y=y)
    x, y = torch.tensor(x), torch.tensor(y)

    def loss():
        h = c = torch.zeros(B, H)
        m = torch.zeros(B, C, N)
        z, d = x @ w['up'], F.softplus(x @ w['dt'])
        for t in range(S):
            i, f, g, o = (ein('bi,igh->bgh', x[:, t], w['w']) + ein('bk,kgh->bgh', h, w['u']) + w['b']).unbind(1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            m = torch.exp(-d[:, t, :, None] * w['log_a'].exp()) * m + ein('bc,bn->bcn', d[:, t] * z[:, t],
                                                                          x[:, t] @ w['wb'])
        r = ein('bcn,bn->bc', m, x[:, -1] @ w['wc']) + w['skip'] * z[:, -1]
        return F.cross_entropy(lin(sub(w, 'head'), h) + lin(sub(w, 'tail'), r), y)
    return w, loss, steady(5e-3, nodecay=[])


def ssd(rng):
    V, E, H, D, N, B, S = 29, 12, 2, 4, 3, 4, 9
    w = {'embed': param(rng, V, E, std=0.3)}

    def block(rng, p):
        gain(rng, p, 'n', E), gain(rng, p, 'nh', H, D)
        many(rng, p, wx=(E, H, D), wz=(E, H, D), wb=(E, N), wc=(E, N), wd=(E, H), bd=(H,), la=(H,), c0=(H, D),
             c1=(H, D), wo=(H, D, E))
        p['skip'] = param(rng, H, std=0.1, mean=1)
    stacked(rng, w, 'h.*.', 2, block)
    x0, y0 = text(rng, 'ssd', V, B, S)

    def mix(p, h):
        u = ein('bse,ehd->bshd', h, p['wx'])
        u = F.silu(u * p['c0'] + F.pad(u, (0, 0, 0, 0, 1, 0))[:, :S] * p['c1'])
        d = F.softplus(h @ p['wd'] + p['bd'])
        m, out = torch.zeros(B, H, D, N), []
        for t in range(S):
            m = torch.exp(-d[:, t] * p['la'].exp())[..., None, None] * m + ein('bhd,bn->bhdn',
                                                                               u[:, t] * d[:, t, :, None],
                                                                               h[:, t] @ p['wb'])
            out.append(ein('bhdn,bn->bhd', m, h[:, t] @ p['wc']))
        y = (torch.stack(out, 1) + u * p['skip'][:, None]) * F.silu(ein('bse,ehd->bshd', h, p['wz']))
        return ein('bshd,hde->bse', rms(sub(p, 'nh'), y, dims=2), p['wo'])

    def loss():
        x = w['embed'][x0]
        for i in range(2): x = x + mix(round_of(w, 'h.*.', i), rms({'gain': w['h.*.n.gain'][i]}, x))
        return ce(x @ w['embed'].T, y0)
    return w, loss, steady(2e-3)


def clip_small(rng):
    B, S, V, E, H, D, M, J = 5, 7, 23, 12, 2, 6, 24, 8
    w = {'cut': param(rng, 3, 2, 2, E, std=0.3), 'pos': param(rng, 6, E, std=0.3), 'words': param(rng, V, E, std=0.3),
         'heat': param(rng, mean=1), 'pi1': param(rng, E, J, std=0.3), 'pt1': param(rng, E, J, std=0.3)}
    for n in 'look', 'read':
        layer_norm(rng, w, n + '.norm', E)
        many(rng, w, **{f'{n}.{k}': (E, H, D) for k in ('w', 'wk', 'wv')}, **{n + '.wo': (H, D, E)})
    for n in 'see', 'think':
        layer_norm(rng, w, n + '.norm', E), linear(rng, w, n + '.up', E, M,
                                                   std=0.3), linear(rng, w, n + '.down', M, E, std=0.3)
    image, words, last = rng.standard_normal((B, 6, 6, 2)).astype('f4'), rng.integers(0, V,
                                                                                      (B, S)), rng.integers(0, S, B)
    save('clip_small', image=image, text=words, last=last)
    image, words, last = torch.tensor(image), torch.tensor(words), torch.tensor(last)

    def attend(p, x, masked):
        q, k, v = qkv(ln(sub(p, 'norm'), x, 1e-5), p, 'w', 'wk', 'wv')
        y = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=masked)
        return x + ein('bhqd,hde->bqe', y, p['wo'])

    def feed(p, x):
        h = lin(sub(p, 'up'), ln(sub(p, 'norm'), x, 1e-5))
        return x + lin(sub(p, 'down'), h * torch.sigmoid(1.702 * h))

    def loss():
        x = F.conv2d(image.permute(0, 3, 1, 2), w['cut'].permute(3, 2, 0, 1),
                     stride=(3, 2)).flatten(2).transpose(1, 2) + w['pos']
        u = F.normalize(feed(sub(w, 'see'), attend(sub(w, 'look'), x, False)).mean(1) @ w['pi1'], dim=-1)
        t = feed(sub(w, 'think'), attend(sub(w, 'read'), w['words'][words], True))[torch.arange(B), last]
        s = w['heat'].exp() * u @ F.normalize(t @ w['pt1'], dim=-1).T
        return (F.cross_entropy(s, torch.arange(B)) + F.cross_entropy(s.T, torch.arange(B))) / 2
    return w, loss, steady(2e-3)


def lora(rng):
    V, E, H, D, R, M, B, S = 29, 12, 2, 6, 2, 20, 4, 9
    w = {'embed': param(rng, V, E, std=0.3), 'norm': param(rng, E, std=0.1, mean=1), 'head': param(rng, V, E, std=0.3),
         'next': param(rng, V, E, std=0.3)}

    def block(rng, p):
        gain(rng, p, 'n1', E), gain(rng, p, 'n2', E)
        for n in 'qkv': many(rng, p, **{n + '.w': (E, H, D), n + '.a': (E, R), n + '.c': (R, H, D)})
        many(rng, p, **{'o.w': (H, D, E), 'o.a': (H, D, R), 'o.c': (R, E), 'up.w': (E, M), 'up.a': (E, R),
                        'up.c': (R, M),
                        'down.w': (M, E), 'down.a': (M, R), 'down.c': (R, E)})
    stacked(rng, w, 'h.*.', 2, block)
    x0, y0 = text(rng, 'lora', V, B, S)

    def low(p, x):
        full = p['w'] + 0.5 * torch.tensordot(p['a'], p['c'], 1)
        return torch.tensordot(x, full, p['a'].dim() - 1)

    def loss():
        e = x = w['embed'][x0]
        for i in range(2):
            p = round_of(w, 'h.*.', i)
            h = rms(sub(p, 'n1'), x)
            y = F.scaled_dot_product_attention(*(low(sub(p, n), h).transpose(1, 2) for n in 'qkv'), is_causal=True)
            x = x + low(sub(p, 'o'), y.transpose(1, 2))
            x = x + low(sub(p, 'down'), F.silu(low(sub(p, 'up'), rms(sub(p, 'n2'), x))))
        l = (x * w['norm']) @ w['head'].T
        smooth = F.cross_entropy(l.reshape(-1, V), y0.reshape(-1), label_smoothing=0.1)
        return smooth + 0.3 * ce((x * w['norm'] + e) @ w['next'].T, y0) + 0.01 * (torch.logsumexp(l, -1) ** 2).mean()
    return w, loss, steady(2e-3, frozen=['embed'] + [k for k in w if k.startswith('h.*.') and k.endswith('.w')])


V_E_H_D_M = 13, 12, 2, 6, 20


def small_net(rng, w, path, layers):
    """A GPT of a few layers; its logits as a function of the parameters and tokens."""
    V, E, H, D, M = V_E_H_D_M
    w[path + 'embed'] = param(rng, V, E, std=0.3)

    def block(rng, p):
        gain(rng, p, 'n1', E), gain(rng, p, 'n2', E)
        for n in 'qkv': free(rng, p, n, E, H, D)
        free(rng, p, 'o', H, D, E), free(rng, p, 'up', E, M), free(rng, p, 'down', M, E)
    stacked(rng, w, path + 'h.*.', layers, block)

    def logits(tokens):
        x = w[path + 'embed'][tokens]
        for i in range(layers):
            p = round_of(w, path + 'h.*.', i)
            h = rms(sub(p, 'n1'), x)
            q, k, v = (ein('bse,ehd->bhsd', h, p[n + '.w']) for n in 'qkv')
            x = x + ein('bhsd,hde->bse', F.scaled_dot_product_attention(q, k, v, is_causal=True), p['o.w'])
            x = x + F.silu(rms(sub(p, 'n2'), x) @ p['up.w']) @ p['down.w']
        return x @ w[path + 'embed'].T
    return logits


def dpo(rng):
    B, S, V, w = 4, 7, V_E_H_D_M[0], {}
    policy, reference = small_net(rng, w, 'policy.', 2), small_net(rng, w, 'reference.', 2)
    rows = {}
    for name in 'chosen', 'rejected':
        t = rng.integers(0, V, (B, S + 1))
        rows[name], rows[name + '_targets'] = t[:, :-1].copy(), t[:, 1:].copy()
        rows[name + '_targets'][:, :3] = -100
    save('dpo', **{k: v.astype('i4') for k, v in rows.items()})
    rows = {k: torch.tensor(v) for k, v in rows.items()}

    def log_p(net, name):
        t = rows[name + '_targets']
        return -F.cross_entropy(net(rows[name]).transpose(1, 2), t, ignore_index=-100, reduction='none').sum(1)

    def loss():
        won, lost = (log_p(policy, n) - log_p(reference, n) for n in ('chosen', 'rejected'))
        return -F.logsigmoid(0.1 * (won - lost)).mean()
    return w, loss, steady(2e-3, frozen=[k for k in w if k.startswith('reference')])


def distill(rng):
    B, S, V, w = 4, 7, V_E_H_D_M[0], {}
    student, teacher = small_net(rng, w, 'student.', 1), small_net(rng, w, 'teacher.', 2)
    t = rng.integers(0, V, (B, S + 1))
    x, y = t[:, :-1].copy(), t[:, 1:].copy()
    save('distill', tokens=x.astype('i4'), targets=y.astype('i4'))
    x, y = torch.tensor(x), torch.tensor(y)

    def loss():
        s, p = student(x), F.log_softmax(teacher(x) / 2, -1)
        far = F.kl_div(F.log_softmax(s / 2, -1), p, log_target=True, reduction='none').sum(-1).mean()
        return 0.5 * ce(s, y) + 0.5 * 4 * far
    return w, loss, steady(2e-3, frozen=[k for k in w if k.startswith('teacher')])


def mixture(rng):
    B, S, I, E, K, M, O = 6, 5, 6, 8, 5, 10, 4
    w = {}
    linear(rng, w, 'enter', I, E, std=0.5), linear(rng, w, 'head', E, O, std=0.3)
    for n in 'one', 'two':
        layer_norm(rng, w, n + '.norm', E)
        many(rng, w, **{n + '.route': (E, K), n + '.up': (K, E, M), n + '.down': (K, M, E)})
    x, y = rng.standard_normal((B, S, I)).astype('f4'), rng.integers(0, O, (B, S))
    save('mixture', x=x, y=y)
    x, y = torch.tensor(x), torch.tensor(y)

    def mix(p, x):
        h = ln(sub(p, 'norm'), x, 1e-5)
        g = (h @ p['route']).softmax(-1)
        top, which = g.topk(2, -1)
        top, out = top / top.sum(-1, keepdim=True), torch.zeros_like(x)
        for k in range(2):
            u, d = p['up'][which[..., k]], p['down'][which[..., k]]
            out = out + top[..., k, None] * ein('bsm,bsme->bse', F.gelu(ein('bse,bsem->bsm', h, u)), d)
        used = F.one_hot(which, K).sum(-2).float().mean((0, 1))
        return x + out, 0.1 * K * (used * g.mean((0, 1))).sum()

    def loss():
        a, one = mix(sub(w, 'one'), lin(sub(w, 'enter'), x))
        b, two = mix(sub(w, 'two'), a)
        return ce(lin(sub(w, 'head'), b), y) + one + two
    return w, loss, steady(2e-3)


def hinge(rng):
    B, S, I, V = 6, 4, 5, 7
    w = {'scale': param(rng, V, std=0.1, mean=1)}
    linear(rng, w, 'lin', I, V, std=0.5)
    x, y = rng.standard_normal((B, S, I)).astype('f4'), rng.integers(0, V, B)
    save('hinge', x=x, y=y)
    x, y = torch.tensor(x), torch.tensor(y)

    def loss():
        z = lin(sub(w, 'lin'), x) * w['scale']
        return ((1 + z - z[torch.arange(B), :, y][..., None]).clamp(min=0).sum((1, 2)) ** 2).mean()
    return w, loss, steady(2e-3)
