"""The examples of docs/language.md: language.py SHARDC ROOT [update]

A block ```shard must check without errors and warnings, and be as `shardc fmt` has it, up to hand alignment. A block
```shard fails must have errors, and the next block is what `shardc check` prints; `update` writes that block."""
import os, re, subprocess, sys, tempfile

SHARDC, ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
DOC = f'{ROOT}/docs/language.md'
text = open(DOC).read()
PRELUDE = re.search(r'^use "std"\ndims \{[^}]*\}\n(?=```)', text, re.M).group(0)
BLOCK = re.compile(r'^```shard( fails)?\n(.*?)^```\n(?:\n```message\n(.*?)^```\n)?', re.M | re.S)
wrong, out, at = [], [], 0


def check(source, folder):
    body = source if re.search(r'^dims ', source, re.M) else source + PRELUDE
    open(f'{folder}/example.shard', 'w').write(body)
    r = subprocess.run([SHARDC, 'check', '-q', 'example.shard'], cwd=folder, capture_output=True, text=True)
    return r.returncode, r.stderr


with tempfile.TemporaryDirectory() as folder:
    for m in BLOCK.finditer(text):
        fails, source, message = m.groups()
        line = text[:m.start()].count('\n') + 1
        status, said = check(source, folder)
        made = subprocess.run([SHARDC, 'fmt', '-'], input=source, capture_output=True, text=True)
        if not (fails and made.returncode) and made.stdout != source:
            wrong.append(f'{DOC}:{line}: fmt makes of it\n{made.stdout}{made.stderr}')
        if fails and (status != 1 or 'error[' not in said): wrong.append(f'{DOC}:{line}: no error\n{said}')
        if not fails and (status or re.search(r'^(error|warning)', said, re.M)):
            wrong.append(f'{DOC}:{line}: not without mistakes\n{said}')
        if fails and said != message and 'update' not in sys.argv:
            wrong.append(f'{DOC}:{line}: the message is now\n{said}')
        out += [text[at:m.start()], f'```shard{fails or ""}\n{source}```\n'
                + (f'\n```message\n{said}```\n' if fails else '')]
        at = m.end()
if 'update' in sys.argv: open(DOC, 'w').write(''.join(out) + text[at:])
kinds = set(re.findall(r'^\s*(\w+)', '\n'.join(m.group(2) for m in BLOCK.finditer(text)), re.M))
table = open(f'{ROOT}/frontend/syntax/keywords.def').read()
words = re.findall(r'^KEYWORD\(\w+, (\w+), (?:ITEM|BLOCK|LINE)\)', table, re.M)
for w in words:
    if w not in kinds and w != 'grad': wrong.append(f'{DOC}: no example has `{w}`')
for line in wrong: print(line)
sys.exit(len(wrong) > 0)
