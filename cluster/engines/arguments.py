"""From launch parameters to the words of an engine's own command line.

Each engine lists the parameters it takes by the names it gives them itself. One
that is not listed goes into ``extra-args``, text that is split into words as a shell
would: engines gain options with every release. What Sluice sets itself can be
given in neither way.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from cluster.engines.engine import DRIVER_PARAMS, LaunchOrder, LaunchRefused, Params

PROGRAM, MODEL, EXTRA = "program", "model", "extra-args"

# From name and text of a parameter to words; ``ValueError`` for a text that does
# not fit. Value and name share a word, so that no value is taken for an option.
Words = Callable[[str, str], list[str]]


def text(name: str, value: str) -> list[str]:
    if not value or not value.isprintable():
        raise ValueError
    return [f"--{name}={value}"]


def whole(name: str, value: str) -> list[str]:
    int(value)
    return [f"--{name}={value}"]


def number(name: str, value: str) -> list[str]:
    float(value)
    return [f"--{name}={value}"]


def flag(name: str, value: str) -> list[str]:
    """An option that is off unless it is there."""
    return [f"--{name}"] if truth(value) else []


def switch(name: str, value: str) -> list[str]:
    """An option that the engine may have on by itself."""
    return [f"--{name}"] if truth(value) else [f"--no-{name}"]


def truth(value: str) -> bool:
    if value not in ("True", "False", "true", "false"):
        raise ValueError
    return value in ("True", "true")


class CommandLine(NamedTuple):
    """What an engine takes. ``ours`` are the options that Sluice sets or that would
    move the server to where nobody looks for it, ``ours_short`` those of one letter."""

    title: str
    takes: Mapping[str, Words]
    ours: Collection[str]
    ours_short: Collection[str] = ()

    def words(self, params: Params) -> list[str]:
        """The parameters as words; raises ``LaunchRefused`` naming the wrong one."""
        words = []
        for name, value in sorted(params.items()):
            if name not in DRIVER_PARAMS and name not in (PROGRAM, MODEL, EXTRA):
                words += self._words(name, str(value))
        return words + self._extra(params)

    def _words(self, name: str, value: str) -> list[str]:
        if name in self.ours:
            raise _bad(f"The parameter {name} is not a version's to set.")
        if name not in self.takes:
            raise _bad(
                f"{self.title} takes no parameter {name} here; it takes "
                f"{', '.join(sorted(self.takes))}; anything else goes into {EXTRA}."
            )
        try:
            return self.takes[name](name, value)
        except ValueError:
            raise _bad(f"The parameter {name} cannot be {value!r}.") from None

    def _extra(self, params: Params) -> list[str]:
        extra = params.get(EXTRA, "")
        if not isinstance(extra, str):
            raise _bad(f"The parameter {EXTRA} takes text, not {extra!r}.")
        try:
            words = shlex.split(extra)
        except ValueError as error:
            raise _bad(f"The parameter {EXTRA}: {error}.") from error
        for word in words:
            if word.startswith("-") and self._is_ours(word):
                raise _bad(
                    f"The parameter {EXTRA} may not hold {word}: that is not a "
                    "version's to set."
                )
            if (name := _option(word)) in params:
                raise _bad(f"{name} stands in the parameters and in {EXTRA}.")
        return words

    def _is_ours(self, word: str) -> bool:
        """Engines take the beginning of a name for the name."""
        if not word.startswith("--"):
            return word[1:].startswith(tuple(self.ours_short))
        return any(name.startswith(_option(word)) for name in self.ours)


def _option(word: str) -> str:
    """The name of the option that a word begins; a word of another kind as it is."""
    if not word.startswith("--"):
        return word
    return word.removeprefix("--").partition("=")[0].replace("_", "-")


def model_of(order: LaunchOrder) -> str:
    """The weights: the artifact's path, else the parameter ``model``, which may be a
    name that the engine looks up and downloads itself."""
    named = order.params.get(MODEL)
    if named is None and order.artifact is None:
        raise LaunchRefused(
            "no_artifact",
            f"The version names no artifact, and no {MODEL} in its parameters.",
        )
    if named is None:
        return str(order.artifact)
    if order.artifact is not None:
        raise _bad(f"The version names an artifact; the parameter {MODEL} is another.")
    if not isinstance(named, str) or not named.isprintable() or named[:1] in ("", "-"):
        raise _bad(f"The parameter {MODEL} cannot be {named!r}.")
    return named


def program_of(params: Params, default: str) -> str:
    """The program to start: a name to be found on the node's PATH, or a whole path."""
    program = params.get(PROGRAM, default)
    if isinstance(program, str) and _is_program(program):
        return program
    raise _bad(
        f"The parameter {PROGRAM} takes a name or an absolute path, not {program!r}."
    )


def _is_program(text: str) -> bool:
    return text.isprintable() and (text[:1] == "/" or ("/" not in text and text != ""))


def _bad(detail: str) -> LaunchRefused:
    return LaunchRefused("bad_param", detail)
