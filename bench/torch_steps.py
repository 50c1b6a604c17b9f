"""The peer of the bundle's steps: GPT-2 in PyTorch on a GPU: bf16 autocast, blocks compiled, SDPA, fused AdamW, random
pieces of a file of tokens (u16), the same as for ours.

    python3 torch_steps.py LAYERS EMBED HEADS BATCH SEQ VOCAB TOKENS [cpu]

The first line on stdout is {"ready": true, ..}, after three steps that do not count; then each line of standard input
is a number of steps, and each answer one line of JSON: seconds of each. Blocks are compiled one by one (they share
their code), so compiling takes half a minute and not several. Must not: fall back to anything slower without saying so
(`compiled`).
"""
import array, json, sys, time
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch_block import Block

L, E, H, B, S, V = map(int, sys.argv[1:7])
D = 'cpu' if 'cpu' in sys.argv else 'cuda'
if D == 'cuda' and not torch.cuda.is_available(): sys.exit('this PyTorch sees no GPU')
torch.manual_seed(0)
DATA = torch.tensor(array.array('H', open(sys.argv[7], 'rb').read()).tolist(), device=D)
torch.set_float32_matmul_precision('high')


class Head(nn.Module):
    """The vocabulary padded to a multiple of 128, as products like it; the padding is no class."""
    def __init__(self, wte):
        super().__init__()
        self.ln_f, self.wte = nn.LayerNorm(E), wte

    def forward(self, h, y):
        return F.cross_entropy((self.ln_f(h) @ self.wte.weight.T).view(B * S, -1)[:, :V].float(), y.reshape(-1))


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding((V + 127) // 128 * 128, E), nn.Embedding(S, E)
        self.h = nn.ModuleList(Block(E, H) for _ in range(L))
        self.head = Head(self.wte)
        for p in self.parameters():
            if p.dim() > 1: nn.init.normal_(p, std=0.02)

    def forward(self, x, y):
        h = self.wte(x) + self.wpe(torch.arange(S, device=D))
        for b in self.h: h = b(h)
        return self.head(h, y)


def wait():
    if D == 'cuda': torch.cuda.synchronize()


def main():
    with torch.device(D): model = GPT2()
    compiled = 'cpu' not in sys.argv
    if compiled:
        for b in model.h: b.compile()
        model.head.compile()
    adam = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def step():
        at = torch.randint(0, len(DATA) - S, (B, 1), device=D)
        t = DATA[at + torch.arange(S + 1, device=D)]
        wait()
        start = time.perf_counter()
        with torch.autocast(D, torch.bfloat16): loss = model(t[:, :-1], t[:, 1:])
        loss.backward()
        adam.step()
        adam.zero_grad(set_to_none=True)
        loss.item()
        wait()
        return time.perf_counter() - start

    for _ in range(3): step()
    print(json.dumps({'ready': True, 'torch': torch.__version__, 'compiled': compiled}), flush=True)
    for line in sys.stdin: print(json.dumps({'seconds': [step() for _ in range(int(line))]}), flush=True)


main()
