"""Options of the executable as a whole (what they mean, which numbers they take), where a sample stops, a record of
steps that is damaged, what an export replaces: on a program written by hand.

    python3 options.py TOY
"""
import os, random, resource, shutil, socket, subprocess
from toys import D, TOY, check, path, toy, train

rng = random.Random(7)


def case_meanings():
    """A word that is no option gets a suggestion by meaning, not by similar letters."""
    for word, means in ('temp', 'temperature'), ('max_tokens', 'tokens'), ('n-predict', 'tokens'), \
            ('tok', 'tokenizer'), ('reverse-prompt', 'stop'), ('top_kk', 'top-k'), ('prom', 'prompt'):
        toy('sample', f'--{word}', '1', expect=2, says=f'did you mean --{means}?')
    check('did you mean' not in toy('sample', '--kold', '1', expect=2, says='R0102'), 'too far from --keep')


def case_stack():
    """A stack that is too small is raised, or refused."""
    def least(soft, hard):
        return lambda: resource.setrlimit(resource.RLIMIT_STACK, (soft << 10, hard << 10))
    train('--out', 'stack', '--steps', '2', preexec_fn=least(64, 8192))
    toy('info', preexec_fn=least(128, 128), expect=1, says='the stack is limited to 128 KiB, and 1024 are needed')


def case_refused():
    """A run that is refused leaves no directory, and one without a step is in nobody's way."""
    os.mkdir(path('taken'))
    for out in 'none', 'none/deeper/', 'none//again':
        train('--out', out, '--trace', 'taken', expect=1, says='R0401')
        check(not os.path.exists(path('none')), f'{out} is gone')
    train('--out', 'taken', '--trace', 'taken', expect=1, says='R0401')
    check(os.path.exists(path('taken')), 'a directory of before stays')
    with socket.create_server(('127.0.0.1', 0)) as port:
        train('--out', 'none', '--metrics', '127.0.0.1:%d' % port.getsockname()[1], expect=4, says='R0110')
    check(not os.path.exists(path('none')), 'no port, no directory')
    open(path('taken', 'metrics.jsonl'), 'w').close()
    train('--out', 'taken', '--steps', '2')
    train('--out', 'taken', '--steps', '2', expect=2, says='R0402')


def case_replaced():
    """No file that a run needs is replaced by what it writes at the end, by any name of it."""
    train('--out', 'whole', '--steps', '2', '--save-every', '2', '--dump', 'w.safetensors')
    os.symlink('text.txt', path('link')), os.link(path('text.txt'), path('again'))
    shutil.copy(TOY, path('own'))
    kept = 'text.txt', 'w.safetensors', 'own', 'whole/step-000002/rank-00000.safetensors', 'whole/metrics.jsonl'
    before = [open(path(x), 'rb').read() for x in kept]
    for option in '--dump', '--trace':
        for name in 'text.txt', 'again', './text.txt', 'w.safetensors', 'whole/step-000002/rank-00000.safetensors':
            train('--out', 'over', '--steps', '2', '--init', 'w.safetensors', option, name, expect=2,
                  says=f'R0104]: {option} would replace a file that the run needs')
    train('--out', 'whole', '--resume', '--steps', '3', '--trace', 'whole/metrics.jsonl', expect=2, says='R0104')
    subprocess.run([path('own'), 'train', '--data', 'text.txt', '--out', 'over', '--dump', 'own'], cwd=D,
                   capture_output=True)
    check(before == [open(path(x), 'rb').read() for x in kept], 'they are as before')
    train('--out', 'over', '--steps', '2', '--dump', 'w.safetensors')              # not read: may be replaced


def case_nothing_to_do():
    """A run without a step leaves a checkpoint as well: of `--steps 0`, and of another run that is complete."""
    train('--out', 'zero', '--steps', '0')
    toy('sample', '--out', 'zero', '--tokens', '2')
    train('--out', 'full', '--steps', '3'), train('--out', 'copy', '--resume=full', '--steps', '3')
    check([x for x in os.listdir(path('copy')) if x.startswith('step-')] == ['step-000003'], 'of the other run')


def case_recalled():
    """A run that goes on or is read takes the data that it was told, unless it is told other data."""
    shutil.copy(path('text.txt'), path('other.txt'))
    toy('train', '--data', 'other.txt', '--valid', '20%', '--shuffle', 'off', '--out', 'told', '--steps', '2')
    noted = ['note: --data other.txt, as the run was told', 'note: --valid 20%, as', 'note: --shuffle off, as']
    out = toy('train', '--resume', '--out', 'told', '--steps', '3', says=noted[0])
    check(all(x in out for x in noted) and 'read other data' not in out, 'the same data: ' + out)
    out = toy('eval', '--out', 'told', says=noted[1])
    check(out.count('note: --') == 3, 'also by a run that recalled it')
    out = toy('eval', '--resume=told/step-000003', '--set', 'data.valid=text.txt', says=noted[0])
    check('--valid 20%' not in out, 'other validation data')
    check('as the run was told' not in toy('eval', '--out', 'told', '--data', 'text.txt', '--valid', '10%'), 'all told')
    toy('eval', '--init', 'told', expect=4, says='R0205')              # the parameters alone
    toy('train', '--data', 'text.txt', '--out', 'told', '--resume', '--steps', '4', says='read other data')
    out = toy('eval', '--out', 'told', '--valid', '10%', says='note: --data text.txt, as the run was told')
    check(out.count('note: --') == 1, 'what it was told last')


def case_numbers():
    """Every option that takes a number, with numbers that it cannot take."""
    bad = {'count': ['-1', 'inf', 'nan', '1e3', '', '99999999999999999999', '1000000000000001', '1.5', '0x10'],
           'real': ['-1', 'inf', '-inf', 'nan', '', '1e999', '1,5'], 'time': ['-1', 'inf', 'nan', '', '1d', 'h']}
    options = {'count': {'train': 'steps eval-every eval-batches save-every keep log-every threads',
                         'sample': 'tokens top-k'}, 'real': {'sample': 'temperature top-p'},
               'time': {'train': 'max-time'}}
    for kind, commands in options.items():
        for command, names in commands.items():
            for name in names.split():
                for text in bad[kind]: toy(command, f'--{name}={text}', expect=2, says=f'error[R0103]: --{name} takes')
    for text in '-1', 'inf', '9223372036854775808': train('--seed', text, expect=2, says='--seed takes')
    toy('sample', '--top-p', '1.01', expect=2, says='--top-p takes a number from 0 to 1')
    for text in 'gpu:-1', 'gpu:99999999999', 'gpuxy', 'gpu:', 'gpu:1x', 'GPU', '':
        train('--out', 'dev', f'--device={text}', expect=2, says='--device takes cpu, gpu or gpu:N')
    for text in 'x:0..3', 'x:3..2', 'x:-1..2', ':1..2':
        train('--out', 'tra', f'--trace={text}', expect=2, says='--trace takes FILE or FILE:A..B')
    for text in '-1%', 'inf%', 'nan%', '100%', '1e9%':
        train('--out', 'val', f'--valid={text}', expect=2, says='0% to 99%')
    for key in 'train.steps', 'train.seed', 'train.eval.every', 'train.save.keep', 'machine.node.f32':
        for text in '-1', 'inf', 'nan', '', '99999999999999999999999' if key[0] == 't' else '0':
            train('--set', f'{key}={text}', expect=2, says=f'error[R0103]: {key} takes')
    for text in '1e-320', '1e25':
        train('--set', f'machine.node.f32={text}', expect=2, says='takes a number from 1 to 10^24')
    train('--out', 'num', '--steps', '5', '--save-every', '1', '--keep', '4294967296', '--seed', '9223372036854775807')
    check(len([x for x in os.listdir(path('num')) if x.startswith('step-')]) == 5, 'a large number keeps all')
    for a in ('--temperature', '1e300'), ('--temperature', '1e-300'), ('--top-k', '1000000000000000'):
        toy('sample', '--out', 'num', '--tokens', '3', *a)
    toy('sample', '--out', 'num', '--tokens', '0')
    for a in ('--top-k', '3'), ('--top-p', '0.5'):
        toy('sample', '--out', 'num', '--temperature', '0', *a, expect=2, says='R0104]: --temperature 0 takes')


def case_twice():
    """A second value is refused, also of a setting that an option gives; flags, lists, the same value again are not."""
    for name, a, b in ('steps', '3', '4'), ('out', 'x', 'y'), ('max-time', '1h', '60m'), ('seed', '1', '01'), \
            ('shuffle', 'on', 'off'), ('save-time', '90', '90s'), ('trace', 'a', 'b'):
        train(f'--{name}', a, f'--{name}={b}', expect=2, says=f'R0104]: --{name} is given twice: `{a}` and `{b}`')
    train('--resume', '--resume=auto', expect=2, says='R0104]: --resume is given twice: `` and `auto`')
    for option, key in ('--steps=3', 'train.steps=3'), ('--keep=3', 'train.save.keep=4'), \
            ('--eval-every=9', 'train.eval.every=8'), ('--shuffle=on', 'data.shuffle=on'):
        train(option, '--set', key, expect=2, says=f'by {option[:option.find("=")]} and by --set')
    train('--out', 'two', '--quiet', '--seed=5', '--quiet', '--seed', '5', '--set=train.steps=4', '--set',
          'train.steps=3', '--set', 'train.save.keep=1')
    check(len(open(path('two', 'metrics.jsonl')).read().splitlines()) == 3, 'steps of --set')


def case_stop():
    """A sample ends after the first stop text, wherever tokens begin; stop text in the prompt does not count."""
    train('--out', 'stp', '--steps', '60')
    ask = lambda *a: toy('sample', '--out', 'stp', '--prompt', 'the ', '--tokens', '80', '--seed', '3', *a)
    whole = ask()[4:-1]
    for stop in whole[10], whole[10:13], whole[0], whole[30:50]:
        want = whole[:whole.index(stop) + len(stop)]
        check(ask('--stop', stop.encode('latin1')) == f'the {want}\n', f'{stop!r} {whole!r}')
    check(ask('--stop', 'the \n') == f'the {whole}\n', 'none')
    check(ask('--stop', 'QQ\nQ', '--stop', whole[5:8].encode('latin1'), '--stop', whole[3:5].encode('latin1'))
          == f'the {whole[:min(whole.index(whole[5:8]) + 3, whole.index(whole[3:5]) + 2)]}\n', 'the first of several')
    toy('sample', '--out', 'stp', '--stop', '', expect=2, says='--stop needs a text')


def case_damaged_metrics():
    """An unreadable line affects no other line; missing lines are reported."""
    train('--out', 'dam', '--steps', '30')
    want, file = open(path('dam', 'metrics.jsonl')).read().splitlines(True), path('dam', 'metrics.jsonl')
    def resumed(text):
        open(file, 'w').write(text)
        out = train('--out', 'dam', '--resume', '--steps', '30')
        return out, open(file).read().splitlines(True)
    for k in 0, 11, 29:
        out, left = resumed(''.join(want[:k] + ['{"schema":1,"st\0\n'] + want[k + 1:]))
        check(left == want[:k] + want[k + 1:] and '1 line cannot be read and is left out' in out, f'{k}: {out}')
        check(f'step {k + 1} has no line' in out, f'{k}: {out}')
    for text in '', '\1\n\n', '{"sch':
        out, left = resumed(text)
        check(not left and 'steps 1 to 30 have no line' in out, f'{text!r}: {out}')
    out, left = resumed(''.join(want[:20]) + want[20][:30])
    check(left == want[:20] and 'steps 21 to 30 have no line' in out, f'torn: {out}')
    out, left = resumed(''.join(want))
    check(left == want and 'have no line' not in out and 'cannot be read' not in out, f'whole: {out}')
    out, left = resumed(''.join(want) + '{"schema":1,"step":31,"loss":1}\n' + '{"sch')
    check(left == want and 'have no line' not in out, f'later: {out}')


def case_controls():
    """Control characters are never printed, whatever names files, options and values have."""
    name = 'e\x1b[31m\x7f\xc2\x9b'.encode('latin1')
    open(os.path.join(D.encode(), name), 'w').write(open(path('text.txt')).read())
    said = [toy(b'--' + name, expect=2), toy(name, expect=2), toy(b'--steps=' + name, expect=2),
            toy('--data', b'no' + name, expect=4), toy('--init', name, '--data', 'text.txt', '--out', 'ini', expect=4),
            toy('--data', name, '--out', b'r' + name, '--steps', '20'),
            toy('--data', name, '--out', b'r' + name, '--steps', '21', '--resume', '--profile'),
            toy('export', '--resume=r'.encode() + name, '--out', b'x' + name), toy('info'), toy('--help')]
    for text in said: check(not set(text) & set('\x1b\x7f\x9b'), repr(text))
    check('e?[31m??' in said[0] and 're?[31m??' in said[5], said[0] + said[5])


def case_export_again():
    """An export replaces the files of an earlier one, and no others."""
    train('--out', 'once', '--steps', '3'), toy('export', '--out', 'o hf', '--resume=once')
    weights, words = path('o hf', 'model.safetensors'), path('o hf', 'vocab.txt')
    first = open(weights, 'rb').read()
    open(words, 'w').close()  # as if the earlier one had a tokenizer
    toy('export', '--out', 'o hf', '--resume=once')
    check(os.listdir(path('o hf')) == ['model.safetensors'] and open(weights, 'rb').read() == first, 'a second export')
    other = first.replace(b'shardc export', b'another tool.')
    for name, text, says in (('notes', b'', 'hf/notes'), ('vocab.txt', b'', 'hf/vocab.txt'),
                             ('model.safetensors', other, 'hf/model')):
        if name == 'vocab.txt': os.remove(weights)  # without weights no export
        with open(path('o hf', name), 'wb') as file: file.write(text)
        toy('export', '--out', 'o hf', '--resume=once', expect=2, says=says)
        check(open(path('o hf', name), 'rb').read() == text, f'{name} was replaced'), os.remove(path('o hf', name))
    toy('export', '--out', 'o hf', '--resume=once')
    for init in 'o hf', 'o hf/model.safetensors':
        toy('export', '--out', 'o hf', '--init', init, expect=2, says='--init reads from it')


words = [''.join(rng.choice('etaoinshrdlu') for _ in range(rng.randint(2, 7))) for _ in range(60)]
open(path('text.txt'), 'w').write(' '.join(rng.choice(words) for _ in range(8000))[:42000])
for name in [x for x in globals() if x.startswith('case_')]: globals()[name]()
shutil.rmtree(D)
