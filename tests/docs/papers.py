"""docs/papers.md: the files and tests that it names exist, its commands on examples run, and each prints the value that
the row gives after a word of the output (`buffers`: 128.00 KiB). The GB of ZeRO's stages are those of `plan`.

    python3 papers.py SHARDC ROOT CTEST_FOLDER
"""
import glob, json, os, re, subprocess, sys

SHARDC, ROOT, BUILD = map(os.path.abspath, sys.argv[1:4])
text, wrong = open(f'{ROOT}/docs/papers.md').read(), []
listed = subprocess.run(['ctest', '--test-dir', BUILD, '-N'], capture_output=True, text=True).stdout
tests = re.findall(r'Test +#\d+: (\S+)', listed)
for row in text.splitlines():
    room, said = None, ''
    for word in re.findall(r'`([^`]*)`', row):
        if word.startswith('ctest -R '):
            if not any(re.search(word[9:], t) for t in tests): wrong.append(f'no test {word[9:]}')
        elif word.startswith('shardc plan examples/'):
            p = subprocess.run([SHARDC, *word.split()[1:]], cwd=ROOT, capture_output=True, text=True,
                               env=dict(os.environ, SHARDC_PATH=f'{ROOT}/examples'))
            said += p.stdout
            if p.returncode: wrong.append(f'{word}: exit {p.returncode} {p.stderr}')
        elif re.fullmatch(r'[\w/*]+\.(c|h|def|shard)', word):
            room = os.path.dirname(word) or room         # further files of a row are in the same folder
            if not glob.glob(f'{ROOT}/{room}/{os.path.basename(word)}'): wrong.append(f'no file {room}/{word}')
    for word, value in re.findall(r'`(\w+)`: ([\d.]+ \w+)', row):
        if not re.search(rf'^ *{word} +{re.escape(value)}\b', said, re.M):
            wrong.append(f'`{word}` is not {value} in what the row shows: {row[:60]}')


def states(*more):
    """GB of weights, gradients and optimizer on a rank, of examples/zero_paper.shard."""
    p = subprocess.run([SHARDC, 'plan', f'{ROOT}/examples/zero_paper.shard', '--json', *more], capture_output=True,
                       text=True, env=dict(os.environ, SHARDC_PATH=f'{ROOT}/examples'))
    found = json.loads(p.stdout)['classes'][0]['bytes']
    return sum(found[part] for part in ('weights', 'gradients', 'optimizer')) / 1e9


stages = [states('--plan', 'n64', '--set', f'plan.zero={stage}') for stage in range(4)]
largest = states('--model', 'GPT_1T', '--plan', 't1024')
for figure in (f'{stages[0]:.1f} GB of weights, gradients, optimizer', f'{largest:.1f} GB of',
               f'{stages[1]:.1f}, {stages[2]:.1f}, {stages[3]:.2f} GB over 64 ranks'):
    if figure not in text: wrong.append(f'the page does not say `{figure}`, which `plan` does')
for w in wrong: print(w)
sys.exit(len(wrong) > 0)
