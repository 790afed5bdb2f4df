"""`gpdsl completion`: a script that lets a shell complete commands, options and their values."""

from __future__ import annotations

import argparse

from gpdsl.cli.command_line import commands
from gpdsl.cli.shells import WRITERS

HELP = "print a script that completes command lines in your shell"

EXAMPLES = """put it where your shell looks:
  bash:  gpdsl completion bash > ~/.local/share/bash-completion/completions/gpdsl
  zsh:   gpdsl completion zsh > ~/.zfunc/_gpdsl    # with `fpath+=~/.zfunc` before `compinit` in ~/.zshrc
  fish:  gpdsl completion fish > ~/.config/fish/completions/gpdsl.fish"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The shell."""
    parser.add_argument("shell", choices=tuple(WRITERS), help="the shell that reads it")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    from gpdsl.cli import make_parser

    print(WRITERS[arguments.shell](tuple(commands(make_parser()))), end="")
    return 0
