"""Every code of a diagnostic is produced by a file, and explained; no other code is.   codes.py SHARDC ROOT NOFORK

A file of tests/frontend/codes says how: `# run: ARGUMENTS` with FILE for itself, and `# expect: CODE [at LINE:COLUMN]`;
`# with: NAME=VALUE` sets the environment: FOLDER is an empty folder, NOFORK a library without processes, ROOT this
repository; `# folder: NAME` makes a folder in it.
Files of tests/frontend/cases (see expect.sh) count too, and for rules of the IR that no text can break and passes that
fail, the C tests; for records of this machine, tests/run/tune.py.
"""
import os, re, shutil, subprocess, sys, tempfile

SHARDC, ROOT, NOFORK = sys.argv[1], os.path.abspath(sys.argv[2]), sys.argv[3]
CODES, CASES = f'{ROOT}/tests/frontend/codes', f'{ROOT}/tests/frontend/cases'
ROOMS = ['driver', 'frontend', 'ir', 'passes', 'codegen']
wrong = []


def text(path): return open(path, errors='replace').read()


def sources():
    for room in ROOMS:
        for folder, _, names in os.walk(f'{ROOT}/{room}'):
            for n in names:
                if n.endswith(('.c', '.h', '.l', '.y')): yield text(f'{folder}/{n}')


def given(): return sorted(set(re.findall(r'"([EWN]\d{4})"', '\n'.join(sources()))))


def run_file(path, folder):
    head = text(path)
    words = re.search(r'^# run: (.*)$', head, re.M).group(1).split()
    args = [w.replace('FILE', path).replace('FOLDER', folder) for w in words]
    code, place = re.search(r'^# expect: (\w+)(?: at (\d+:\d+))?', head, re.M).groups()
    env = dict(os.environ, ASAN_OPTIONS='verify_asan_link_order=0:detect_leaks=0')
    for assignment in re.findall(r'^# with: (\w+=.*)$', head, re.M):
        name, value = assignment.split('=', 1)
        env[name] = value.replace('FOLDER', folder).replace('NOFORK', shutil.copy(NOFORK, folder)).replace('ROOT', ROOT)
    for name in re.findall(r'^# folder: (.*)$', head, re.M): os.makedirs(f'{folder}/{name}')
    r = subprocess.run([SHARDC, *args, '--message-format=short'], cwd=folder, env=env, capture_output=True, text=True,
                       timeout=1200)
    found = re.findall(r'^(?:.*?:(\d+:\d+): )?\w+\[(\w+)\]', r.stderr, re.M)
    fits = [p for p, c in found if c == code and (not place or p == place)]
    if not fits: wrong.append(f'{path}: {code} {place or ""} wanted, found {r.returncode} {r.stderr}{r.stdout[:200]}')
    if (r.returncode == 0) != (code[0] != 'E'): wrong.append(f'{path}: status {r.returncode}')
    return code


covered = set(re.findall(r'^# expect: (\w+)', '\n'.join(text(f'{CASES}/{f}') for f in os.listdir(CASES)), re.M))
for folder, _, names in os.walk(f'{ROOT}/tests', followlinks=True):
    for n in names:
        if n == 'tune.py': covered |= set(re.findall(r"'(W1207)'", text(f'{folder}/{n}')))
        if n == 'equal.py': covered |= set(re.findall(r"'(E1208)'", text(f'{folder}/{n}')))
        if n.endswith('.c'): covered |= set(re.findall(r'"(E11\d\d|E1204)"', text(f'{folder}/{n}')))
with tempfile.TemporaryDirectory() as folder:
    for name in sorted(os.listdir(CODES)): covered.add(run_file(f'{CODES}/{name}', folder))
explained = set(re.findall(r'^EXPLAIN\("(\w+)"', text(f'{ROOT}/driver/explain.def'), re.M))
codes = given()
told = subprocess.run([SHARDC, 'explain', *codes], capture_output=True, text=True).stdout
for code in codes:
    if code not in covered: wrong.append(f'{code}: no file produces it')
    if code not in explained: wrong.append(f'{code}: no row in driver/explain.def')
    if not re.search(f'^{code}: ', told, re.M): wrong.append(f'{code}: shardc explain fails')
wrong += [f'{code}: explained, and no source gives it' for code in sorted(explained - set(codes))]
for line in wrong: print(line)
sys.exit(len(wrong) > 0)
