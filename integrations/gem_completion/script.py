"""The script of a shell: shtab makes it of the parser, our functions have the names.

Only bash splits ``game:Sudoku-v0`` and ``key=value`` into several words; `_BASH_WORDS` puts them
together before shtab's function sees them.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Iterator

from gem_completion.names import NAMES, kinds_of
from gem_core.errors import MissingDependencyError, how_to_install

_BASH_WORDS = """
# Bash ends words at ":" and "=": put game:Sudoku-v0 and key=value together, complete, and give back
# what follows the last of these signs.
_gem_core_complete() {
  local rest=$COMP_LINE last=${COMP_WORDS[COMP_CWORD]} joined=() n=-1 i word
  for ((i = 0; i <= COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ $n -lt 0 || $rest == [[:space:]]* ]]; then
      joined+=("$word")
      n=$((n + 1))
    else
      joined[n]+=$word
    fi
    rest=${rest#"${rest%%[![:space:]]*}"}
    rest=${rest#"$word"}
  done
  [[ $last == [:=]* ]] && last=""
  local COMP_WORDS=("${joined[@]}") COMP_CWORD=$n
  _shtab_gem_core "$@"
  local before=${joined[n]%"$last"}
  COMPREPLY=("${COMPREPLY[@]#"$before"}")
  [[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace 2>/dev/null
  return 0
}
complete -o bashdefault -F _gem_core_complete gem-core"""
_PATHS = {
    "bash": {"files": "compgen -f -- $1", "folders": "compgen -d -- $1"},
    "zsh": {"files": '_files "$@"', "folders": '_files "$@" -/'},
    "fish": {
        "files": "__fish_complete_path (commandline -ct)",
        "folders": "__fish_complete_directories (commandline -ct)",
    },
}
"""Shell and kind -> the line that completes a path."""


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script; the arguments of ``parser`` get what completes them.

    Args:
        parser: that of ``gem-core``, with its subcommands.
        shell: ``bash``, ``zsh`` or ``fish``.

    Raises:
        MissingDependencyError: shtab is missing.
    """
    try:
        import shtab
    except ImportError:
        raise MissingDependencyError(
            f"gem-core completion needs shtab: {how_to_install('completion')}."
        ) from None
    used = set()
    for action in _actions(parser):
        kinds = kinds_of(action)
        if kinds:
            used.add(kinds)
            name = _function(kinds)
            action.complete = {  # type: ignore[attr-defined]
                "bash": name,
                "zsh": name,
                "fish": f"({name})",
            }
    functions = "\n".join(_definition(kinds, shell) for kinds in sorted(used))
    script: str = shtab.complete(parser, shell, preamble=functions)
    return script + _BASH_WORDS if shell == "bash" else script


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments of a parser and of its subcommands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _actions(inner)
        else:
            yield action


def _function(kinds: Iterable[str]) -> str:
    return f"_gem_core_{'_'.join(kinds)}"


def _definition(kinds: tuple[str, ...], shell: str) -> str:
    """Return the function of a shell that prints, or adds, what there is of some kinds."""
    lines = [_PATHS[shell][kind] if kind in _PATHS[shell] else _line(kind, shell) for kind in kinds]
    body = "\n".join(f"  {line}" for line in lines)
    if shell == "fish":
        return f"function {_function(kinds)}\n{body}\nend"
    return f"{_function(kinds)}() {{\n{body}\n}}"


def _line(kind: str, shell: str) -> str:
    """Return the line that completes the names of a kind."""
    names = " ".join(shlex.quote(name) for name in NAMES[kind]())
    if shell == "bash":
        return f"compgen -W {shlex.quote(names)} -- $1"
    if shell == "zsh":
        ending = "-S '' " if kind == "keys" else ""  # a value follows: no space
        return f'compadd "$@" {ending}-- {names}'
    return f"printf '%s\\n' {names}"
