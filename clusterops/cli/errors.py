"""From an error to what a person reads and a script sees: what, why, what to do, and an exit code.

The one place that knows the family of every room's errors; a command raises, and never prints a
failure itself.
"""

import errno
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import typer

from clusterops.api.text import printable

DONE = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
CONFLICT = 4
DENIED = 5
UNREACHABLE = 6
TIMED_OUT = 124
INTERRUPTED = 130

# With --wait, and of `logs -f`: how the job ended.
JOB_FAILED = 100
JOB_NOT_FINISHED = 101
JOB_CANCELLED = 103


_FREE_SPACE = "free some space there, then do it again: what was saved before is intact"
_MAKE_WRITABLE = "see who may write there, or choose another place"
_WAYS_OUT = {
    errno.ENOSPC: _FREE_SPACE,
    errno.EDQUOT: _FREE_SPACE,
    errno.EFBIG: "raise the limit on the size of files: ulimit -f",
    errno.EROFS: _MAKE_WRITABLE,
    errno.EACCES: _MAKE_WRITABLE,
    errno.EPERM: _MAKE_WRITABLE,
    errno.EMFILE: "raise the limit on open files: ulimit -n",
    errno.ENOTDIR: "a file is where a folder has to be: move it away",
}


class CommandError(Exception):
    """A failure that a command found itself. `way_out` says what to do; may be empty."""

    def __init__(self, what: str, way_out: str = "", code: int = FAILED) -> None:
        super().__init__(what)
        self.way_out = way_out
        self.code = code


class Failure(NamedTuple):
    """What is printed, and the exit code. `notes` are what else may have to do with it."""

    code: int
    what: str
    way_out: str = ""
    notes: tuple[str, ...] = ()


def guarded(command: Callable[[], Any], *, debug: bool = False) -> int:
    """Runs a command line to its exit code; whatever goes wrong becomes words on standard error."""
    try:
        result = command()
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        return _reader_has_enough()
    except SystemExit as leave:
        # What typer makes of a pipe that closes while a command writes: an exit with 1.
        if isinstance(leave.__context__, BrokenPipeError):
            return _reader_has_enough()
        raise
    except typer.Exit as leave:
        return leave.exit_code
    except Exception as error:  # the edge of the process: nothing may end in a traceback
        if debug:
            traceback.print_exc()
        failure = failure_of(error)
        failure = failure._replace(notes=tuple(getattr(error, "__notes__", ())))
        show(failure)
        return failure.code
    return result if isinstance(result, int) else DONE


def _reader_has_enough() -> int:
    """Ends well, as in `queue | head`: what is left to write goes nowhere, so that Python does not
    stumble over it at exit.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    try:
        sys.stderr.flush()
    except OSError:  # it went into the same pipe
        os.dup2(nowhere, sys.stderr.fileno())
    return DONE


def show(failure: Failure) -> None:
    """Prints a failure to standard error, foreign text made harmless."""
    lines = printable(failure.what, keep="\n").rstrip().split("\n")
    print(f"error: {lines[0]}", *lines[1:], sep="\n", file=sys.stderr)
    if failure.way_out:
        print(f"  try: {printable(failure.way_out)}", file=sys.stderr)
    for note in failure.notes:
        print(f"  note: {printable(note)}", file=sys.stderr)


def failure_of(error: BaseException) -> Failure:
    """What to say about an error, and with which code to end."""
    if isinstance(error, CommandError):
        return Failure(error.code, str(error), error.way_out)
    for family in (_usage, _cluster, _local_mode, _manifest, _system):
        failure = family(error)
        if failure is not None:
            return failure
    return Failure(
        FAILED,
        f"this should not happen: {type(error).__name__}: {error}",
        "run it again with `clusterops --debug ...` and report what it prints",
    )


def _usage(error: BaseException) -> Failure | None:
    # typer keeps its usage errors in a private module; they are told by their exit code.
    format_message = getattr(error, "format_message", None)
    if format_message is None:
        return None
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "clusterops"
    if type(error).__name__ == "NoArgsIsHelpError":
        print(format_message())
        return Failure(USAGE, "which command?", f"{path} --help")
    return Failure(getattr(error, "exit_code", USAGE), format_message(), f"{path} --help")


def _cluster(error: BaseException) -> Failure | None:
    from clusterops.kube import errors as kube

    if isinstance(error, kube.ConfigError):
        return Failure(
            UNREACHABLE,
            str(error),
            "start a cluster on this machine with `clusterops up`, or name one with --kubeconfig",
        )
    if isinstance(error, kube.Unreachable):
        return Failure(
            UNREACHABLE,
            f"the API server does not answer: {error}",
            "see whether local mode is up with `clusterops status`, or whether --kubeconfig and "
            "--context name the right cluster",
        )
    if isinstance(error, kube.Unauthorized):
        return Failure(
            DENIED, f"not logged in: {error}", "renew the credentials that your kubeconfig names"
        )
    if isinstance(error, kube.Forbidden):
        return Failure(DENIED, str(error), "ask an administrator for the right named above")
    if isinstance(error, kube.NotFound):
        missing_kind = not error.details.get("name")
        way_out = (
            "is clusterops installed there? kubectl apply -k manifests/crd" if missing_kind else ""
        )
        return Failure(NOT_FOUND, str(error), way_out)
    if isinstance(error, kube.Conflict):
        return Failure(CONFLICT, str(error), "look at it with `clusterops describe` and try again")
    if isinstance(error, kube.Invalid | kube.BadRequest):
        return Failure(USAGE, str(error))
    if isinstance(error, kube.ServerBusy):
        return Failure(
            FAILED, f"the API server is overloaded or broken: {error}", "try again later"
        )
    return Failure(FAILED, str(error)) if isinstance(error, kube.KubeError) else None


def _local_mode(error: BaseException) -> Failure | None:
    from clusterops.local import errors as local

    if not isinstance(error, local.LocalModeError):
        return None
    code = CONFLICT if isinstance(error, local.AlreadyRunning) else FAILED
    return Failure(code, str(error), error.way_out)


def _manifest(error: BaseException) -> Failure | None:
    # Whoever raised it has imported it; pydantic is not loaded only to ask.
    manifest = sys.modules.get("clusterops.api.manifest")
    if manifest is None or not isinstance(error, manifest.ManifestError):
        return None
    count = len(error.complaints)
    first = f"{count} problem{'s' if count > 1 else ''} in the manifest, nothing was created:"
    return Failure(USAGE, "\n".join([first, *(each.pointed() for each in error.complaints)]))


def _system(error: BaseException) -> Failure | None:
    if isinstance(error, TimeoutError):
        return Failure(TIMED_OUT, str(error) or "it took too long")
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        way_out = _WAYS_OUT.get(error.errno or 0, "")
        return Failure(FAILED, f"{place}{error.strerror or error}", way_out)
    return None
