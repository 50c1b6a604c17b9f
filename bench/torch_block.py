"""One layer of GPT-2 in PyTorch, for the peers of the step benchmarks: torch_gpt2.py on a processor, torch_steps.py on
a GPU."""
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, embed, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(embed), nn.LayerNorm(embed)
        self.c_attn, self.proj = nn.Linear(embed, 3 * embed), nn.Linear(embed, embed)
        self.fc, self.out = nn.Linear(embed, 4 * embed), nn.Linear(4 * embed, embed)

    def forward(self, x):
        batch, seq, embed = x.shape
        q, k, v = (t.view(batch, seq, self.heads, embed // self.heads).transpose(1, 2)
                   for t in self.c_attn(self.ln_1(x)).split(embed, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, seq, embed)
        x = x + self.proj(y)
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate='tanh'))
