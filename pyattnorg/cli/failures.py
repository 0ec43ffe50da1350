"""Whatever goes wrong is one line on standard error and an exit code; --debug shows the rest."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

INTERRUPTED = 130  # what shells give for Ctrl-C
EXPECTED = (ValueError, TypeError, OSError, ImportError, LookupError, MemoryError)


@contextmanager
def one_line(debug: bool) -> Iterator[None]:
    """Turn errors into one line and exit code 1, and Ctrl-C into exit code 130 without a word."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:  # whoever read our output has seen enough; Python would say so again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except Exception as error:
        if _interrupted(error):
            raise typer.Exit(INTERRUPTED) from None
        if debug:
            raise
        typer.echo(f"pyattnorg: {described(error)}", err=True)
        raise typer.Exit(1) from None


def _interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is what began it: within an import, Python and libraries make other errors of it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def described(error: Exception) -> str:
    """An error in one line."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    elif isinstance(error, KeyError) and error.args:
        text = str(error.args[0])  # str() of a KeyError is a repr
    else:
        text = str(error)
    text = " ".join(text.split()).replace("overwrite=True", "--overwrite") or type(error).__name__
    if isinstance(error, EXPECTED):
        return text
    return f"unexpected {type(error).__name__}: {text} (--debug shows where)"


__all__ = ["INTERRUPTED", "described", "one_line"]
