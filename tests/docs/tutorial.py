"""The steps of docs/tutorial.md, as a reader would take them: tutorial.py SHARDC ROOT

A block ```shard file=NAME is saved; ```shard change=NAME takes the place of the layer of the same name. In a block
```sh each line `$ COMMAND` runs in one folder, and the lines after it are its output (stdout and stderr together; none:
not compared). `...` stands for anything within a line, and a line of it for any lines."""
import os, re, subprocess, sys, tempfile

SHARDC, ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
DOC = f'{ROOT}/docs/tutorial.md'
text = open(DOC).read()
wrong = []


def pattern(lines):
    parts = []
    for l in lines:
        if l == '...': parts.append(r'(?:.*\n)*?')
        else: parts.append(re.escape(l).replace(re.escape('...'), '.*') + r'\n')
    return '^' + ''.join(parts) + '$'


def run(folder, command, wanted, line):
    env = dict(os.environ, PATH=f'{os.path.dirname(SHARDC)}:{os.environ["PATH"]}')
    r = subprocess.run(['sh', '-c', command], cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       text=True, errors='replace', timeout=1200)
    said = re.sub(r'\x1b\[[0-9;]*[A-Za-z]', '', r.stdout.replace('\r', '\n'))
    if said and said[-1] != '\n': said += '\n'
    if wanted and not re.match(pattern(wanted), said):
        wrong.append(f'{DOC}:{line}: {command}\n--- wanted\n' + '\n'.join(wanted) + f'\n--- said\n{said}')
    if not wanted and r.returncode: wrong.append(f'{DOC}:{line}: {command}: status {r.returncode}\n{said}')


def change(path, new):
    name = re.match(r'layer (\w+)', new).group(1)
    old = open(path).read()
    made = re.sub(rf'^layer {name}\(.*?^}}\n', lambda m: new, old, flags=re.M | re.S)
    if made == old: wrong.append(f'{path}: no layer {name}')
    open(path, 'w').write(made)


with tempfile.TemporaryDirectory() as folder:
    for m in re.finditer(r'^```(\w+)(?: (\w+)=(\S+))?\n(.*?)^```\n', text, re.M | re.S):
        kind, how, name, body = m.groups()
        at = text[:m.start()].count('\n') + 2
        if kind == 'shard' and how == 'file': open(f'{folder}/{name}', 'w').write(body)
        elif kind == 'shard': change(f'{folder}/{name}', body)
        else:
            for step in re.split(r'^\$ ', body, flags=re.M)[1:]:
                command, *wanted = step.rstrip('\n').split('\n')
                run(folder, command, wanted, at)
                if wrong: break
        if wrong: break
for w in wrong: print(w)
sys.exit(len(wrong) > 0)
