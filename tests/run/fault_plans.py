"""Plans in whose dumps seeded faults are put: those of the examples, of equal_faults.shard, of equal_experts.shard."""
import json, os, re
from common import EXAMPLES, HERE, run


def plans(wanted=''):
    """The file and the options of each plan."""
    examples = [f'{EXAMPLES}/{name}' for name in sorted(os.listdir(EXAMPLES)) if name.endswith('.shard')]
    for path in [f'{HERE}/equal_faults.shard', f'{HERE}/equal_experts.shard', *examples]:
        for line in re.findall(r'^plan .*', open(path).read(), re.M):
            name, model, train = re.match(r'plan (\w+) for (\w+)(?:.*# train (\w+))?', line).groups()
            if 'equal_faults' in path: train = train or 'plain'
            at = [path, '--plan', name, '--model', model] + (['--train', train] if train else [])
            if re.search(wanted, f'{os.path.basename(path)} {name}'): yield at


def sizes(shardc, at):
    said = json.loads(run(shardc, 'equal', *at, '--json')[0])
    words, at = said.get('sizes', ''), []
    for word in filter(None, words.split(', ')):
        *key, n = word.replace('mesh ', 'plan.mesh.').replace(' =', '').replace('micro', 'plan.micro').split()
        at += ['--set', f'{key[0]}={n}'] if '.' in key[0] else ['-D', f'{key[0]}={n}']
    return at
