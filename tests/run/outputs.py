"""Outputs that are no regular files (device nodes, FIFOs, links) are written in place, never replaced. Temporary names
are unpredictable, no temporary file remains, and an executable has the mode that the umask gives.

    python3 outputs.py SHARDC TOY
"""
import os, shutil, signal, stat, subprocess, sys, threading, time
from common import ROOT, check, read, run, text_file, workdir

SHARDC, TOY, WORK = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), workdir()
MODEL = os.path.join(ROOT, 'tests', 'reference', 'mlp.shard')
path = lambda *p: os.path.join(WORK, *p)


def kind(name): return stat.S_IFMT(os.lstat(path(name)).st_mode)


def to_fifo(name, *command):
    """What comes out of a FIFO that the command writes."""
    got = []
    reader = threading.Thread(target=lambda: got.append(open(path(name), 'rb').read()))
    reader.start()
    run(*command, cwd=WORK)
    reader.join()
    return got[0]


text_file(path('text.txt'), 4000)
run(SHARDC, 'dump', MODEL, '-o', path('m.ir'))
TRAIN = [TOY, 'train', '--data', 'text.txt', '--steps', '3', '--quiet', '--save-every', '0']
run(*TRAIN, '--out', 'plain', '--dump', 'plain.st', cwd=WORK)
WRITERS = {'ir': [SHARDC, 'compile', MODEL, '--emit=ir', '-q', '-o'],
           'c': [SHARDC, 'compile', MODEL, '--emit=c', '-q', '-o'],
           'dump': [SHARDC, 'dump', MODEL, '-o'], 'html': [SHARDC, 'dump', MODEL, '--format', 'html', '-o'],
           'opt': [SHARDC, 'opt', path('m.ir'), '-p', 'inline,simplify', '-o'],
           'report': [SHARDC, 'report', path('plain'), '-o'],
           'exe': [SHARDC, 'compile', MODEL, '-q', '--quick', '-o']}

os.mkfifo(path('fifo'))
for name, command in WRITERS.items():
    os.symlink('real', path('link'))
    run(*command, 'link', cwd=WORK)
    check(kind('link') == stat.S_IFLNK and os.path.getsize(path('real')) > 100, f'{name}: a link stays')
    want = read(path('real'))
    for f in 'link', 'real': os.remove(path(f))
    got = to_fifo('fifo', *command, 'fifo')
    check(kind('fifo') == stat.S_IFIFO and (got == want or name == 'html' and len(got) > 100),
          f'{name}: a FIFO')  # html tells times
run(SHARDC, 'data', 'convert', 'text.txt', '--to', 'u16', '-o', 'plain.u16', cwd=WORK)
os.symlink('real', path('link.u16'))
run(SHARDC, 'data', 'convert', 'text.txt', '--to', 'u16', '-o', 'link.u16', cwd=WORK)
check(kind('link.u16') == stat.S_IFLNK and read(path('real')) == read(path('plain.u16')), 'data convert')

# The runtime: a dump and a trace through links and a FIFO.
os.symlink('real.st', path('link.st')), os.symlink('real.json', path('link.json'))
run(*TRAIN, '--out', 'linked', '--dump', 'link.st', '--trace', 'link.json', cwd=WORK)
check(kind('link.st') == kind('link.json') == stat.S_IFLNK and read(path('real.st')) == read(path('plain.st')),
      '--dump and --trace')
check(to_fifo('fifo', *TRAIN, '--out', 'through', '--dump', 'fifo') == read(path('plain.st')), '--dump to a FIFO')

# Paths that cannot be written are refused before the work: nothing else is written, no model is read.
for words in (['plan', 'none.shard', '--html'], ['plan', 'none.shard', '--svg'], ['dump', 'none.shard', '-o'],
              ['opt', 'none.ir', '-o'], ['launch', 'k8s', 'none.shard', '-o'], ['compile', 'none.shard', '--keep'],
              ['compile', 'none.shard', '--dump-ir'], ['data', 'convert', 'none.txt', '-o']):
    for bad in 'absent/x', *(['text.txt'] if words[-1] in ('--keep', '--dump-ir') else ['plain']):
        err = run(SHARDC, *words, bad, cwd=WORK, expect=4)[1]
        check('E0002' in err and 'E0001' not in err, f'{words} {bad}: {err}')
for words in ('--trace', 'absent/x'), ('--trace', 'plain:1..2'), ('--dump', 'absent/x'), ('--dump', 'plain'):
    err = run(*TRAIN, '--out', 'early', *words, cwd=WORK, expect=1)[1]
    check('R0401' in err and not os.path.exists(path('early')), f'{words}: {err}')

# A device like /dev/null: never with the real one.
try: os.mknod(path('null'), 0o666 | stat.S_IFCHR, os.makedev(1, 3))
except OSError: print('not permitted to make device nodes: not tested')
else:
    for command in [*WRITERS.values(), [*TRAIN, '--out', 'nulled', '--trace', 'null', '--dump']]:
        p = subprocess.run([*command, 'null'], cwd=WORK, capture_output=True, text=True)
        if 'ermission denied' in p.stderr:
            print('devices cannot be opened here: not tested')
            break
        check(p.returncode == 0 and kind('null') == stat.S_IFCHR, f'{command}: a device stays: {p.stderr}')

# Links at the names of former temporary files cannot redirect a write.
open(path('victim'), 'w').write('untouched')
for name in 'a.st.tmp', 'b.ir.part': os.symlink('victim', path(name))
os.mkdir(path('run'))
for name in 'metrics.jsonl.tmp', 'loss.svg.tmp': os.symlink('../victim', path('run', name))
run(*TRAIN, '--out', 'run', '--dump', 'a.st', cwd=WORK)
check(read(path('victim')) == b'untouched', 'a link under a temporary name is not followed')
os.makedirs(path('keep')), open(path('keep', 'it'), 'w').close()
os.symlink('../keep', path('run', '.new-step-000004'))
run(*TRAIN[:5], '4', '--out', 'run', '--resume', '--quiet', cwd=WORK)
check(os.path.exists(path('keep', 'it')), 'a link under the name of a half-written checkpoint is not emptied')
left = [f for f in os.listdir(WORK) + os.listdir(path('run')) if f.startswith('shardc-')]
check(not left, f'nothing is left behind: {left}')

# A compiler that is killed leaves no work folder.
os.mkdir(path('tmp'))
def at_work(p):
    """Waits until the compiler has files in its folder, or is through with all."""
    while p.poll() is None:
        try:
            if any(os.listdir(path('tmp', d)) for d in os.listdir(path('tmp'))): return
        except (FileNotFoundError, NotADirectoryError): pass  # it went between the two looks, or is a file of its own
        time.sleep(0.002)


for number in signal.SIGTERM, signal.SIGKILL:
    for _ in range(20):  # it may be through before the signal comes
        p = subprocess.Popen([SHARDC, 'compile', MODEL, '-o', 'never', '-q'], cwd=WORK,
                             env=dict(os.environ, TMPDIR=path('tmp'), SHARDC_CACHE_DIR=''))
        at_work(p)
        p.send_signal(number)
        if p.wait(): break
    check(p.returncode == -number, 'it is ended')
    while os.listdir(path('tmp')): time.sleep(0.01)

for mask, mode in (0o077, 0o700), (0o022, 0o755), (0o002, 0o775):
    old = os.umask(mask)
    run(SHARDC, 'compile', MODEL, '-o', path('exe'), '-q', '--quick')
    os.umask(old)
    check(stat.S_IMODE(os.stat(path('exe')).st_mode) == mode, f'umask {mask:o}')
shutil.rmtree(WORK)
