// Starts the language server `gpdsl lsp` and connects the editor to it.
"use strict";
const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

/** A client of the server that the settings name. */
function made() {
  const [command, ...args] = vscode.workspace.getConfiguration("gpdsl").get("command", ["gpdsl", "lsp"]);
  return new LanguageClient("gpdsl", "gpdsl", { command, args }, { documentSelector: [{ language: "gpm" }] });
}

/** Start the server; where it cannot be started say what to do. */
async function start() {
  client = made();
  try {
    await client.start();
  } catch (problem) {
    client = undefined;
    await vscode.window.showErrorMessage(
      `gpdsl: the language server did not start (${problem.message}). Install it with pip install "gpdsl[lsp]", ` +
        "and name the command in the setting gpdsl.command where it is not on the path.",
    );
  }
}

async function stop() {
  if (client) await client.stop();
  client = undefined;
}

exports.activate = async (context) => {
  const restart = async () => {
    await stop();
    await start();
  };
  context.subscriptions.push(vscode.commands.registerCommand("gpdsl.restart", restart));
  await start();
};
exports.deactivate = stop;
