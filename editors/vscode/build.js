// One file of the extension and its client, and the grammar of the repository beside it.
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const esbuild = require("esbuild");

const target = path.join(__dirname, "dist");
esbuild.buildSync({
  entryPoints: [path.join(__dirname, "extension.js")],
  outfile: path.join(target, "extension.js"),
  bundle: true,
  platform: "node",
  target: "node20",
  external: ["vscode"],
  minify: true,
});
const grammar = path.join(__dirname, "..", "..", "grammar", "gpm.tmLanguage.json");
fs.copyFileSync(grammar, path.join(target, "gpm.tmLanguage.json"));
