"""The TextMate grammar: its patterns can be read, and words of the examples get the scope they should.   editors.py
ROOT

A small engine for the part of TextMate that the grammar uses: at each place the first pattern that begins earliest
wins."""
import json, re, sys

ROOT = sys.argv[1]
G = json.load(open(f'{ROOT}/editors/shardc.tmLanguage.json'))
wrong = []


def rules(patterns):
    for p in patterns:
        r = G['repository'][p['include'][1:]] if 'include' in p else p
        yield r


def scopes(line, stack):
    """[(text, scope)] of one line; stack: the open begin/end rules."""
    out, at = [], 0
    while at <= len(line):
        inside = stack[-1] if stack else None
        found = []
        if inside: found.append((re.compile(inside['end']).search(line, at), inside, True))
        for r in rules(inside['patterns'] if inside else G['patterns']):
            found.append((re.compile(r.get('match') or r['begin']).search(line, at), r, False))
        found = [(m.start(), i, m, r, end) for i, (m, r, end) in enumerate(found) if m
                 and (m.end() > m.start() or 'begin' in r)]
        if not found: break
        _, _, m, r, end = min(found, key=lambda f: f[:2])
        captures = r.get('captures', {}) if 'match' in r else r.get('beginCaptures', {}) if not end else {}
        for k, v in captures.items(): out.append((m.group(int(k)), v['name']))
        if 'match' in r and 'name' in r: out.append((m.group(), r['name']))
        if end: stack.pop()
        elif 'begin' in r: stack.append(r)
        at = max(m.end(), at + 1) if m.end() == at and not end and 'begin' not in r else m.end()
        if end and m.end() == m.start(): at += 1
    return out


def expect(text, word, scope):
    stack, all = [], []
    for line in text.split('\n'): all += scopes(line, stack)
    if stack: wrong.append(f'{text!r}: a block is still open')
    if not any(w.strip() == word and s == scope + '.shard' for w, s in all):
        wrong.append(f'{text!r}: `{word}` is not {scope}: {all}')


expect('layer Block(x: [Batch]) -> [Batch] {', 'layer', 'keyword.declaration')
expect('layer Block(x: [Batch]) -> [Batch] {', 'Block', 'entity.name.type')
expect('  param wte [Vocab, Embed] ~ normal(0.02)  # note', 'param', 'keyword.control')
expect('  param wte [Vocab, Embed] ~ normal(0.02)  # note', 'normal', 'support.function')
expect('  param wte [Vocab, Embed] ~ normal(0.02)  # note', '0.02', 'constant.numeric')
expect('  param wte [Vocab, Embed] ~ normal(0.02)  # note', '# note', 'comment.line.number-sign')
expect('  sub ln = LayerNorm[Embed] with eps = 1e-5', 'LayerNorm', 'support.class')
expect('  sub ln = LayerNorm[Embed] with eps = 1e-5', 'with', 'keyword.other')
expect('  param b [D] = 0  @nodecay', '@nodecay', 'storage.modifier')
expect('use "std"', '"std"', 'string.quoted.double')
expect('machine m { node cpus = 1 memory = 16GiB }', 'machine', 'keyword.declaration')
expect('machine m { node cpus = 1 memory = 16GiB }', 'node', 'support.type.property-name')
expect('machine m { node cpus = 1 memory = 16GiB }', '16GiB', 'constant.numeric')
expect('plan p for M {\n  zero 2 over data bucket = 25MiB\n}\nmodel M {\n  loss x\n}', 'zero',
       'support.type.property-name')
expect('plan p for M {\n  zero 2 over data bucket = 25MiB\n}\nmodel M {\n  loss x\n}', 'loss', 'keyword.control')
expect('x |> fc1 |> gelu', '|>', 'keyword.operator')
for line in wrong: print(line)
sys.exit(len(wrong) > 0)
