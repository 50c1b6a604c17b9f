"""Side by side: seconds per GPT-2 124M training step of a compiled executable and of PyTorch, alternating in one run.

    python3 cpu_step.py SHARDC [--batch 4] [--seq 64] [--rounds 5] [--steps 8] [--torch PYTHON] [--precision f32] [--json]

--torch names a Python that has PyTorch 2.x. Prints medians with spread and the ratio.
"""
import argparse, json, os, random, statistics, struct, subprocess, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
a = argparse.ArgumentParser()
a.add_argument('shardc'); a.add_argument('--batch', type=int, default=4); a.add_argument('--seq', type=int, default=64)
a.add_argument('--rounds', type=int, default=5); a.add_argument('--steps', type=int, default=8)
a.add_argument('--torch', default='python3'); a.add_argument('--precision', default='f32'); a.add_argument('--json', action='store_true')
o = a.parse_args()


def spread(x): return dict(median=statistics.median(x), low=min(x), high=max(x), n=len(x))


with tempfile.TemporaryDirectory() as work:
    exe = f'{work}/gpt2'
    rng = random.Random(0)
    with open(f'{work}/tokens.bin', 'wb') as f:
        f.write(b''.join(struct.pack('<H', rng.randrange(50257)) for _ in range(o.batch * o.seq * 64 + 1)))
    env = dict(os.environ, SHARDC_PATH=os.path.join(HERE, '..', 'examples'))
    subprocess.run([o.shardc, 'compile', f'{HERE}/gpt2_cpu.shard', '-o', exe, '-D', f'Seq={o.seq}', '--set', f'train.batch={o.batch}', '--set', f'plan.precision={o.precision}'],
                   check=True, env=env, stdout=subprocess.DEVNULL)
    ours, peer = [], []
    for r in range(o.rounds):
        out = f'{work}/run{r}'
        subprocess.run([exe, 'train', '--data', f'{work}/tokens.bin', '--out', out, '--steps', str(o.steps + 2), '--save-every', '0'],
                       check=True, cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        rows = [json.loads(line) for line in open(f'{out}/metrics.jsonl')]
        ours += [x['ms'] / 1000 for x in rows if 'ms' in x][2:]
        p = subprocess.run([o.torch, f'{HERE}/torch_gpt2.py', str(o.batch), str(o.seq), str(o.steps), o.precision], check=True, capture_output=True, text=True)
        peer += json.loads(p.stdout)['seconds']
    result = dict(batch=o.batch, seq=o.seq, precision=o.precision, shardc=spread(ours), torch=spread(peer),
                  ratio=statistics.median(peer) / statistics.median(ours))
    if o.json: print(json.dumps(result))
    else:
        for k in ('shardc', 'torch'): print(f"{k:7} {result[k]['median'] * 1000:8.1f} ms/step   ({result[k]['low'] * 1000:.1f} .. {result[k]['high'] * 1000:.1f}, {result[k]['n']} steps)")
        print(f"shardc is {result['ratio']:.2f} times as fast")
