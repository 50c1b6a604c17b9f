"""The peer of bench/sparse_length: PyTorch's flex_attention, compiled, forward, f32, with a mask of blocks.

    python3 torch_flex.py MAP BLOCK HEADS HEAD ROUNDS THREADS      MAP: a line of 0 and 1 per block of queries

Prints one line of JSON: seconds of each round by the clock and of processor time by thread, and what backward says.
Times are those of calls after the first, which compiles.
"""
import json, os, sys, time

os.environ.update(OMP_WAIT_POLICY='passive')       # threads that wait are not counted as work
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

BLOCK, HEADS, HEAD, ROUNDS, THREADS = map(int, sys.argv[2:7])
torch.set_num_threads(THREADS)
listed = torch.tensor([[c == '1' for c in line.strip()] for line in open(sys.argv[1])])
seq = BLOCK * len(listed)
mask = create_block_mask(lambda b, h, q, k: listed[q // BLOCK, k // BLOCK], 1, 1, seq, seq, device='cpu',
                         BLOCK_SIZE=BLOCK)
q, k, v = (torch.randn(1, HEADS, seq, HEAD) for _ in range(3))
flex, wall, work = torch.compile(flex_attention), [], []
with torch.no_grad():
    for i in range(ROUNDS + 1):
        a, b = time.perf_counter(), time.process_time()
        flex(q, k, v, block_mask=mask)
        if i: wall.append(time.perf_counter() - a), work.append((time.process_time() - b) / THREADS)
try:
    flex(q.requires_grad_(), k, v, block_mask=mask).sum().backward()
    backward = 'works'
except Exception as e: backward = str(e).split('.')[0]
print(json.dumps({'torch': torch.__version__, 'wall': wall, 'work': work, 'backward': backward}))
