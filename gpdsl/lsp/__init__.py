"""The language server: what an editor asks about a `.gpm` text, answered from its syntax tree and its checked model.

`reading` makes a `Document` of a text, broken or not; `hover`, `completion`, `naming` and `problems` answer from it in
lines and columns; `server` speaks the protocol over them and is the only file that needs pygls.
"""
