"""How every command ends: one sentence on stderr and an exit code, whatever went wrong."""

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
    """Errors become one sentence on stderr and an exit code; only a bug of ours has a traceback, in a file."""

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except BadInput as refusal:
            fail(str(refusal), BAD_INPUT)
        except (MemoryError, RecursionError) as error:  # the last net: readers refuse what is too large or too deep
            _blame_scheme(error)
            what = "memory than there is" if isinstance(error, MemoryError) else "nesting than can be followed"
            fail(f"This needs more {what}: if others made these files, they are not what they say.", BAD_INPUT)
        except Broken as broken:
            fail(f"This is not what the party wrote: {broken}.", UNVERIFIED)
        except Aborted as abort:
            fail(f"The run was aborted: {abort}", ABORTED)
        except KeyboardInterrupt:
            fail("Interrupted.", ABORTED)
        except BrokenPipeError:  # a reader such as head has seen enough
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
    print(f"keyhole: {visible(sentence)}", file=sys.stderr)
    raise typer.Exit(code)


def _blame_scheme(error: Exception) -> None:
    """Say so if a scheme of one's own was at work, and end."""
    if failed := scheme_failed(error):
        fail_scheme(failed.trace, str(failed))


def fail_scheme(trace: str, sentence: str) -> NoReturn:
    """Show the traceback of a person's own scheme, then the sentence that says who was doing what."""
    print(visible(trace), file=sys.stderr)
    fail(f"{sentence}: mend the scheme and run again.", BAD_INPUT)
