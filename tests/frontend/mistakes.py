"""Seeded mistakes over the examples (mistakes.txt): the compiler reports each at its line, and the edit that the
message proposes corrects it. mistakes.py SHARDC EXAMPLES [--show [PATTERN]]    --show prints every message as the user
sees it.

Each row is tried on a copy of the example, in a folder with all other examples. The first error or warning must have
the code and the line that the table gives. Where the message has edits (--message-format=json), the edited copy must
check without errors.
"""
import json, os, re, shutil, subprocess, sys, tempfile

SHARDC, EXAMPLES = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
SHOW = sys.argv[4] if len(sys.argv) > 4 else '' if len(sys.argv) > 3 else None
HERE = os.path.dirname(os.path.abspath(__file__))
ROW = re.compile(r'^(\w+):(\d+)\s+(.*?)  =>  (.*?)  (none|[EW]\d{4})(?:@(\d+))?$')
wrong, mended, found = [], 0, 0


def rows():
    for number, line in enumerate(open(f'{HERE}/mistakes.txt'), 1):
        line = line.rstrip('\n')
        if not line or line[0] == '#': continue
        m = ROW.match(line)
        if not m: sys.exit(f'mistakes.txt:{number}: not a row: {line}')
        file, at, old, new, code, where = m.groups()
        yield number, file, int(at), old, new.replace('\\n', '\n'), code, int(where or at)


def check(path):
    r = subprocess.run([SHARDC, 'check', '--message-format=json', os.path.basename(path)], cwd=os.path.dirname(path),
                       capture_output=True, text=True, timeout=1200)
    if r.returncode not in (0, 1): wrong.append(f'{path}: status {r.returncode} {r.stderr[-500:]}')
    return r.returncode, [json.loads(l) for l in r.stderr.splitlines() if l.startswith('{')]


def seeded(text, at, old, new):
    lines = text.split('\n')
    if old not in lines[at - 1]: return None
    lines[at - 1] = lines[at - 1].replace(old, new, 1)
    return '\n'.join(lines)


def apply(path, edits):
    """All edits of one message, from the last to the first."""
    text = open(path, 'rb').read()
    for e in sorted(edits, key=lambda e: -e['offset']):
        if e['file'] != os.path.basename(path): return False
        text = text[:e['offset']] + e['text'].encode() + text[e['offset'] + e['length']:]
    open(path, 'wb').write(text)
    return True


def try_row(folder, number, file, at, old, new, code, where):
    global mended, found
    path, name = f'{folder}/{file}.shard', f'mistakes.txt:{number} ({file}:{at})'
    original = open(path).read()
    text = seeded(original, at, old, new)
    if text is None: return wrong.append(f'{name}: line {at} has no `{old}`')
    open(path, 'w').write(text)
    status, messages = check(path)
    bad = [m for m in messages if m['code'][0] in 'EW']
    new_ones = [m for m in bad if (m['code'], m['message']) not in known[file]]
    if SHOW is not None and SHOW in code + name:
        print(f'---- {name}: {old} => {new!r}')
        for m in new_ones: print(m['rendered'], end='')
        for m in new_ones:
            if m['edits']: print('   EDIT', [(e['line'], e['column'], e['length'], e['text']) for e in m['edits']])
    if code == 'none':
        if new_ones: wrong.append(f'{name}: nothing wanted, found {new_ones[0]["code"]}')
    elif not new_ones: wrong.append(f'{name}: {code} wanted, found nothing')
    else:
        found += 1
        m = new_ones[0]
        line = m['spans'][0]['line'] if m['spans'] else 0
        if (m['code'], line) != (code, where):
            wrong.append(f'{name}: {code} at line {where} wanted, found {m["code"]} at {line}: {m["message"]}')
        if m['edits'] and apply(path, m['edits']):
            mended += 1
            status, after = check(path)
            left = [a for a in after if a['code'][0] == 'E' or a['code'] == m['code']]
            left = [a for a in left if (a['code'], a['message']) not in known[file]]
            if left:
                wrong.append(f'{name}: the edit {m["edits"]} does not mend it: {left[0]["code"]} {left[0]["message"]}')
    open(path, 'w').write(original)


with tempfile.TemporaryDirectory() as folder:
    for f in sorted(os.listdir(EXAMPLES)):
        if os.path.isfile(f'{EXAMPLES}/{f}'): shutil.copy(f'{EXAMPLES}/{f}', folder)
    names = {r[1] for r in rows()}
    known = {f: {(m['code'], m['message']) for m in check(f'{folder}/{f}.shard')[1]} for f in names}
    for row in rows(): try_row(folder, *row)
for line in wrong: print(line)
print(f'{found} mistakes found, {mended} of them mended by the edit of their message, {len(wrong)} wrong')
sys.exit(len(wrong) > 0)
