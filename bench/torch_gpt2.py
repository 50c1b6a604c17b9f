"""The peer of the step benchmark: GPT-2 124M in PyTorch, eager or compiled, f32 or bf16 autocast, fused AdamW, random
weights and tokens.

As its users run it: the vocabulary of the weights is padded to 50,304 rows (50,257 columns make a bf16 product several
times slower), tokens stay below 50,257, and the gradient's norm is clipped to 1, as the model file of the benchmark
does.

    python3 torch_gpt2.py BATCH SEQ [f32|bf16] [compile] [threads=N]
    python3 torch_gpt2.py

Without threads=N it uses as many as PyTorch takes by itself. Without words it prints that number, or refuses a PyTorch
whose products are slow.

Reads numbers of steps from standard input, one a line; runs that many and prints one line of JSON: seconds of each. The
first line it prints is {"ready": true}, after two steps that do not count.
"""
import json, sys, time
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch_block import Block

B, S = map(int, sys.argv[1:3] or (1, 1))
BF16, COMPILE = 'bf16' in sys.argv, 'compile' in sys.argv
TOKENS, V, P, E, H, L = 50257, 50304, 1024, 768, 12, 12
THREADS = [int(w[8:]) for w in sys.argv if w.startswith('threads=')]
if THREADS: torch.set_num_threads(THREADS[0])
torch.manual_seed(0)


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, E), nn.Embedding(P, E)
        self.h, self.ln_f = nn.ModuleList(Block(E, H) for _ in range(L)), nn.LayerNorm(E)
        for p in self.parameters():
            if p.dim() > 1: nn.init.normal_(p, std=0.02)

    def forward(self, x, y):
        h = self.wte(x) + self.wpe(torch.arange(S))
        for b in self.h: h = b(h)
        return F.cross_entropy((self.ln_f(h) @ self.wte.weight.T).view(-1, V), y.reshape(-1))


def refuse_reference_blas():
    """A product that a tuned library does in some milliseconds takes a reference BLAS a second. By the time of
    processors, whoever else wants them."""
    a, best = torch.randn(1024, 1024), 1e9
    for _ in range(8):
        start = time.process_time()
        a @ a
        best = min(best, time.process_time() - start)
    if 2 * 1024 ** 3 / best < 5e9:
        sys.exit('the products of this PyTorch are slow, as with a reference BLAS: not a fair peer')


def main():
    if len(sys.argv) < 2: return refuse_reference_blas(), print(torch.get_num_threads())
    model = GPT2()
    run = torch.compile(model) if COMPILE else model
    adam = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def step():
        t = torch.randint(0, TOKENS, (B, S + 1))
        start = time.perf_counter()
        with torch.autocast('cpu', torch.bfloat16, enabled=BF16): loss = run(t[:, :-1], t[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad(set_to_none=True)
        loss.item()
        return time.perf_counter() - start

    for _ in range(2): step()
    print(json.dumps({'ready': True, 'torch': torch.__version__, 'threads': torch.get_num_threads()}), flush=True)
    for line in sys.stdin: print(json.dumps({'seconds': [step() for _ in range(int(line))]}), flush=True)


main()
