"""The guarantees of the executable: only libc and libm, predicted bytes = touched bytes, packing within 3 % of the live
sum, no allocation inside a step, bitwise resume after kill -9 at random instants, exit codes.

    python3 executable.py SHARDC EXAMPLE.shard KILLS
"""
import json, os, random, re, shutil, signal, subprocess, sys, time
from common import check, read, run, text_file, workdir

shardc, example, kills = sys.argv[1], sys.argv[2], int(sys.argv[3])
d = workdir()
exe, data = f'{d}/model', text_file(f'{d}/text.txt')
run(shardc, 'compile', example, '-o', exe, '--set', 'train.batch=4', '--set', 'train.steps=24')

libs = [line.split()[0] for line in run('ldd', exe)[0].splitlines()]
sanitized = any(x.startswith('libasan') for x in libs)      # tools/test --sanitize
check(sanitized or all(re.match(r'(linux-vdso|libc\.|libm\.|/lib64/ld-)', x) for x in libs),
      f'links more than libc and libm: {libs}')

info = json.loads(run(exe, 'info', '--json')[0])
for e in info['entries']:
    check(e['work_bytes'] <= 1.03 * e['live_bytes'] + 4096,
          f"{e['name']}: {e['work_bytes']} bytes for {e['live_bytes']} live ones")
out, err = run(exe, 'train', '--data', data, '--steps', '3', '--out', f'{d}/memory', '--check-memory')
check('step' in out + err, 'no progress line')


def weights(folder):
    steps = sorted(x for x in os.listdir(folder) if x.startswith('step-'))
    return {f: read(f'{folder}/{steps[-1]}/{f}') for f in sorted(os.listdir(f'{folder}/{steps[-1]}'))
            if f.endswith('.safetensors')}


common = ['--data', data, '--save-every', '3', '--eval-every', '6']
run(exe, 'train', *common, '--out', f'{d}/whole')
want = weights(f'{d}/whole')
rng = random.Random(1)
start = time.time(); run(exe, 'train', *common, '--out', f'{d}/timed'); span = time.time() - start
for k in range(kills):
    shutil.rmtree(f'{d}/killed', ignore_errors=True)
    p = subprocess.Popen([exe, 'train', *common, '--out', f'{d}/killed'], stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
    time.sleep(rng.random() * span)
    p.send_signal(signal.SIGKILL); p.wait()
    run(exe, 'train', *common, '--out', f'{d}/killed', '--resume=auto')
    check(weights(f'{d}/killed') == want, f'kill {k}: resumed weights differ from those of the unbroken run')
print(f'{kills} kills: bitwise continuation')
p = subprocess.Popen([exe, 'train', '--data', data, '--steps', '100000', '--out', f'{d}/term'],
                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
while p.poll() is None and not (os.path.exists(f'{d}/term/metrics.jsonl')
                                and os.path.getsize(f'{d}/term/metrics.jsonl')):
    time.sleep(0.01)
p.send_signal(signal.SIGTERM)
check(p.wait(timeout=1200) == 75, f'exit code {p.returncode} after SIGTERM, expected 75')
check(any(x.startswith('step-') for x in os.listdir(f'{d}/term')), 'no checkpoint after SIGTERM')
shutil.rmtree(d)
