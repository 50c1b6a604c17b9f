// Starts `shardc lsp` and connects it to the editor. All that it knows of the language is in the server.
const { workspace } = require('vscode');
const { LanguageClient } = require('vscode-languageclient/node');

let client;

exports.activate = () => {
  const command = workspace.getConfiguration('shardc').get('path');
  client = new LanguageClient('shardc', 'shardc', { command, args: ['lsp'] },
    { documentSelector: [{ language: 'shard' }] });
  return client.start();
};

exports.deactivate = () => client && client.stop();
