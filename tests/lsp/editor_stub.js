// VS Code as far as the extension needs it: `node editor_stub.js EXTENSION.js MODEL.gpm COMMAND...` opens the model,
// prints the mistakes that the extension shows as JSON, and ends.
"use strict";
const fs = require("node:fs");
const Module = require("node:module");

const [, , extension, model, ...command] = process.argv;
const uriOf = (text) => ({
  scheme: "file", path: text.slice(7), fsPath: text.slice(7), query: "", fragment: "", authority: "",
  with: () => uriOf(text), toString: () => text, toJSON: () => text,
});
class Plain { constructor(...given) { this.given = given; } dispose() {} }
class Position { constructor(line, character) { Object.assign(this, { line, character }); } }
class Range {
  constructor(...ends) {
    [this.start, this.end] = ends.length < 4 ? ends : [new Position(...ends), new Position(ends[2], ends[3])];
  }
}
class Diagnostic { constructor(range, message, severity) { Object.assign(this, { range, message, severity }); } }
class EventEmitter {
  listeners = [];
  event = (listener) => { this.listeners.push(listener); return { dispose() {} }; };
  fire(value) { for (const each of this.listeners) each(value); }
  dispose() {}
}
class CancellationTokenSource { token = { isCancellationRequested: false, onCancellationRequested: () => ({ dispose() {} }) }; }
const action = { append: () => action };
const CodeActionKind = new Proxy({}, { get: () => action });
const text = fs.readFileSync(model, "utf8");
const opened = { uri: uriOf(`file://${model}`), languageId: "gpm", version: 1, fileName: model, isClosed: false,
  isDirty: false, lineCount: text.split("\n").length, getText: () => text };

// A part of the interface: what is not written out here is an event, or something that can be disposed of.
const part = (known) => new Proxy(known, {
  get: (target, name) => (name in target ? target[name] : () => ({ dispose() {} })),
});
const shown = (uri, found) => {
  process.stdout.write(JSON.stringify(found.map(({ range, message, code, source }) =>
    ({ line: range.start.line, from: range.start.character, to: range.end.character, message, code, source }))));
  process.stdout.write("\n");
  loaded.deactivate().then(() => process.exit(0));
};
const settings = { get: (name, otherwise) => (name === "command" ? command : otherwise) };
const vscode = new Proxy({
  version: "1.100.0", Position, Range, Diagnostic, EventEmitter, CancellationTokenSource, CodeActionKind,
  Uri: { parse: uriOf, file: (path) => uriOf(`file://${path}`) },
  env: part({ appName: "stub", language: "en" }),
  commands: part({}),
  window: part({
    visibleTextEditors: [], tabGroups: part({ all: [] }),
    createOutputChannel: () => part({ appendLine: (line) => process.stderr.write(`${line}\n`) }),
    showErrorMessage: (told) => { process.stderr.write(`${told}\n`); process.exit(1); },
  }),
  languages: part({
    match: (selector, document) => Number([].concat(selector).some((each) => each.language === document.languageId)),
    createDiagnosticCollection: () => part({ set: shown }),
  }),
  workspace: part({
    textDocuments: [opened], notebookDocuments: [], workspaceFolders: undefined,
    fs: part({}), getConfiguration: () => settings,
  }),
}, { get: (target, name) => (name in target ? target[name] : Plain) });

const load = Module._load;
Module._load = (name, ...rest) => (name === "vscode" ? vscode : load(name, ...rest));
const loaded = require(extension);
loaded.activate({ subscriptions: [] });
setTimeout(() => process.exit(2), 60000).unref();
