"""Fewer key/value heads than ranks of a tensor axis (E0701): the diagnostic has a help exactly where the edit works,
and the edited plan computes the same as one rank.   heads.py SHARDC EXAMPLES
"""
import json, os, re, subprocess, sys, tempfile

SHARDC, EXAMPLES = map(os.path.abspath, sys.argv[1:3])
MODEL = '''use "std"
dims {{ Batch, Seq; Key like Seq; Vocab = {vocab}; Embed = 16; Kv = {kv}; Group = {group}; Head = 4 }}
model M {{
  input tokens, targets [Batch, Seq] of Vocab
  param w [Vocab, Embed] ~ normal(0.3)
  param wq [Kv, Group, Head, Embed] ~ normal(0.2)
  param wk [Kv, Head, Embed] ~ normal(0.2)
  param wo [Embed, Kv, Group, Head] ~ normal(0.2)
  x = w[Vocab = tokens]
  k = dot[Embed](x, wk)
  y = dot[Kv, Group, Head](attention[Seq -> Key; Head](dot[Embed](x, wq), k, k, mask = causal), wo)
  loss cross_entropy[Vocab](dot[Embed](x + y, w), targets)
}}
train t for M {{ size Seq = 16; batch 8; steps 3; data "a.bin" format = bytes; optim adamw }}
'''
ONE_LINE = 'plan p for M {{ mesh tensor = {n}; place Kv, Vocab -> tensor }}\n'
LINES = '''plan p for M {{
  mesh      data = 2, rep = 1, tensor = {n}
  place     Batch -> data
  place     Kv, Vocab -> tensor else Seq          # a comment
  zero      2 over data
}}
'''
# key/value heads, query heads of each, ranks, size of Vocab, plan, new axis or dim
CASES = [
    (2, 2, 4, 64, ONE_LINE, 'rep = 2'), (2, 2, 4, 64, LINES, 'rep2 = 2'), (8, 4, 16, 64, LINES, 'rep2 = 2'),
    (8, 4, 32, 64, ONE_LINE, 'rep = 4'), (6, 2, 4, 64, ONE_LINE, 'rep = 2'), (1, 4, 4, 64, ONE_LINE, 'place Group'),
    (3, 4, 4, 64, LINES, 'place Group'),
    (3, 1, 4, 64, ONE_LINE, None),      # no query heads to split
    (8, 3, 16, 64, ONE_LINE, None),     # 3 do not go over 2 ranks
    (2, 2, 4, 66, ONE_LINE, None),      # nor 66 words over 4
]
wrong = []


def run(*args): return subprocess.run([SHARDC, *args], cwd=folder, capture_output=True, text=True)


def write(text): open(f'{folder}/m.shard', 'w').write(text)


def edited(text, edits):
    for e in sorted(edits, key=lambda e: -e['offset']):
        text = text[:e['offset']] + e['text'] + text[e['offset'] + e['length']:]
    return text


def check(kv, group, n, vocab, plan, help):
    name, text = (kv, group, n, vocab), (MODEL + plan).format(kv=kv, group=group, vocab=vocab, n=n)
    write(text)
    said = run('check', 'm.shard')
    about = [l for l in said.stderr.split('\n') if 'Group' in l and 'help' in l]
    if 'error[E0701]' not in said.stderr: wrong.append(f'{name}: no E0701\n{said.stderr}')
    if not help: return about and wrong.append(f'{name}: help that does not work\n{said.stderr}')
    if not any(help in l for l in about): wrong.append(f'{name}: no help with `{help}`\n{said.stderr}')
    found = [json.loads(l) for l in run('check', 'm.shard', '--message-format=json').stderr.splitlines()]
    text = edited(text, found[0]['edits'])
    write(text)
    mended = run('check', 'm.shard')
    if mended.returncode: wrong.append(f'{name}: the edited plan is refused\n{text}\n{mended.stderr}')
    for line in re.findall(r'`((?:mesh|place) [^`]*)`', '\n'.join(about + [said.stderr])):
        if line not in re.sub(' +', ' ', text): wrong.append(f'{name}: `{line}` is not what the edit writes\n{text}')
    if n > 4: return
    judged = run('verify', 'm.shard', '--plan', 'p')
    if judged.returncode: wrong.append(f'{name}: verify\n{text}\n{judged.stdout}{judged.stderr}')


with tempfile.TemporaryDirectory() as folder:
    os.environ['SHARDC_PATH'] = EXAMPLES
    open(f'{folder}/a.bin', 'wb').write(bytes((i * i // 7 + i) % 64 for i in range(4000)))
    for case in CASES: check(*case)
print('\n'.join(wrong))
sys.exit(len(wrong) > 0)
