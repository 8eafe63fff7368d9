"""The end of a command that fails: one sentence on stderr and an exit code."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import typer

from actors.blame import scheme_failed
from protocol.errors import Aborted, BadInput
from protocol.party.view import Broken
from sim.foreign.plain_text import visible

DONE, BUG, BAD_INPUT, UNVERIFIED, ABORTED = 0, 1, 2, 4, 5

Command = TypeVar("Command", bound=Callable[..., None])


def guarded(command: Command) -> Command:
    """Wrap `command` so that an error ends it with one sentence on stderr and an exit code.

    Only for a bug in Keyhole is a traceback written to a file.
    """

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except BadInput as refusal:
            fail(str(refusal), BAD_INPUT)
        except (MemoryError, RecursionError) as error:  # a last resort: readers refuse what is too large or too deep
            _blame_scheme(error)
            what = "memory than there is" if isinstance(error, MemoryError) else "nesting than can be followed"
            fail(f"This needs more {what}: if others made these files, they are not what they say.", BAD_INPUT)
        except Broken as broken:
            fail(f"This is not what the party wrote: {broken}.", UNVERIFIED)
        except Aborted as abort:
            fail(f"The run was aborted: {abort}", ABORTED)
        except KeyboardInterrupt:
            fail("Interrupted.", ABORTED)
        except BrokenPipeError:  # the reader of stdout, such as head, has stopped reading
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(DONE) from None
        except typer.Exit:
            raise
        except Exception as error:
            _blame_scheme(error)
            with tempfile.NamedTemporaryFile("w", prefix="keyhole-bug-", suffix=".txt", delete=False) as file:
                file.write(traceback.format_exc())
            fail(f"Keyhole has a bug; please report it with the traceback in {file.name}", BUG)

    return wrapper  # type: ignore[return-value]


def fail(sentence: str, code: int) -> NoReturn:
    """End the command with this sentence."""
    from sim.console.console import say

    say(sentence)
    raise typer.Exit(code)


def _blame_scheme(error: Exception) -> None:
    """End the command with a message about the person's own scheme, if `error` comes from one."""
    if failed := scheme_failed(error):
        fail_scheme(failed.trace, str(failed))


def fail_scheme(trace: str, sentence: str) -> NoReturn:
    """Show the `trace` of a person's own scheme, then a `sentence` that says which party failed; end the command."""
    print(visible(trace), file=sys.stderr)
    fail(f"{sentence}: fix the scheme and run again.", BAD_INPUT)
