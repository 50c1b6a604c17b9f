"""Fine-tuning on dialogues, all parameters: 50 losses equal those of a twin in TRL's way (sft.json: transformers 5.24
and PyTorch 2.15), which makes its own tokens and labels of the same JSONL: the loss is the mean over the tokens of
answers and the marks that end them, rows are padded on the right, labels elsewhere are -100. Two ranks of zero 3 have
the same losses.

    sft.py SHARDC
    sft.py SHARDC golden FOLDER    leaves the data and the base in FOLDER; `python3 sft.py twin FOLDER`, with torch and
                                   transformers, prints the losses
"""
import json, os, random, sys

ROWS, BATCH, LENGTH, STEPS = 96, 4, 24, 50
WORDS = ['red', 'blue', 'green', 'one', 'two', 'three', 'cat', 'dog', 'and', 'or', 'is', 'not', 'up', 'down']
VOCAB = ['[PAD]', '[UNK]', 'user', 'model', '.', *WORDS, *(f'w{i}' for i in range(13))]
MODEL = f'''use "llama"
model Chat {{
  input tokens, targets [Batch, Seq] of Vocab
  param embed   [Vocab, Embed] ~ normal(0.02)
  param lm_head [Vocab, Embed] ~ normal(0.02)
  stack layers [Layers] of Block
  sub norm = RMSNorm[Embed]
  loss cross_entropy[Vocab](dot[Embed](norm(layers(embed[Vocab = tokens])), lm_head), targets, ignore = -100)
}}
variant Small of Chat {{ Vocab = {len(VOCAB)}; Embed = 32; Kv = 2; Group = 2; Head = 8; Mlp = 64; Layers = 2 }}
train t for Small {{
  size Seq = {LENGTH}; batch {BATCH}; steps {STEPS}
  data columns(tokens = "sft.tokens.npy", targets = "sft.targets.npy") shuffle = off
  optim adamw lr = 2e-3 weight_decay = 0.01
  lr linear warmup = 5
  clip 1
}}
plan two for Small {{ mesh data = 2; place Batch -> data; zero 3 over data; micro 1 }}
'''


def dialogues():
    r = random.Random(11)
    for _ in range(ROWS):
        turns = []
        for _ in range(r.choice((1, 1, 2))):
            turns += [('user', r.choices(WORDS, k=r.randint(2, 5))), ('assistant', r.choices(WORDS, k=r.randint(1, 4)))]
        yield turns


def twin(folder):
    """A model of transformers; batches in file order, around the end."""
    import torch
    from transformers import LlamaForCausalLM
    rows = []
    for line in open(f'{folder}/chat.jsonl'):
        ids, labels = [], []
        for turn in json.loads(line)['messages']:
            words = turn['content'].split()
            learned = turn['role'] == 'assistant'
            for i, w in enumerate(['model' if learned else 'user', *words, *['.'] * learned]):
                ids.append(VOCAB.index(w)), labels.append(VOCAB.index(w) if learned and i else -100)
        room = LENGTH + 1 - len(ids)
        rows.append((ids + [0] * room, labels + [-100] * room, [1] * len(ids) + [0] * room))
    model = LlamaForCausalLM.from_pretrained(f'{folder}/base', dtype=torch.float32)
    optim = torch.optim.AdamW([{'params': [p for p in model.parameters() if p.ndim > 1], 'weight_decay': 0.01},
                               {'params': [p for p in model.parameters() if p.ndim == 1], 'weight_decay': 0.0}],
                              lr=2e-3, betas=(0.9, 0.999))
    rate = lambda t: min((t + 1) / 5, 1) if t < 5 else 1 - (t - 5) / (STEPS - 5)
    losses = []
    for t in range(STEPS):
        for group in optim.param_groups: group['lr'] = 2e-3 * rate(t)
        ids, labels, mask = (torch.tensor(x) for x in zip(*(rows[(t * BATCH + i) % ROWS] for i in range(BATCH))))
        loss = model(input_ids=ids, labels=labels, attention_mask=mask).loss
        optim.zero_grad(), loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optim.step()
        losses.append(round(loss.item(), 8))
    print(json.dumps(losses))


if sys.argv[1] == 'twin': sys.exit(twin(sys.argv[2]))
from common import HERE, check, run, workdir

SHARDC = os.path.abspath(sys.argv[1])
os.chdir(os.path.abspath(sys.argv[3]) if len(sys.argv) > 3 else workdir())
open('m.shard', 'w').write(MODEL)
open('vocab.txt', 'w').write('\n'.join(VOCAB) + '\n')
open('plain.chat', 'w').write('user      "user " " "\nassistant "model " " ." " "\n')
with open('chat.jsonl', 'w') as f:
    for turns in dialogues():
        f.write(json.dumps({'messages': [{'role': a, 'content': ' '.join(w)} for a, w in turns]}) + '\n')
run(SHARDC, 'data', 'tokenize', 'chat.jsonl', '--tokenizer', 'vocab.txt', '--chat', 'plain.chat', '--length',
    str(LENGTH), '-o', 'sft')
losses = lambda out: [json.loads(x)['loss'] for x in open(f'{out}/metrics.jsonl') if '"loss"' in x]
run(SHARDC, 'compile', 'm.shard', '--model', 'Small', '-o', 'm', '--quick')
run('./m', 'train', '--steps', '1', '--seed', '3', '--out', 'r0')
run('./m', 'export', '--resume=r0', '--out', 'base')
if len(sys.argv) > 3: sys.exit()
run('./m', 'train', '--init', 'base', '--out', 'r1')
want, have = json.load(open(f'{HERE}/sft.json')), losses('r1')
worst = max(abs(x - y) for x, y in zip(have, want, strict=True))
check(worst < 1e-5, f'losses differ by {worst} from the twin')
check(want[-1] < want[0] - 0.5, 'the twin learns')
run(SHARDC, 'compile', 'm.shard', '--model', 'Small', '--plan', 'two', '-o', 'two', '--quick')
run(SHARDC, 'run', './two', '-n', '2', '--', 'train', '--init', 'base', '--out', 'r2')
apart = max(abs(x - y) for x, y in zip(losses('r2'), have, strict=True))
check(apart < 5e-6, f'two ranks differ by {apart}')
print(f'50 losses of SFT within {worst:.2g} of the twin, two ranks within {apart:.2g}')
