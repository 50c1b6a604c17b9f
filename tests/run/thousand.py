"""A thousand ranks cost what eight cost: python3 thousand.py SHARDC [1 10]

A GPT of 96 layers and 175 billion parameters under stage 3 over 1024 ranks: `plan` takes no more than a second of a
processor, and compiling it no more than ten (the two numbers) with all kernels (two processors: five seconds), as over
eight ranks. One program serves all ranks.
"""
import json, os, resource, shutil, sys
from common import check, run, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
MOST = [float(x) for x in sys.argv[2:]] or [1, 10]
MODEL = '''use "gpt2"
variant Deep of GPT2 { Pos = 2048; Vocab = 51200; Embed = 12288; Heads = 96; Layers = 96 }
train t for Deep { size Seq = 2048; batch 1024; steps 1; data "text.bin" format = u16; optim adamw lr = 1e-4; clip 1.0 }
machine big { node memory = 16TiB }
''' + ''.join(f'''plan p{n} for Deep {{ on big nodes = {max(1, n // 8)}
  mesh data = {n}
  micro 1
  place Batch -> data
  precision bf16
  zero 3 over data }}
''' for n in (8, 1024))


def seconds(*command):
    """Of all processors together."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = run(*command, cwd=folder, env={'SHARDC_CACHE_DIR': f'{folder}/cache'})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, said[0]


try:
    open(f'{folder}/m.shard', 'w').write(MODEL)
    took, size = {}, {}
    for n in (1024, 8):
        plan, said = seconds(SHARDC, 'plan', 'm.shard', '--plan', f'p{n}', '--json')
        size[n] = json.loads(said)['classes'][0]['bytes']
        shutil.rmtree(f'{folder}/cache', ignore_errors=True)
        compile, _ = seconds(SHARDC, 'compile', 'm.shard', '--plan', f'p{n}', '-o', 'x', '-q', '--no-verify')
        took[n] = plan, compile
    print({n: [round(t, 2) for t in v] for n, v in took.items()})
    check(took[1024][0] <= MOST[0], f'plan took {took[1024][0]} s')
    check(took[1024][1] <= MOST[1], f'compile took {took[1024][1]} s')
    check(took[1024][1] <= 1.5 * took[8][1] + 0.5, f'compile for 1024 ranks {took[1024][1]} s, for 8 {took[8][1]} s')
    for part in ('weights', 'optimizer'): check(abs(size[8][part] / size[1024][part] - 128) < 1, f'{part}: {size}')
finally:
    shutil.rmtree(folder)
