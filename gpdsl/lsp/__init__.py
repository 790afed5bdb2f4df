"""The language server: what an editor asks about a `.gpm` text, answered from its syntax tree and its checked model.

`occurrences` makes a `Document` of a text, broken or not, and says where names stand in it; `completion` says what
could stand at a place and what does; `server` speaks the protocol over them and is the only file that needs pygls.
"""
