"""What the protocol calls our sorts of words, of names and of mistakes."""

from __future__ import annotations

from lsprotocol import types as lsp

ITEMS = {
    "statement": lsp.CompletionItemKind.Keyword,
    "keyword": lsp.CompletionItemKind.Keyword,
    "type": lsp.CompletionItemKind.TypeParameter,
    "distribution": lsp.CompletionItemKind.Class,
    "density": lsp.CompletionItemKind.Class,
    "likelihood": lsp.CompletionItemKind.Class,
    "kernel": lsp.CompletionItemKind.Class,
    "process": lsp.CompletionItemKind.Class,
    "function": lsp.CompletionItemKind.Function,
    "external": lsp.CompletionItemKind.Function,
    "constant": lsp.CompletionItemKind.Constant,
    "const": lsp.CompletionItemKind.Constant,
    "option": lsp.CompletionItemKind.Property,
    "argument": lsp.CompletionItemKind.Property,
    "value": lsp.CompletionItemKind.EnumMember,
}
SEVERITIES = {"error": lsp.DiagnosticSeverity.Error, "warning": lsp.DiagnosticSeverity.Warning}
SYMBOLS = {
    "index": lsp.SymbolKind.Enum,
    "const": lsp.SymbolKind.Constant,
    "latent": lsp.SymbolKind.Function,
    "function": lsp.SymbolKind.Function,
    "kernel": lsp.SymbolKind.Class,
    "density": lsp.SymbolKind.Class,
    "external": lsp.SymbolKind.Interface,
    "likelihood": lsp.SymbolKind.Interface,
}
