"""A network of two layers for tests of optimizers: the model, and its gradient in plain Python."""
BATCH, FEAT, HIDDEN = 16, 6, 10
NET = f'''use "std"
dims {{ Batch; Feat = {FEAT}; Hidden = {HIDDEN} }}
model Net {{
  input x [Batch, Feat] f32
  input y [Batch] f32
  param w [Feat, Hidden] ~ normal(0.5)
  param b [Hidden] ~ normal(0.5) @nodecay
  param v [Hidden] ~ normal(0.5)
  loss mean[Batch]((dot[Hidden](relu(dot[Feat](x, w) + b), v) - y)^2)
}}
'''
PARAMS = [('w', FEAT * HIDDEN), ('b', HIDDEN), ('v', HIDDEN)]
COUNT = sum(n for _, n in PARAMS)


def gradient(p, x, y, size=COUNT):
    """Of the samples x, y, each of which weighs 1 / BATCH; zeros after the last parameter."""
    g = [0.0] * size
    w, b, v = (p[at:] for at in (0, FEAT * HIDDEN, (FEAT + 1) * HIDDEN))
    for row, target in zip(x, y):
        a = [sum(row[k] * w[k * HIDDEN + h] for k in range(FEAT)) + b[h] for h in range(HIDDEN)]
        d = 2 * (sum(max(a[h], 0) * v[h] for h in range(HIDDEN)) - target) / BATCH
        for h in range(HIDDEN):
            g[(FEAT + 1) * HIDDEN + h] += d * max(a[h], 0)
            da = d * v[h] if a[h] > 0 else 0.0
            g[FEAT * HIDDEN + h] += da
            for k in range(FEAT): g[k * HIDDEN + h] += da * row[k]
    return g
