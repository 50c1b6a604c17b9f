"""Tiny models whose attention differs from GPT-2's, against transformers 5.24 (PyTorch 2.15): the losses of five
steps of AdamW.

    python3 scores.py SHARDC WORK
    python3 scores.py make            prints the losses; wants torch and transformers

Weights k of the list of transformers have elements ((31 i i + 7 i + 977 k) mod 1009 - 504) / 1260, vectors are 0.5;
tokens are 7 i mod 61. Losses: relative error <= 1e-6 on one rank, 2e-6 under the plans of the file, as processes.
"""
import math, os, shutil, sys
import routed

HERE, TOKENS, BATCH, SEQ = routed.HERE, 61, 2, 32
PARTS = ('attn.wq', 'attn.wk', 'attn.wv', 'attn.wo')
LLAMA = (*PARTS, 'mlp.gate', 'mlp.up', 'mlp.down', 'norm1.gain', 'norm2.gain')
SIZES = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2,
             head_dim=8, max_position_embeddings=64, attention_dropout=0.0)
OWN = dict(num_hidden_layers=2, rms_norm_eps=1e-5, tie_word_embeddings=False)
# file: class of transformers, its settings, our parameters in its order: of each layer, after them
MODELS = {
    'scores_llama3': ('Llama', dict(OWN, rope_parameters=dict(
        rope_type='llama3', rope_theta=100.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=16)), LLAMA, ('norm.gain', 'lm_head')),
    'scores_yarn': ('Llama', dict(OWN, rope_parameters=dict(
        rope_type='yarn', rope_theta=100.0, factor=4.0, beta_fast=4.0, beta_slow=0.5,
        original_max_position_embeddings=16)), LLAMA, ('norm.gain', 'lm_head')),
    'scores_gemma3': ('Gemma3', dict(
        num_hidden_layers=7, sliding_window=5, query_pre_attn_scalar=8,
        rope_parameters=dict(full_attention=dict(rope_type='default', rope_theta=1000.0),
                             sliding_attention=dict(rope_type='default', rope_theta=10.0)),
        layer_types=['sliding_attention', 'sliding_attention', 'full_attention'] * 2 + ['sliding_attention']),
        (*PARTS, 'attn.q_norm.gain', 'attn.k_norm.gain', 'mlp.gate', 'mlp.up', 'mlp.down', 'norm1.gain', 'norm2.gain',
         'norm3.gain', 'norm4.gain'), ('norm.gain',)),
    'scores_gemma2': ('Gemma2', dict(
        num_hidden_layers=3, sliding_window=5, query_pre_attn_scalar=8, attn_logit_softcapping=3.0,
        final_logit_softcapping=5.0, rope_parameters=dict(rope_type='default', rope_theta=100.0),
        layer_types=['sliding_attention', 'full_attention', 'sliding_attention']),
        (*PARTS, 'mlp.gate', 'mlp.up', 'mlp.down', 'norm1.gain', 'norm2.gain', 'norm3.gain', 'norm4.gain'),
        ('norm.gain',)),
    'scores_gptoss': ('GptOss', dict(
        OWN, num_hidden_layers=3, sliding_window=5, num_local_experts=8, num_experts_per_tok=2,
        layer_types=['sliding_attention', 'full_attention', 'sliding_attention']),
        ('attn.sinks', 'attn.wq', 'attn.bq', 'attn.wk', 'attn.bk', 'attn.wv', 'attn.bv', 'attn.wo', 'attn.bo',
         'moe.router', 'moe.bias', 'moe.w_in', 'moe.b_in', 'moe.w_out', 'moe.b_out', 'norm1.gain', 'norm2.gain'),
        ('norm.gain', 'lm_head')),
}
LOSSES = {
    'scores_llama3': [4.34425926, 4.24565601, 4.14668369, 4.04854393, 3.95254445],
    'scores_yarn': [4.39330339, 4.29491043, 4.19591618, 4.09766436, 4.00164461],
    'scores_gemma2': [5.93265009, 5.55254936, 5.21689701, 4.91776943, 4.64927816],
    'scores_gptoss': [4.3197937, 4.2596674, 4.19555902, 4.14105177, 4.08119297],
    'scores_gemma3': [6.40493917, 5.72790575, 5.24722481, 4.81578255, 4.44444036],
}


def elements(k, n): return [((31 * i * i + 7 * i + 977 * k) % 1009 - 504) / 1260 for i in range(n)]


VECTORS = ('gain', 'sinks', 'bq', 'bk', 'bv', 'bo', 'bias')  # in transformers


def filled(k, name, shape):
    n = math.prod(shape)
    return [0.5] * n if name.split('.')[-1] in VECTORS else [routed.f32(x) for x in elements(k, n)]


def init(layer, last, layers, shapes, path):
    names = [('embed', None), *((f'layers.*.{p}', i) for i in range(layers) for p in layer), *((p, None) for p in last)]
    data = {}
    for k, (name, i) in enumerate(names):
        data.setdefault(name, []).extend(filled(k, name, shapes[name][i is not None:]))
    routed.write_weights(data, shapes, path)


def make():
    import torch, transformers
    torch.set_num_threads(1)
    for model, (kind, own, layer, last) in MODELS.items():
        config = {'Gemma3': 'Gemma3TextConfig'}.get(kind, kind + 'Config')
        net = getattr(transformers, kind + 'ForCausalLM')(getattr(transformers, config)(
            **{**SIZES, **own}, attn_implementation='eager', pad_token_id=None, bos_token_id=None, eos_token_id=None))
        print(model, [n for n, _ in net.named_parameters()][:16], file=sys.stderr)
        with torch.no_grad():
            for k, p in enumerate(net.parameters()):
                n = p.numel()
                p.copy_(torch.full((n,), 0.5).reshape(p.shape) if p.dim() == 1 else
                        torch.tensor(elements(k, n)).reshape(p.shape))
        optim = torch.optim.AdamW(net.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)
        ids = (7 * torch.arange(BATCH * SEQ) % TOKENS).reshape(BATCH, SEQ)
        net.train()
        out = routed.trained(optim, lambda: net(input_ids=ids, labels=ids).loss)
        print(f'    {model!r}: {out},')


def main():
    shardc, work, bad = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), 0
    ids = [7 * i % TOKENS for i in range(BATCH * SEQ)]
    after = [t for b in range(BATCH) for t in ids[b * SEQ + 1:(b + 1) * SEQ] + [-100]]
    for model, (_, own, layer, last) in MODELS.items():
        folder, file = f'{work}/{model}', f'{HERE}/{model}.shard'
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        routed.npy(f'{folder}/tokens.npy', ids, (BATCH, SEQ))
        routed.npy(f'{folder}/targets.npy', after, (BATCH, SEQ))
        shapes = routed.shapes_of(shardc, file, folder)
        init(layer, last, own['num_hidden_layers'], shapes, f'{folder}/init.safetensors')
        bad += routed.compare(model, shardc, file, folder, LOSSES[model])
    sys.exit(bad > 0)


if __name__ == '__main__': make() if sys.argv[1] == 'make' else main()
