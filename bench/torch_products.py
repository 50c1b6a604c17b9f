"""The peers of the bundle's kernels: the products, attention and AdamW of GPT-2 in PyTorch (cuBLAS, cuDNN,
FlashAttention), bf16.

    python3 torch_products.py LAYERS EMBED HEADS BATCH SEQ VOCAB

One line of JSON on stdout for each: name, seconds (median of ROUNDS, each after a write that empties the cache), flop
and bytes as the bundle's own rows count them. Where Python takes longer to ask than that write takes, CALLS follow each
other and share the time, so that the GPU never waits. Row kernels are left out: each takes less time than its launch
from Python. Operands are random: zeros draw less power and run faster than data.
"""
import json, statistics, sys
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

L, E, H, B, S, V = map(int, sys.argv[1:7])
if not torch.cuda.is_available(): sys.exit('this PyTorch sees no GPU')
ROUNDS, CALLS, T, D = 15, 20, B * S, 'cuda'
flush = torch.empty(256 << 20, dtype=torch.uint8, device=D)
torch.manual_seed(0)


def rand(*shape): return (torch.rand(*shape, device=D) - 0.5).bfloat16()


def timed(f, calls):
    for _ in range(3): f()
    seconds = []
    for i in range(ROUNDS):
        flush.fill_(i)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(calls): f()
        end.record()
        end.synchronize()
        seconds.append(1e-3 * begin.elapsed_time(end) / calls)
    return statistics.median(seconds)


def tell(name, f, flop, bytes_moved=0, calls=1):
    print(json.dumps(dict(name=name, seconds=timed(f, calls), flop=flop, bytes=bytes_moved)), flush=True)


def products(name, rows, inner, columns):
    """Forward, gradient of the input, gradient of the weights of one linear layer."""
    x, w, dy = rand(rows, inner), rand(columns, inner), rand(rows, columns)
    flop = 2 * rows * inner * columns
    tell(f'{name} forward {rows}x{columns}x{inner}', lambda: x @ w.T, flop)
    tell(f'{name} input {rows}x{inner}x{columns}', lambda: dy @ w, flop)
    tell(f'{name} weight {columns}x{inner}x{rows}', lambda: dy.T @ x, flop)


def attention():
    q, k, v, dy = (rand(B, H, S, E // H).requires_grad_(i < 3) for i in range(4))
    flop = 4 * B * H * S * (S + 1) / 2 * (E // H)
    for backend in SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION:
        with sdpa_kernel(backend):
            def forward(): return F.scaled_dot_product_attention(q, k, v, is_causal=True)
            try: y = forward()
            except RuntimeError as e:
                print(json.dumps(dict(name=f'attention {backend.name}', why=str(e)[:200])))
                continue
            tell(f'attention forward {backend.name}', forward, flop)
            tell(f'attention backward {backend.name}', lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True),
                 2.5 * flop, calls=CALLS)


def rows():
    p = torch.nn.Parameter(torch.rand(50304 * E, device=D))
    p.grad = torch.rand_like(p)
    adam = torch.optim.AdamW([p], fused=True)
    tell('AdamW, fused', adam.step, 0, 28 * p.numel(), CALLS)
    one, two = torch.empty(1 << 29, device=D), torch.rand(1 << 29, device=D)
    tell('copy', lambda: one.copy_(two), 0, 8 * one.numel())


products('square', 8192, 8192, 8192)
products('qkv', T, E, 3 * E)
products('attention out', T, E, E)
products('feed-forward in', T, E, 4 * E)
products('feed-forward out', T, 4 * E, E)
products('head', 4096, E, (V + 127) // 128 * 128)
attention()
rows()
