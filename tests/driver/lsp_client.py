"""A client of `shardc lsp`: requests and notices, one after the other."""
import json, subprocess


class Client:
    def __init__(self, shardc, env=None):
        self.process = subprocess.Popen([shardc, 'lsp'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        self.asked, self.notices = 0, []

    def send(self, **message):
        text = json.dumps({'jsonrpc': '2.0', **message}).encode()
        self.process.stdin.write(b'Content-Length: %d\r\n\r\n' % len(text) + text)
        self.process.stdin.flush()

    def receive(self):
        length = None
        while line := self.process.stdout.readline().strip():
            if line.startswith(b'Content-Length:'): length = int(line.split(b':')[1])
        assert length is not None, 'the server has ended'
        return json.loads(self.process.stdout.read(length))

    def ask(self, method, **params):
        """Returns the result, or the dict of an error."""
        self.asked += 1
        self.send(id=self.asked, method=method, params=params)
        while (message := self.receive()).get('id') != self.asked: self.notices.append(message)
        return message['result'] if 'result' in message else message['error']

    def tell(self, method, **params): self.send(method=method, params=params)

    def published(self, uri, version=None):
        """The next messages about this version of a document; those of its plans follow later."""
        while True:
            told = (self.notices.pop(0) if self.notices else self.receive())['params']
            if told['uri'] == uri and told.get('version') == version: return told['diagnostics']

    def end(self):
        self.ask('shutdown')
        self.tell('exit')
        return self.process.wait()
