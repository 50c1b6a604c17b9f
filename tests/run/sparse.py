"""Block-sparse attention under plans: python3 sparse.py SHARDC

A layout with draws of its own for each head, grouped queries, a length that is no multiple of a block, with `causal`
and `padding`, windows of elements that differ by head: heads, positions, the batch and layers over an axis, ZeRO,
micro-batches and recomputation give the losses, norms and tensors of one rank. Each rank has its own lists where its
number says which positions or heads these are.
"""
import json, os, sys
from common import check, npy, run, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
MODEL = '''use "std"
dims { Batch; Seq = 60; Key like Seq; Kv = 2; Group = 2; Head = 8; Embed = 32; Vocab = 50; Layers = 2 }
layout drawn [Kv, Group, Seq, Key] = blocks(8) & (window(3) | global(1) | random(2, seed = 7))
layout apart [Kv, Group, Seq, Key] = per_head([sliding(45), sliding(21)])
layout shared [Seq, Key] = blocks(16) & fixed(local = 2, global = 1)
layer Attn(x: [Batch, Seq, Embed], valid: [Batch, Key] bool) -> [Batch, Seq, Embed] {
  sub query = Linear[Embed -> Kv, Group, Head]
  sub key   = Linear[Embed -> Kv, Head]
  sub value = Linear[Embed -> Kv, Head]
  sub out   = Linear[Kv, Group, Head -> Embed]
  q = query(x)
  y = attention[Seq -> Key; Head](q, key(x), value(x), mask = drawn & causal & apart)
  return x + out(y + attention[Seq -> Key; Head](q, key(x), value(x), mask = shared & padding(valid)))
}
model M {
  input tokens [Batch, Seq] of Vocab
  input labels [Batch, Seq] of Vocab
  input valid [Batch, Key] bool
  param word [Vocab, Embed] ~ normal(0.3)
  stack h [Layers] of Attn
  logits = dot[Embed](h(word[Vocab = tokens], valid), word)
  loss cross_entropy[Vocab](logits, labels)
}
train t for M {
  batch 4
  steps 6
  data columns(tokens = "t.npy", labels = "t.npy", valid = "v.npy")
  optim sgd lr = 1e-2
}
plan heads for M {
  mesh tensor = 2
  place Kv -> tensor else Seq
}
plan context for M {
  mesh c = 2
  place Seq -> c
}
plan batch for M {
  mesh data = 2
  place Batch -> data
  zero 3
  micro 2
  recompute h.* keep = input
}
plan stages for M {
  mesh pipe = 2
  place Layers -> pipe
  micro 1
}
'''


open(f'{folder}/m.shard', 'w').write(MODEL)
npy(f'{folder}/t.npy', '<i4', (16, 60), [(i * i + i // 7) % 50 for i in range(960)])
npy(f'{folder}/v.npy', '|b1', (16, 60), [i % 60 < 60 - i // 60 * 3 for i in range(960)])
for plan, by_rank in (('heads', 1), ('context', 2), ('batch', 0), ('stages', 0)):
    out, _ = run(SHARDC, 'verify', 'm.shard', '--plan', plan, cwd=folder, env=dict(TMPDIR=folder))
    check('they agree' in out, f'{plan}: {out}')
    text, _ = run(SHARDC, 'dump', 'm.shard', '--plan', plan, '--after', 'sparse', cwd=folder)
    lists = [line for line in text.splitlines() if line.startswith('lists @')]
    check(len(lists) == 2 and sum('steps = [' in l for l in lists) == by_rank, f'{plan}: {lists}')
    said = json.loads(run(SHARDC, 'plan', 'm.shard', '--plan', plan, '--json', cwd=folder)[0].splitlines()[0])['lists']
    check(sum(l['differing_ranks'] == 2 and l['density']['least'] < l['density']['most'] < .9 for l in said) == by_rank,
          f'{plan}: {said}')
