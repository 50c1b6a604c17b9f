"""Small models under plans of every kind, as processes: python3 cover.py SHARDC [ROWS] [STEPS] [mpi] | all [BEGIN END]
| nccl [ROWS] | signs [ROWS] | int8 | fp8 | late | budgets

28 rows in which every two choices of many.CHOICES meet (a Sparse Transformer, Llama, BERT, a Mixer; zero, data,
tensor, `else Seq`, accumulation, recomputation, precision, clipping, buckets, messages in flight), 20 steps each, and
rows of pipelines and of budgets: losses, norms, parameters and states equal those of one rank; every rank touches
exactly the predicted bytes, which are those of `shardc plan`; the bytes sent equal the plan. Then four rows over MPI.
`all`: the matrix of tests/soak, every model under zero x data x tensor x `else Seq` x accumulation. `nccl`: six rows
of 3 steps (or more rows), compiled for a GPU and run by the stand-in, four ranks at most, and the pipeline rows,
against one rank on a processor; then three of them with messages that pass through the host. `signs`: six rows of 8
steps (or more rows) of 1-bit Adam, frozen after 3, over ranks that cut Batch, other axes, and pipeline stages.
`int8`: rows of messages in 8 bits, on processors, over MPI, and by the stand-in. `fp8`: rows of products in 8 bits, on
processors, and two by the stand-in. `late`: rows whose updates come one
step late, with states on the host; the stand-in runs two of them as well. The stand-in's driver provides exactly the
bytes of the GPU and of pinned host memory that `plan` counts, also with optimizer, gradients or parameters on the
host.
"""
import itertools, os, random, shutil, sys, time
from common import has_mpi, workdir
from many import CHOICES, Bench, name_of, ranks_of
from pairs import drawn, greedy


def pairwise(most):
    """Rows that cover all pairs, from one seed."""
    r = random.Random(5)
    rows, _ = greedy(CHOICES, r)
    if len(rows) > most: sys.exit(f'{len(rows)} rows for all pairs')
    while len(rows) < most: rows.append(drawn(CHOICES, r))
    return rows


def matrix():
    for m, z, d, t, s, p in itertools.product(*(CHOICES[k]
                                                for k in ('model', 'zero', 'data', 'tensor', 'seq', 'parts'))):
        yield {'model': m, 'zero': z, 'data': d, 'tensor': t, 'seq': s, 'parts': p, 'recompute': 0, 'precision': 'f32',
               'clip': 1, 'bucket': '8KiB'}


def turns():
    """1F1B with every stage of ZeRO, with tensor parallelism, with messages in flight; three of them as zero_bubble, one
    with twice its memory, and of a deeper model all but one with two chunks of layers on each stage."""
    base = dict(seq=0, parts=4, recompute=0, precision='f32', clip=1, bucket='1KiB', hybrid=0, reduce=0, flight=0,
                split=0, pipe=2, offload=0, schedule='one_f_one_b')
    rows = (('llama', 3, 2, 1, {'flight': 1}), ('bert', 2, 2, 1, {'recompute': 1}), ('sparse', 1, 2, 1, {'parts': 2}),
            ('llama', 0, 1, 2, {'seq': 1, 'precision': 'bf16'}), ('mixer', 0, 1, 1, {'parts': 8}),
            ('llama', 1, 2, 2, {'flight': 1}))
    made = [dict(base, model=m, zero=z, data=d, tensor=t, **more) for m, z, d, t, more in rows]
    chunks = [dict(r, model='deep', schedule='interleaved chunks = 2') for r in made if r['model'] != 'sparse']
    steep = [dict(made[1], parts=8, schedule='zero_bubble memory = 2')]
    return made + [dict(r, schedule='zero_bubble') for r in made[::2]] + steep + chunks + uneven(made[0])


def uneven(like):
    """Four layers over three stages: two, two, none, or two, one, one where stages wait for each other."""
    rows = (('one_f_one_b', 3, {'flight': 1}), ('gpipe', 2, {'precision': 'bf16'}), ('zero_bubble', 1, {'flight': 0}),
            ('sequential', 0, {'recompute': 1}))
    like = dict(like, model='deep', pipe=3, data=1, tensor=1)
    memory = dict(like, zero=1, schedule='one_f_one_b uneven = memory')
    return [memory] + [dict(like, zero=z, schedule=f'{s} uneven = on', **more) for s, z, more in rows]


def int8():
    """Messages in 8 bits with every stage of ZeRO, tensor parallelism, nodes, parts, flights, stages, 16 bits."""
    base = dict(turns()[0], int8=1, flight=0, parts=1, pipe=1, schedule=None)
    rows = (('llama', 0, 4, 1, {'parts': 4}), ('bert', 1, 2, 2, {'precision': 'bf16', 'parts': 4}),
            ('mixer', 2, 2, 1, {'recompute': 1, 'parts': 4}), ('sparse', 3, 4, 1, {'hybrid': 1}),
            ('llama', 3, 2, 2, {'flight': 1, 'parts': 4, 'seq': 1}),
            ('bert', 3, 2, 1, {'flight': '1MiB', 'bucket': '8KiB'}),
            ('llama', 2, 2, 1, {'pipe': 2, 'parts': 4, 'schedule': 'one_f_one_b'}),
            ('bert', 3, 2, 1, {'pipe': 2, 'parts': 4, 'schedule': 'gpipe', 'precision': 'bf16'}),
            ('mixer', 0, 2, 2, {'offload': 1}), ('llama', 2, 4, 1, {'offload': 2, 'parts': 4}))
    return [dict(base, model=m, zero=z, data=d, tensor=t, **more) for m, z, d, t, more in rows]


def fp8():
    """Products in 8 bits with every stage of ZeRO, tensor parallelism, nodes, parts, flights, stages, the host."""
    base = dict(turns()[0], precision='fp8', flight=0, parts=1, pipe=1, schedule=None)
    rows = (('llama', 0, 2, 2, {'seq': 1}), ('bert', 1, 2, 1, {'parts': 4, 'recompute': 1}),
            ('mixer', 2, 1, 2, {'recompute': 'part', 'parts': 4}), ('sparse', 3, 4, 1, {'hybrid': 1, 'flight': 1}),
            ('llama', 3, 2, 1, {'parts': 4, 'int8': 1}), ('bert', 2, 2, 1, {'offload': 2, 'parts': 4}),
            ('deep', 2, 1, 1, {'pipe': 2, 'parts': 4, 'schedule': 'zero_bubble', 'states': 1}),
            ('llama', 1, 2, 1, {'pipe': 2, 'parts': 4, 'schedule': 'one_f_one_b', 'late': 3, 'offload': 1}))
    return [dict(base, model=m, zero=z, data=d, tensor=t, **more) for m, z, d, t, more in rows]


def late():
    """Late updates with every stage of ZeRO, states, gradients and parameters on the host, tensor parallelism, parts,
    stages, flights, 16 bits."""
    base = dict(turns()[0], late=3, flight=0, parts=1, pipe=1, schedule=None)
    rows = (('llama', 0, 2, 1, {'offload': 1}), ('bert', 1, 2, 2, {'offload': 2, 'parts': 4}),
            ('mixer', 2, 2, 1, {'offload': 2, 'precision': 'bf16'}), ('llama', 3, 2, 1, {'offload': 2, 'parts': 4}),
            ('bert', 3, 2, 1, {'offload': 1, 'flight': 1, 'clip': 0, 'states': 1}),
            ('llama', 1, 2, 1, {'offload': 1, 'pipe': 2, 'parts': 4, 'schedule': 'one_f_one_b'}),
            ('deep', 2, 1, 1, {'offload': 2, 'pipe': 2, 'parts': 4, 'schedule': 'zero_bubble', 'states': 1}))
    return [dict(base, model=m, zero=z, data=d, tensor=t, **more) for m, z, d, t, more in rows]


def budgets():
    """Saved values within a budget, in bytes of one rank: with parts in flight, every kind of mesh, on the host."""
    base = dict(turns()[0], flight=0, recompute='auto')
    rows = (('llama', 1, 2, 1, 30000, {}), ('bert', 0, 1, 2, 12000, {'schedule': 'gpipe'}),
            ('deep', 2, 2, 1, 20000, {'schedule': 'interleaved chunks = 2'}), ('llama', 2, 2, 1, 9000, {'offload': 2}),
            ('mixer', 0, 1, 2, 2000, {'parts': 8, 'schedule': 'sequential', 'precision': 'bf16'}))
    return [dict(base, model=m, zero=z, data=d, tensor=t, budget=b, **more) for m, z, d, t, b, more in rows]


def some_there():
    """Only the layers' optimizer and gradients on the host; moments in bf16, with and without the host."""
    base = dict(turns()[0], flight=0, pipe=1, schedule=None, offload='stack')
    rows = (('llama', 2, 2, 2, {'precision': 'bf16'}), ('bert', 3, 2, 1, {'recompute': 1, 'states': 1}),
            ('mixer', 1, 2, 2, {'offload': 0, 'states': 1, 'precision': 'bf16'}))
    return [dict(base, model=m, zero=z, data=d, tensor=t, **more) for m, z, d, t, more in rows]


def few(row): return 1 < ranks_of(row) <= 4


def takes_signs(row):
    return row['zero'] <= 1 and row['precision'] == 'f32' and not row['offload'] and few(row)


def signs():
    """Stages that take turns, with the workers of ranks that cut Batch, and of one rank."""
    base = dict(turns()[0], flight=0)
    rows = (('llama', 2, 1, 'one_f_one_b', 1), ('bert', 2, 1, 'zero_bubble', 0),
            ('deep', 1, 2, 'interleaved chunks = 2', 0))
    return [dict(base, model=m, data=d, tensor=t, schedule=s, zero=z) for m, d, t, s, z in rows]


def main():
    words, numbers = [a for a in sys.argv[2:] if not a.isdigit()], [int(a) for a in sys.argv[2:] if a.isdigit()]
    folder, wrong, began = workdir(), 0, time.time()
    try:
        rows, steps, mpi, host, nccl, over = [], 3, [], [], [], 'local'
        if 'all' in words: rows = list(matrix())[slice(*(numbers or [0, None]))]
        elif 'nccl' in words:
            (rows, _), over = greedy(CHOICES, random.Random(6), *(numbers or [6]), few), 'nccl'
            rows = rows + turns() + some_there()
            host = rows[:2] + turns()[:1] + [r for r in turns() if 'chunks' in r['schedule']][:1]
        elif 'signs' in words:
            rows, _ = greedy(CHOICES, random.Random(7), *(numbers or [6]), takes_signs)
            rows, steps = [dict(r, signs=3) for r in rows + signs()], 8
        elif 'int8' in words:
            rows = int8()
            mpi, host = rows[3:5], rows[:1]
            nccl = rows[2:7] + rows[9:]
        elif 'fp8' in words: rows, steps, nccl = fp8(), 6, fp8()[:2]
        elif 'budgets' in words: rows = budgets()
        elif 'late' in words:
            rows, steps = late(), 6
            nccl = rows[3:5]
        else:
            count, steps = (numbers + [28, 20][len(numbers):])
            rows = pairwise(28)[:count] + turns() + some_there() + budgets()
            mpi = [r for r in rows if few(r)][:4] if 'mpi' in words else []
        bench = Bench(sys.argv[1], folder, steps)
        if mpi and not has_mpi():
            print('no MPI: rows over MPI are passed over'); mpi = []
        for row, over in ([(r, over) for r in rows] + [(r, 'mpi') for r in mpi] + [(r, 'host') for r in host]
                          + [(r, 'nccl') for r in nccl]):
            try: why = bench.differs(row, over)
            except RuntimeError as e: why = str(e)
            if why: wrong += 1; print(f'{over} {name_of(row)}: {why}', flush=True)
        print(f'{len(rows)} rows, {len(mpi)} over MPI, {steps} steps: {wrong} wrong, {time.time() - began:.0f} s')
    finally:
        shutil.rmtree(folder)
    sys.exit(wrong > 0)


main()
