"""The language server: python3 lsp.py SHARDC ROOT

A scripted session over the largest example: each request with the answer that an editor needs. Then half-typed and
damaged texts, at every place of which something is asked: the server answers each and lives. It prints the time from
a keystroke to the messages (the bar is 50 ms on a machine that does nothing else); nothing depends on it.
"""
import glob, os, random, sys, tempfile, time
from lsp_client import Client

SHARDC, ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
EXAMPLES = os.path.join(ROOT, 'examples')
BERT = f'{EXAMPLES}/bert.shard'
LARGEST = max(glob.glob(f'{EXAMPLES}/*.shard'), key=os.path.getsize)
requests = 0


def check(good, what):
    assert good, str(what)[:3000]


def place(text, at):
    start = text.rfind('\n', 0, at) + 1
    return {'line': text.count('\n', 0, at), 'character': len(text[start:at].encode('utf-16-le')) // 2}


class Editor:
    """A document that is open in a server."""
    def __init__(self, client, path, text):
        self.client, self.uri, self.text, self.version = client, 'file://' + path, text, 1
        client.tell('textDocument/didOpen', textDocument={'uri': self.uri, 'languageId': 'shard', 'version': 1,
                                                          'text': text})

    def at(self, what, nth=0, plus=0):
        at = -1
        for _ in range(nth + 1): at = self.text.index(what, at + 1)
        return at + plus

    def ask(self, method, what=None, nth=0, plus=0, **more):
        global requests
        requests += 1
        if what is not None: more['position'] = place(self.text, self.at(what, nth, plus))
        return self.client.ask(f'textDocument/{method}', textDocument={'uri': self.uri}, **more)

    def change(self, old, new, nth=0):
        """Sends a change as editors do: the range, and the text that replaces it."""
        at = self.at(old, nth)
        span = {'start': place(self.text, at), 'end': place(self.text, at + len(old))}
        self.text = self.text[:at] + new + self.text[at + len(old):]
        self.set([{'range': span, 'text': new}])

    def set(self, changes):
        self.version += 1
        self.client.tell('textDocument/didChange', textDocument={'uri': self.uri, 'version': self.version},
                         contentChanges=changes)

    def published(self): return self.client.published(self.uri, self.version)

    def hover(self, *where): return ((self.ask('hover', *where) or {}).get('contents') or {}).get('value', '')

    def definition(self, *where):
        found = self.ask('definition', *where)
        return found and (os.path.basename(found['uri']), found['range']['start']['line'])

    def words(self, *where): return [x['label'] for x in self.ask('completion', *where)['items']]

    def line(self, what, nth=0): return self.text.count('\n', 0, self.at(what, nth))


def started():
    client = Client(SHARDC, {**os.environ, 'SHARDC_PATH': EXAMPLES})
    told = client.ask('initialize', processId=None, rootUri=None, capabilities={})
    check(told['capabilities']['positionEncoding'] == 'utf-16' and told['serverInfo']['name'] == 'shardc', told)
    client.tell('initialized')
    return client


def session(folder):
    """Opens an example: checks its messages, and makes a request of each kind at places of each kind."""
    client = started()
    here = os.path.basename(BERT)
    e = Editor(client, BERT, open(BERT).read())
    check(e.published() == [], f'{here} has no messages')
    check(e.ask('formatting', options={}) == [], f'{here} is formatted')
    names = [x['name'] for x in e.ask('documentSymbol')]
    check(names == ['dims', 'sparse', 'SelfAttention', 'Encoder', 'BertBigBird', 'mlm', 'hf'], names)
    check('768 in BertBigBird' in e.hover('Embed = 768'), e.hover('Embed = 768'))
    check(not e.hover('std"'), e.hover('std"'))                                      # its first line is a comment
    check('30522 in BertBigBird (stored: 30592)' in e.hover('Vocab = 30522'), e.hover('Vocab = 30522'))
    check(e.definition('Embed', 2) == (here, e.line('Embed = 768')), 'definition of a dim')
    check('elements in 2 parameters' in e.hover('Linear['), e.hover('Linear['))
    check(e.definition('LayerNorm[')[0].startswith('std-'), 'definition in the library')
    check(e.definition('of Encoder', 0, 4) == (here, e.line('layer Encoder')), 'definition of a layer')
    check(e.definition('for BertBigBird', 0, 4) == (here, e.line('model Bert')), 'definition of a model')
    check('112266810 parameters' in e.hover('BertBigBird {'), e.hover('BertBigBird {'))
    check('parameter word [Vocab, Embed]' in e.hover('word ['), e.hover('word ['))
    check('a float: [Batch, Seq, Embed]' in e.hover('x = norm'), e.hover('x = norm'))
    check(e.definition('(x |> fc1', 0, 1) is None or e.definition('x |> fc1')[1] == e.line('x = norm1'), 'a value')
    check(e.words('steps 1')[:3] == ['size', 'batch', 'steps'], 'lines of a train block')
    check('adamw' in e.words('lamb'), 'optimizers')
    check('the optimizer and its numbers' in e.hover('optim lamb'), 'help of a line')
    check('parameters marked @nodecay' in e.hover('weight_decay'), e.hover('weight_decay'))
    check('Linear' in e.words('Linear[') and 'SelfAttention' in e.words('Linear['), 'layers')
    check('Embed' in e.words('Embed -> H') and 'Linear' not in e.words('Embed -> H'), 'dims')

    e.change('Embed = 768', 'Embedd = 768')
    messages = e.published()
    check(messages and all(m['source'] == 'shardc' for m in messages), 'messages of a wrong name')
    line = messages[0]['range']['start']['line']
    actions = e.ask('codeAction', range=messages[0]['range'], context={'diagnostics': messages})
    check(actions and actions[0]['kind'] == 'quickfix', actions)
    edits = actions[0]['edit']['changes'][e.uri]
    check(edits[0]['range']['start']['line'] == line and edits[0]['newText'] == 'Embedd', edits)
    e.change('Embedd = 768', 'Embed = 768')
    check(e.published() == [], 'the correction')

    e.change('sub query = Linear', 'sub query=Linear')
    check(e.published() == [], 'blanks')
    edits = e.ask('formatting', options={})
    check(len(edits) == 1 and edits[0]['range']['end']['line'] - edits[0]['range']['start']['line'] < 8, edits)

    used = f'{folder}/ünï/small.shard'
    os.makedirs(os.path.dirname(used))
    open(f'{folder}/ünï/lib.shard', 'w').write('dims { Width = 1 }\n')
    lib = Editor(client, f'{folder}/%C3%BCn%C3%AF/lib.shard', 'dims { Width = 3 }\n')
    text = ('use "std"\nuse "lib"\n# 𝔘nits\ndims { Batch; Two = Width } # 𝔘\n'
            'model M { input x [Batch, Two]\n  loss mean[*](x) }\n')
    small = Editor(client, used, text)
    told = [lib.published(), small.published()]
    check(told == [[], []], told)
    check('3 in M' in small.hover('Two'), small.hover('Two'))
    check([small.definition('Width'), small.definition('"lib"', 0, 1)] == [('lib.shard', 0)] * 2, 'used')
    check('a float: [Batch, Two]' in small.hover('(x)', 0, 1), small.hover('(x)', 0, 1))
    small.change('mean', 'sum', 0)
    check(small.published() == [], 'a change after characters of two units')
    small.change('[*]', '[Tow]')
    message, = small.published()
    check(message['code'] == 'E0201' and message['range']['start'] == place(small.text, small.at('Tow')), message)
    check(small.ask('hover', 'loss') is None, 'no name, no hover')
    check(small.ask('definition', 'input') is None, 'no definition of a keyword')
    unknown = {'uri': 'file:///no'}
    check(client.ask('textDocument/hover', textDocument=unknown, position=place('', 0)) is None, 'unknown')
    check(client.ask('workspace/symbol', query='')['code'] == -32601, 'an unknown method')
    client.tell('textDocument/didClose', textDocument={'uri': lib.uri})
    check(client.published(lib.uri) == [], 'closed')
    check(client.end() == 0, 'exit')


def plans(folder):
    """Plans are checked after opening and saving, with their data files."""
    client = started()
    text = ('use "std"\ndims { Batch; D, E = 4096 }\nmodel M { input x, y [Batch, D]\n'
            '  param w [D, E] ~ normal(0.02)\n  sub a = Linear[E -> D]\n  loss mse(a(dot[D](x, w)), y) }\n')
    text += ('train t for M { batch 8; steps 1; optim adamw }\n'
             'machine small { node gpus = 1 arch = sm_80 memory = 2GB reserve = 1.999GB }\nplan p for M { on small }\n')
    e = Editor(client, f'{folder}/plan.shard', text)
    check(e.published() == [], 'the text is right')
    message, = e.published()
    check(message['code'] == 'E0801', message)
    e.change('2GB', '8GB')
    check(e.published() == [], 'the machine is larger')
    client.tell('textDocument/didSave', textDocument={'uri': e.uri})
    check([e.published(), e.published()] == [[], []], 'the plan fits')
    check(client.end() == 0, 'exit')


def half_typed(rounds):
    """Every request about texts that end anywhere, and about damaged texts, gets a result."""
    client, rng = started(), random.Random(5)
    files = sorted(glob.glob(f'{EXAMPLES}/*.shard') + glob.glob(f'{ROOT}/tests/frontend/c*/*.shard')
                   + glob.glob(f'{ROOT}/tests/fuzz/seeds/fuzz_front/*'))
    e = Editor(client, '/nowhere/half.shard', '')
    e.published()
    for i in range(rounds):
        text = open(rng.choice(files), errors='replace').read().replace('\0', '')
        at = rng.randrange(len(text) + 1)
        if i % 2: text = text[:at]
        else:
            other = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(['{', '}', '(', '[', '"', '\n', ' = ', '@', 'with ', '->']) + text[other:]
        e.text = text
        e.set([{'text': text}])
        e.published()
        span = {'start': place(text, 0), 'end': place(text, len(text))}
        for method in 'hover', 'definition', 'completion':
            here = place(text, min(at, len(text)))
            got = client.ask(f'textDocument/{method}', textDocument={'uri': e.uri}, position=here)
            check(not (isinstance(got, dict) and 'code' in got), f'{method}: {got}\n{text}')
        for method in ('codeAction', 'documentSymbol', 'formatting') if i % 4 < 2 else ():
            got = client.ask(f'textDocument/{method}', textDocument={'uri': e.uri}, range=span, options={})
            check(not (isinstance(got, dict) and 'code' in got), f'{method}: {got}\n{text}')
    check(client.end() == 0, 'exit')


def wrong_messages():
    """Requests before `initialize`, after `shutdown` and without a method, and bytes that are no requests."""
    client = Client(SHARDC)
    check(client.ask('textDocument/hover')['code'] == -32002, 'before initialize')
    client.ask('initialize', capabilities={'general': {'positionEncodings': ['utf-8', 'utf-16']}})
    client.tell('textDocument/didOpen', textDocument={'uri': 7, 'text': 8})
    client.tell('textDocument/didOpen', textDocument={'uri': 'untitled:a', 'text': 'x\0y'})
    client.tell('textDocument/didChange', contentChanges={})
    client.send(result=None)
    client.send(id='word', method='shutdown')
    check(client.receive() == {'jsonrpc': '2.0', 'id': 'word', 'result': None}, 'an id that is a word')
    check(client.ask('textDocument/hover')['code'] == -32600, 'after shutdown')
    client.tell('exit')
    check(client.process.wait() == 0, 'exit')


def keystrokes():
    """Milliseconds from a change to its messages: a word typed letter by letter into the largest example."""
    client, took = started(), []
    e = Editor(client, LARGEST, open(LARGEST).read())
    e.published()
    for letter in 'x_ = dropout(x, p = 0.1)\n' * 2:
        old = e.text
        at = len(old) - 2
        e.text = old[:at] + letter + old[at:]
        start = time.perf_counter()
        e.set([{'range': {'start': place(old, at), 'end': place(old, at)}, 'text': letter}])
        e.published()
        took.append(1e3 * (time.perf_counter() - start))
    client.end()
    took.sort()
    return took[len(took) // 2], took[-1]


with tempfile.TemporaryDirectory() as folder:
    session(folder)
    check(requests >= 25, f'{requests} requests')
    plans(folder)
wrong_messages()
half_typed(int(sys.argv[3]) if len(sys.argv) > 3 else 60)
print('%s: %d requests; a keystroke took %.1f ms (median), %.1f ms (longest)' % (os.path.basename(LARGEST), requests,
                                                                                *keystrokes()))
