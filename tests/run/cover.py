"""Small models under plans of every kind, as processes: python3 cover.py SHARDC [ROWS] [STEPS] [mpi] [all [BEGIN END]]

24 rows in which every two choices of many.CHOICES meet (GPT-2, Llama, BERT, a Mixer; zero, data, tensor, `else Seq`, accumulation,
recomputation, precision, clipping), 20 steps each: losses, norms, parameters and states are those of one rank; every rank touches
just the bytes that were predicted, and these are `shardc plan`'s; what is sent is what was planned. Then four rows over MPI.
`all`: the matrix of tests/soak, every model under zero x data x tensor x `else Seq` x accumulation.
"""
import itertools, os, random, shutil, sys, time
from common import workdir
from many import CHOICES, Bench, name_of


def pairs_of(row): return {(a, row[a], b, row[b]) for a, b in itertools.combinations(row, 2)}


def pairwise(most):
    """Rows that cover all pairs: the best of random rows, again and again, from one seed."""
    r, rows = random.Random(4), []
    left = {(a, x, b, y) for a, b in itertools.combinations(CHOICES, 2) for x in CHOICES[a] for y in CHOICES[b]}
    while left:
        tries = [{k: r.choice(v) for k, v in CHOICES.items()} for _ in range(400)]
        best = max(tries, key=lambda t: len(pairs_of(t) & left))
        rows.append(best)
        left -= pairs_of(best)
    if len(rows) > most: sys.exit(f'{len(rows)} rows for all pairs')
    while len(rows) < most: rows.append({k: r.choice(v) for k, v in CHOICES.items()})
    return rows


def matrix():
    for m, z, d, t, s, p in itertools.product(*(CHOICES[k] for k in ('model', 'zero', 'data', 'tensor', 'seq', 'parts'))):
        yield {'model': m, 'zero': z, 'data': d, 'tensor': t, 'seq': s, 'parts': p, 'recompute': 0, 'precision': 'f32', 'clip': 1}


def main():
    words, numbers = [a for a in sys.argv[2:] if not a.isdigit()], [int(a) for a in sys.argv[2:] if a.isdigit()]
    folder, wrong, began = workdir(), 0, time.time()
    try:
        if 'all' in words:
            rows, steps, mpi = list(matrix())[slice(*(numbers or [0, None]))], 3, []
        else:
            count, steps = (numbers + [24, 20][len(numbers):])
            rows = pairwise(24)[:count]
            mpi = [r for r in rows if 1 < r['data'] * r['tensor'] <= 4][:4] if 'mpi' in words else []
        bench = Bench(sys.argv[1], folder, steps)
        if mpi and not (shutil.which('mpirun') and shutil.which('mpicc')): print('no mpirun or mpicc: rows over MPI are passed over'); mpi = []
        for row, over in [(r, False) for r in rows] + [(r, True) for r in mpi]:
            try: why = bench.differs(row, over)
            except RuntimeError as e: why = str(e)
            if why: wrong += 1; print(f'{"mpi " if over else ""}{name_of(row)}: {why}', flush=True)
        print(f'{len(rows)} rows, {len(mpi)} over MPI, {steps} steps: {wrong} wrong, {time.time() - began:.0f} s')
    finally:
        shutil.rmtree(folder)
    sys.exit(wrong > 0)


main()
