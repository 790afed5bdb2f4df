"""`gpdsl completion`: a script that lets a shell complete commands, options and their values."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

# The command line as data: commands, their options, and what can complete each value.


@dataclass(frozen=True)
class Option:
    """An option: how it is written, what it means, and what completes its value: None where it takes none."""

    flags: tuple[str, ...]
    meaning: str
    words: tuple[str, ...] | None = None
    files: bool = False


@dataclass(frozen=True)
class Command:
    """A command with its options, and what completes its other words."""

    name: str
    meaning: str
    options: tuple[Option, ...]
    words: tuple[str, ...] = ()
    files: bool = False


def commands(parser: argparse.ArgumentParser) -> Iterator[Command]:
    """What the parser of the command line knows."""
    known = next(each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    meanings = {each.dest: each.help or "" for each in known._choices_actions}
    for name, command in known.choices.items():
        options = tuple(_option(each) for each in command._actions if each.option_strings)
        other = [each for each in command._actions if not each.option_strings]
        words = tuple(word for each in other for word in _words(each))
        yield Command(name, meanings[name], options, words, any(_takes_files(each) for each in other))


def _option(action: argparse.Action) -> Option:
    flags, meaning = tuple(action.option_strings), (action.help or "").split("\n")[0]
    if action.nargs == 0:
        return Option(flags, meaning)
    return Option(flags, meaning, _words(action), _takes_files(action))


def _words(action: argparse.Action) -> tuple[str, ...]:
    """The values that can be listed: choices, options of inference, models of the zoo."""
    import gpdsl
    from gpdsl.language.options import OPTIONS

    if action.choices is not None:
        return tuple(map(str, action.choices))
    if action.metavar == "OPTION=VALUE":
        return tuple(f"{name}=" for name in OPTIONS)
    return tuple(gpdsl.zoo_names()) if action.metavar in ("MODEL", "ZOO_MODEL") else ()


def _takes_files(action: argparse.Action) -> bool:
    """Whether a value may be a file or a folder."""
    shown = str(action.metavar)
    return shown == "MODEL" or "FILE" in shown or "FOLDER" in shown


# Scripts of completion for bash, zsh and fish, written from the command line as data.

BASH = """\
# Completion of gpdsl for bash, made by `gpdsl completion bash`.
_gpdsl_words() {{
  COMPREPLY+=($(compgen -W "$1" -- "$cur"))
  if [[ ${{COMPREPLY[0]}} == *= ]]; then compopt -o nospace 2>/dev/null; fi
}}
_gpdsl_files() {{ local IFS=$'\\n'; COMPREPLY+=($(compgen -f -- "$cur")); compopt -o filenames 2>/dev/null; }}
_gpdsl() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" command="${{COMP_WORDS[1]}}"
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then _gpdsl_words "{names} --help --version"; return; fi
  case "$command $before" in
{values}
  esac
  if [[ $cur == -* ]]; then
    case "$command" in
{options}
    esac
    return
  fi
  case "$command" in
{others}
  esac
}}
complete -F _gpdsl gpdsl
"""

ZSH = """\
#compdef gpdsl
# Completion of gpdsl for zsh, made by `gpdsl completion zsh`.
_gpdsl() {{
  local state line
  local -a commands
  commands=(
{names}
  )
  _arguments -C '(- *)--help[show what there is]' '(- *)--version[show the version]' \\
    '1:command:->command' '*::argument:->rest'
  case $state in
    command) _describe command commands ;;
    rest)
      case $words[1] in
{commands}
      esac
      ;;
  esac
}}
if [ "$funcstack[1]" = _gpdsl ]; then _gpdsl "$@"; else compdef _gpdsl gpdsl; fi
"""

FISH = """\
# Completion of gpdsl for fish, made by `gpdsl completion fish`.
complete -c gpdsl -f
complete -c gpdsl -n __fish_use_subcommand -l help -d 'show what there is'
complete -c gpdsl -n __fish_use_subcommand -l version -d 'show the version'
"""


def bash(commands: Sequence[Command]) -> str:
    """A function of bash, and the line that says whose it is."""
    valued = (
        f"    {'|'.join(repr(f'{command.name} {flag}') for flag in each.flags)}) {_bash(each)}return ;;"
        for command in commands
        for each in command.options
        if each.words is not None
    )
    return BASH.format(
        names=" ".join(each.name for each in commands),
        values="\n".join(valued),
        options="\n".join(f'      {each.name}) _gpdsl_words "{" ".join(_flags(each))}" ;;' for each in commands),
        others="\n".join(f"    {each.name}) {_bash(each)};;" for each in commands),
    )


def _bash(each: Option | Command) -> str:
    words = f'_gpdsl_words "{" ".join(each.words)}"; ' if each.words else ""
    return words + ("_gpdsl_files; " if each.files else "")


def _flags(command: Command) -> Iterator[str]:
    return (flag for each in command.options for flag in each.flags)


def zsh(commands: Sequence[Command]) -> str:
    """A function that zsh loads by itself."""
    return ZSH.format(
        names="\n".join(f"    '{_zsh_text(each.name + ':' + each.meaning)}'" for each in commands),
        commands="\n".join(f"        {each.name}) _arguments \\\n{_zsh(each)} ;;" for each in commands),
    )


def _zsh(command: Command) -> str:
    lines = [
        f"'*{flag}[{_zsh_text(each.meaning)}]{_zsh_values(each)}'" for each in command.options for flag in each.flags
    ]
    return " \\\n".join(f"          {each}" for each in [*lines, f"'*{_zsh_values(command, 'argument')}'"])


def _zsh_values(each: Option | Command, name: str = "value") -> str:
    if each.words is None:
        return ""
    if each.words and each.files:
        # a blank before the action: it is called as it stands, without the options that `_arguments` adds for its own
        return f':{name}: _alternative "words:word:({" ".join(each.words)})" "files:file:_files"'
    return f":{name}:" + (f"({' '.join(each.words)})" if each.words else "_files" if each.files else " ")


def _zsh_text(text: str) -> str:
    return text.replace("'", "'\\''").replace("[", "\\[").replace("]", "\\]")


def fish(commands: Sequence[Command]) -> str:
    """One line for every command and option."""
    return FISH + "".join(f"{line}\n" for each in commands for line in _fish(each))


def _fish(command: Command) -> Iterator[str]:
    yield f"complete -c gpdsl -n __fish_use_subcommand -a {command.name} -d {_fish_text(command.meaning)}"
    start = f"complete -c gpdsl -n '__fish_seen_subcommand_from {command.name}'"
    for each in command.options:
        flags = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in each.flags)
        yield f"{start} {flags}{_fish_values(each, ' -r -F', ' -x')} -d {_fish_text(each.meaning)}"
    if command.words or command.files:
        yield start + _fish_values(command, " -F", "")


def _fish_values(each: Option | Command, files: str, no_files: str) -> str:
    if each.words is None:
        return ""
    words = f" -a '{' '.join(each.words)}'" if each.words else ""
    return (files if each.files else no_files) + words


def _fish_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


WRITERS: Mapping[str, Callable[[Sequence[Command]], str]] = MappingProxyType({"bash": bash, "zsh": zsh, "fish": fish})


# The command itself.

EXAMPLES = """put it where your shell looks:
  bash:  gpdsl completion bash > ~/.local/share/bash-completion/completions/gpdsl
  zsh:   gpdsl completion zsh > ~/.zfunc/_gpdsl    # with `fpath+=~/.zfunc` before `compinit` in ~/.zshrc
  fish:  gpdsl completion fish > ~/.config/fish/completions/gpdsl.fish"""


def add_completion(parser: argparse.ArgumentParser) -> None:
    """The shell."""
    parser.add_argument("shell", choices=tuple(WRITERS), help="the shell that reads it")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES


def run_completion(arguments: argparse.Namespace) -> int:
    """`gpdsl completion`: a script that lets a shell complete commands, options and their values.

    Print the script.
    """
    from gpdsl.cli import make_parser

    print(WRITERS[arguments.shell](tuple(commands(make_parser()))), end="")
    return 0
