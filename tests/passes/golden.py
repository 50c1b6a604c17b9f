"""Golden IR: the output of passes for small modules.   golden.py SHARDC PASS.. [update]

A file tests/passes/PASS/WHAT_IT_SHOWS.ir has a comment that says what it shows, a module, and then, as in a terminal,
commands and the output of each for that module:

    # A bias joins the product before it.
    shardc-ir 1
    ..
    # run: opt -p fuse --changes -
    kernel @step.dot1(..

The module is the command's stdin. After a command follow its stdout, then its stderr, then `# exit N` unless N is 0,
and all of it is compared. `update` writes the present output. Without a PASS, the folders are compared with the table
of passes.
"""
import difflib, glob, os, re, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
RUN = '# run: '
LONGEST = 110  # lines; a person reads it whole


def parts(text):
    """The module, and (command, output) of each command."""
    module, *runs = re.split(f'^{RUN}', text, flags=re.M)
    return module, [(run + '\n').split('\n', 1) for run in runs]


def said(shardc, command, module):
    with tempfile.TemporaryDirectory() as folder:  # a pass that crashes leaves a file
        r = subprocess.run([shardc, *command.split()], input=module, cwd=folder, capture_output=True, text=True,
                           timeout=1200)
    ended = '' if r.returncode == 0 else f'# exit {r.returncode}\n'
    return r.stdout + r.stderr + ended


def now(shardc, text):
    module, runs = parts(text)
    blocks = [f'{RUN}{command}\n{said(shardc, command, module)}' for command, _ in runs]
    return '\n'.join([module.rstrip('\n') + '\n'] + blocks)


def strange(name, text):
    """The faults of the file itself."""
    runs = parts(text)[1]
    if not text.startswith('# '): yield 'the first line does not say what it shows'
    if not runs: yield f'no line `{RUN}..`'
    for command, _ in runs:
        if name not in re.split(r'[ ,{]', command): yield f'`{command}` does not run {name}'
    if re.search(r'^# exit (?!1$)', text, re.M): yield 'a command that crashed, or is none'
    if text.count('\n') > LONGEST: yield f'{text.count(chr(10))} lines, at most {LONGEST}'


def check(shardc, name, path, update):
    old = open(path).read()
    new = now(shardc, old)
    if update and new != old: open(path, 'w').write(new)
    here = os.path.relpath(path)
    wrong = [f'{here}: {what}\n' for what in strange(name, new if update else old)]
    if update: return wrong
    return wrong + list(difflib.unified_diff(old.splitlines(True), new.splitlines(True), here, 'now'))


def table():
    """The passes that are built."""
    rows = re.findall(r'^PASS\((\w+), +(\w+),', open(f'{HERE}/../../passes/passes.def').read(), re.M)
    return [name for name, function in rows if function != 'NULL']


def check_folders():
    folders = {name for name in os.listdir(HERE) if glob.glob(f'{HERE}/{name}/*.ir')}
    for path in sorted(glob.glob(f'{HERE}/*/*')):
        if not path.endswith('.ir'): yield f'{os.path.relpath(path)}: not run\n'
    for name in table():
        if name not in folders: yield f'tests/passes/{name}: no golden file shows what pass `{name}` does\n'
    for name in sorted(folders - set(table())): yield f'tests/passes/{name}: there is no pass `{name}`\n'


shardc, *names = os.path.abspath(sys.argv[1]), *sys.argv[2:]
update = 'update' in names
names = [name for name in names if name != 'update']
wrong = [] if names or update else list(check_folders())
for name in names or (table() if update else []):
    files = sorted(glob.glob(f'{HERE}/{name}/*.ir'))
    if not files: wrong.append(f'tests/passes/{name}: no golden files\n')
    for path in files: wrong += check(shardc, name, path, update)
sys.stdout.writelines(wrong)
if wrong and not update: print('if that is how it should be: golden.py SHARDC update, and look at the difference')
sys.exit(len(wrong) > 0)
