"""Kernel counts and memory of whole models: python3 kernels.py SHARDC

A GPT-2 block is at most 10 kernels forward and 20 backward; steps of GPT-2, Llama and BERT move at most 1.4 times the
bytes that they must; no body copies; the frame of every function of every example is within 3 % of the largest sum of
live bytes; the gradient of the logits takes over their buffer.
"""
import os, re, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(HERE, '..', '..', 'examples')
REFERENCE = os.path.join(HERE, '..', 'reference')
bad = 0


def check(ok, what):
    global bad
    if not ok: print('FAILED:', what); bad += 1


def dump(path, *options):
    env = dict(os.environ, SHARDC_PATH=EXAMPLES)
    r = subprocess.run([sys.argv[1], 'dump', path, '--after', 'memory', '-o', '-', *options], capture_output=True,
                       text=True, env=env)
    check(r.returncode == 0, f'{path}: {r.stderr[:300]}')
    functions = {}
    for m in re.finditer(r'^(body|entry) @(\S+?)[ (](.*?)^}', r.stdout, re.M | re.S): functions[m[2]] = m[3]
    return functions


def check_bytes(path, *options):
    """Head of the dump against the unavoidable bytes (docs/ir.md)."""
    env = dict(os.environ, SHARDC_PATH=EXAMPLES)
    command = [sys.argv[1], 'dump', path, '--target', 'x86_64_v3', '--after', 'memory', '-o', '-', *options]
    text = subprocess.run(command, capture_output=True, text=True, env=env).stdout
    moved = re.search(r'^# step: .* ([\d.e+]+) bytes moved', text, re.M)
    least = re.search(r'^entry @step .*compulsory_bytes = ([\d.e+]+)', text, re.M)
    check(moved and least, f'{path}: no counts')
    ratio = float(moved[1]) / float(least[1])
    print(os.path.basename(path), *options, f'moves {ratio:.2f} times the unavoidable bytes')
    check(ratio <= 1.4, f'{path} {options}: {ratio:.3f} times the unavoidable bytes')


def check_memory(name, functions):
    for f, text in functions.items():
        frame, live = (int(re.search(rf'{k} = (\d+)', text)[1]) for k in ('frame', 'live'))
        check(live <= frame <= 1.03 * live, f'{name} {f}: frame of {frame} bytes, {live} needed at once')


def main():
    gpt2 = dump(f'{REFERENCE}/gpt2_small.shard')
    count = {f: len(re.findall(r' = kernel ', t)) for f, t in gpt2.items()}
    print('kernels:', count)
    forward = [n for f, n in count.items() if f.endswith('.fwd')]
    backward = [n for f, n in count.items() if f.endswith('.bwd')]
    check(forward and max(forward) <= 10, f'forward block: {forward}')
    check(backward and max(backward) <= 20, f'backward block: {backward}')
    check(not any(re.search(r'kernel @\S+\.copy\d', t) for f, t in gpt2.items() if f.endswith(('.fwd', '.bwd'))),
          'a body copies')
    logits = re.search(r'kernel @step\.rmax\d+, .*', gpt2['step'])
    check(logits and 'inplace' in logits[0], 'the gradient of the logits does not take over their buffer')
    for name in ('gpt2_small', 'llama_small', 'mlp'): check_memory(name, dump(f'{REFERENCE}/{name}.shard'))
    bench = f'{HERE}/../../bench/gpt2_cpu.shard'
    check_bytes(f'{EXAMPLES}/gpt2.shard', '--set', 'plan.micro=16')
    for seq in (64, 512, 1024): check_bytes(bench, '-D', f'Seq={seq}')
    check_bytes(bench, '-D', 'Seq=512', '--set', 'plan.precision=bf16')
    for precision in ('f32', 'bf16'):
        narrow = ['--set', f'plan.precision={precision}']
        for size in ([], ['-D', 'Seq=512', '-D', 'Kv=4', '-D', 'Group=1', '--set', 'train.batch=2']):
            check_bytes(f'{EXAMPLES}/tiny_llama.shard', *size, *narrow)
        for size in ([], ['-D', 'Seq=256', '-D', 'Layers=2']):
            check_bytes(f'{EXAMPLES}/tiny_bert.shard', *size, *narrow)
        check_bytes(f'{EXAMPLES}/llama.shard', '--model', 'Llama3', *narrow)
    return bad > 0


sys.exit(main())
