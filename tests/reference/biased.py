"""Tiny models with a bias of scores, T5 and MPT, against transformers 5.24 (PyTorch 2.15): the losses of five steps of
AdamW.

    python3 biased.py SHARDC WORK
    python3 biased.py make            prints the losses; wants torch and transformers

Elements of weights are those of scores.py; targets are 7 i mod 61, sources 5 i mod 59. Losses: relative error <= 1e-6
on one rank, 2e-6 under the plans of the file, as processes.
"""
import os, shutil, sys
import routed, scores

HERE, TOKENS, BATCH, LAYERS = routed.HERE, 61, 2, {'biased_t5': 2, 'biased_mpt': 3}
SELF, FEED = [f'attn.{w}' for w in ('wq', 'wk', 'wv', 'wo')], ['feed.up', 'feed.down']
CROSS = [f'cross.{w}' for w in ('wq', 'wk', 'wv', 'wo')]


def t5():
    """The parameters in the order of transformers: our name, and the layer of a stack or None."""
    yield 'embed', None
    for stack, table, parts in (('encoder', 'both', [*SELF, 'norm1.gain', *FEED, 'norm2.gain']),
                                ('decoder', 'back', [*SELF, 'norm1.gain', *CROSS, 'norm2.gain', *FEED, 'norm3.gain'])):
        for i in range(LAYERS['biased_t5']):
            for p in parts:
                yield f'{stack}.*.{p}', i
                if p == 'attn.wo' and not i: yield table, None
        yield f'norm_{stack[0]}.gain', None


def mpt():
    yield 'embed', None
    for i in range(LAYERS['biased_mpt']):
        for p in ('norm1.gain', 'wqkv', 'wo', 'norm2.gain', 'up', 'down'): yield f'layers.*.{p}', i
    yield 'norm.gain', None


NAMES = {'biased_t5': t5, 'biased_mpt': mpt}
LOSSES = {
    'biased_t5': [4.15012789, 4.1181879, 4.09058905, 4.06603193, 4.04352999],
    'biased_mpt': [4.44229984, 4.2035017, 3.98228216, 3.77740693, 3.58697391],
}


def columns(model):
    if model == 'biased_mpt':
        ids = [7 * i % TOKENS for i in range(BATCH * 32)]
        after = [t for b in range(BATCH) for t in ids[b * 32 + 1:b * 32 + 32] + [-100]]
        return dict(tokens=(32, ids), targets=(32, after))
    ids = [7 * i % TOKENS for i in range(BATCH * 16)]
    return dict(source=(24, [5 * i % 59 for i in range(BATCH * 24)]), targets=(16, ids),
                before=(16, [t for b in range(BATCH) for t in [0] + ids[b * 16:b * 16 + 15]]))


def make():
    import torch, transformers
    torch.set_num_threads(1)
    plain = dict(pad_token_id=0, bos_token_id=None, eos_token_id=None)
    for model in NAMES:
        if model == 'biased_t5':
            net = transformers.T5ForConditionalGeneration(transformers.T5Config(
                vocab_size=64, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, relative_attention_num_buckets=8,
                dropout_rate=0.0, feed_forward_proj='relu', decoder_start_token_id=0, **plain))
        else:
            net = transformers.MptForCausalLM(transformers.MptConfig(
                d_model=48, n_heads=6, n_layers=3, vocab_size=64, max_seq_len=64, **plain))
        with torch.no_grad():
            for k, p in enumerate(net.parameters()):
                n = p.numel()
                p.copy_(torch.full((n,), 0.5).reshape(p.shape) if p.dim() == 1 else
                        torch.tensor(scores.elements(k, n)).reshape(p.shape))
        optim = torch.optim.AdamW(net.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)
        data = {n: torch.tensor(v).reshape(BATCH, s) for n, (s, v) in columns(model).items()}
        ids, labels = ('source', 'targets') if model == 'biased_t5' else ('tokens', 'tokens')
        net.train()
        out = routed.trained(optim, lambda: net(input_ids=data[ids], labels=data[labels]).loss)
        print(f'    {model!r}: {out},')


def main():
    shardc, work, bad = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), 0
    for model, names in NAMES.items():
        folder, file = f'{work}/{model}', f'{HERE}/{model}.shard'
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        for name, (size, values) in columns(model).items(): routed.npy(f'{folder}/{name}.npy', values, (BATCH, size))
        shapes, data = routed.shapes_of(shardc, file, folder), {}
        for k, (name, i) in enumerate(names()):
            data.setdefault(name, []).extend(scores.filled(k, name, shapes[name][i is not None:]))
        routed.write_weights(data, shapes, f'{folder}/init.safetensors')
        bad += routed.compare(model, shardc, file, folder, LOSSES[model])
    sys.exit(bad > 0)


if __name__ == '__main__': make() if sys.argv[1] == 'make' else main()
