"""The compiler with arenas that expose memory faults: python3 stress.py STRESS SHARDC EXAMPLES [all]

STRESS is shardc with small guarded blocks, growing arrays that move often, and old memory overwritten
(ir/support/support.c): code that reads an array's old memory, or writes past the end of its own, gives other bytes or
crashes. Both programs compile, dump, plan and format the examples, and the bytes are the same. Then allocation N fails,
for many N: the compiler reports it with status 70, without a signal, and leaves no temporary folder or output.

`all`: every example and plan, and ten times as many N.
"""
import glob, os, re, shutil, subprocess, sys, tempfile, time

STRESS, SHARDC, EXAMPLES = map(os.path.abspath, sys.argv[1:4])
ALL = 'all' in sys.argv[4:]
D = tempfile.mkdtemp(prefix='stress ')
ENV = {**os.environ, 'NO_COLOR': '1', 'TMPDIR': f'{D}/tmp', 'SHARDC_CACHE_DIR': f'{D}/cache'}
OUT_OF_MEMORY = 70
wrong = []


def run(exe, *a, fail=0):
    p = subprocess.run([exe, *a], cwd=D, capture_output=True, timeout=1200,
                       env={**ENV, 'SHARDC_FAIL_AT': str(fail)} if fail else ENV)
    return p.returncode, p.stdout, p.stderr


def content(name):
    path = os.path.join(D, name)
    return open(path, 'rb').read() if os.path.exists(path) else None


def same(*a, makes=None):
    """What both say and make; none of them crashes."""
    found = []
    for exe in SHARDC, STRESS:
        if makes and os.path.exists(f'{D}/{makes}'): os.unlink(f'{D}/{makes}')
        status, out, err = run(exe, *a)
        found.append((status, out, re.sub(rb'[0-9.]+ m?s\b', b'', err), makes and content(makes)))
    if found[1][0] < 0 or found[0] != found[1]:
        wrong.append(f'{" ".join(a)}: status {found[0][0]} and {found[1][0]}\n{found[1][2][-400:]!r}')


def plans_of(file):
    text = open(file).read()
    return re.findall(r'^plan (\w+)', text, re.M) if len(re.findall(r'^train ', text, re.M)) == 1 else []


def all_the_same():
    few = ('tiny.shard', 'tiny_llama.shard', 'tiny_bert.shard', 'ring.shard')
    for file in sorted(glob.glob(f'{EXAMPLES}/*.shard')):
        same('check', file)
        same('fmt', file)
        if not ALL and os.path.basename(file) not in few: continue
        for plan in [None, *plans_of(file)]:
            options = [file, *(['--plan', plan] if plan else [])]
            for after in ('grad', 'memory') if ALL else ('memory',): same('dump', *options, '--after', after)
            same('plan', *options)
    tiny = f'{EXAMPLES}/tiny.shard'
    for form in 'json', 'dot': same('dump', tiny, '--after', 'fuse', '--format', form)
    same('dump', tiny, '--format', 'html', '-o', 'page', makes='page')
    same('dump', tiny, '--after', 'memory', '--target', 'sm_80')
    same('plan', tiny, '--json')
    same('compile', tiny, '-o', 'tiny', '-q', '--quick', makes='tiny')
    same('explain', 'op:softmax')


def numbers(most):
    """About evenly on a scale of factors, from 1 on."""
    n, step = 1.0, 1.2 if ALL else 3.0
    while n < most:
        yield int(n)
        n = max(n + 1, n * step)


def one_fails(*a, makes=None):
    """Status 70 for each failing allocation, until n exceeds the number of allocations."""
    for n in numbers(10 ** 7):
        if makes and os.path.exists(f'{D}/{makes}'): os.unlink(f'{D}/{makes}')
        status, out, err = run(STRESS, *a, fail=n)
        what = f'allocation {n} of {" ".join(a)}'
        if status in (0, 1) and b'out of memory' not in err: return
        if status != OUT_OF_MEMORY and not (status == 1 and re.search(rb'error\[E1', err)):
            wrong.append(f'{what}: status {status}\n{err[-400:]!r}')
        elif b'out of memory' not in err: wrong.append(f'{what}: nothing is said: {err[-400:]!r}')
        if makes and os.path.exists(f'{D}/{makes}'): wrong.append(f'{what}: {makes} is left')
    wrong.append(f'{" ".join(a)}: no end of allocations')


def one_fails_at_run_time():
    """Only in a build that is all of this kind does an executable know of SHARDC_FAIL_AT."""
    open(f'{D}/text.txt', 'w').write('all is well that ends well. ' * 400)
    for n in numbers(10 ** 6):
        shutil.rmtree(f'{D}/run', ignore_errors=True)
        status, out, err = run(f'{D}/model', 'train', '--data', 'text.txt', '--steps', '2', '--out', 'run', fail=n)
        if status == 0: return
        if status != 1 or b'R0701' not in err: wrong.append(f'allocation {n} of train: {status}\n{err[-400:]!r}')


def nothing_left():
    for _ in range(100): # a separate process removes leftover files
        if not os.listdir(f'{D}/tmp'): return
        time.sleep(0.05)
    wrong.append(f'temporary files are left: {os.listdir(f"{D}/tmp")}')


try:
    os.mkdir(f'{D}/tmp')
    all_the_same()
    tiny = f'{EXAMPLES}/tiny.shard'
    one_fails('check', tiny)
    one_fails('fmt', tiny)
    one_fails('dump', tiny, '--format', 'html', '-o', 'page', makes='page')
    one_fails('plan', tiny, '--html', 'plan.html', makes='plan.html')
    one_fails('compile', tiny, '-o', 'tiny', '-q', '--quick', makes='tiny')
    if run(SHARDC, 'compile', tiny, '-o', 'model', '-q', '--quick')[0] == 0: one_fails_at_run_time()
    nothing_left()
finally:
    shutil.rmtree(D)
for w in wrong: print(w)
print(f'{len(wrong)} wrong')
sys.exit(bool(wrong))
