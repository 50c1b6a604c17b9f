"""The peer of the attention benchmark: scaled_dot_product_attention of PyTorch, causal, f32, 12 heads of 64.

    python3 torch_attention.py LOT SEQ ROUNDS THREADS      prints one line of JSON: seconds of each forward and backward
"""
import json, sys, time
import torch
import torch.nn.functional as F

LOT, SEQ, ROUNDS, THREADS = map(int, sys.argv[1:5])
torch.set_num_threads(THREADS)
q, k, v = (torch.randn(LOT, 12, SEQ, 64, requires_grad=True) for _ in range(3))
forward, backward = [], []
for i in range(ROUNDS + 1):
    a = time.perf_counter()
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    b = time.perf_counter()
    d = torch.ones_like(y)
    c = time.perf_counter()
    y.backward(d)
    e = time.perf_counter()
    if i: forward.append(b - a); backward.append(e - c)
print(json.dumps({'torch': torch.__version__, 'forward': forward, 'backward': backward}))
