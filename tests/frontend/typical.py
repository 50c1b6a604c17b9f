"""Ten typical mistakes in the examples and the exact words about them: typical.py SHARDC EXAMPLES [update]

An entry of typical.txt is a file, its edits as LINE: NEW TEXT, and after --- the output of `shardc check`.
"""
import os, re, shutil, subprocess, sys, tempfile

SHARDC, EXAMPLES = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
LIST = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'typical.txt')
wrong, out = [], []
for entry in re.split(r'^(?=file )', open(LIST).read(), flags=re.M)[1:]:
    head, want = entry.split('---\n')
    name = head.split('\n')[0].removeprefix('file ')
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)
        lines = open(f'{folder}/{name}').read().split('\n')
        for number, text in re.findall(r'^(\d+): ?(.*)$', head, re.M): lines[int(number) - 1] = text
        open(f'{folder}/{name}', 'w').write('\n'.join(lines))
        said = subprocess.run([SHARDC, 'check', name], cwd=folder, capture_output=True, text=True).stderr.strip() + '\n'
    out.append(head + '---\n' + said + '\n')
    if said.strip() != want.strip(): wrong.append(f'{head}wanted\n{want}found\n{said}')
if sys.argv[3:] == ['update']: open(LIST, 'w').write(''.join(out))
elif wrong: sys.exit('\n'.join(wrong))
