"""From every room's errors to exit codes and words."""

import errno
import os

import pytest

from clusterops.cli import errors
from clusterops.kube import errors as kube
from clusterops.local import errors as local


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (kube.ConfigError("no cluster"), errors.UNREACHABLE),
        (kube.Unreachable("refused"), errors.UNREACHABLE),
        (kube.from_status(401, {}), errors.DENIED),
        (kube.from_status(403, {}), errors.DENIED),
        (kube.from_status(404, {}), errors.NOT_FOUND),
        (kube.from_status(409, {}), errors.CONFLICT),
        (kube.from_status(409, {"reason": "AlreadyExists"}), errors.CONFLICT),
        (kube.from_status(422, {}), errors.USAGE),
        (kube.from_status(500, {}), errors.FAILED),
        (kube.from_status(418, {}), errors.FAILED),
        (local.AlreadyRunning("/state", 3), errors.CONFLICT),
        (local.NotRunning("/state"), errors.FAILED),
        (PermissionError(13, "Permission denied", "/etc/x"), errors.FAILED),
    ],
)
def test_an_error_has_its_code_and_says_what(error: Exception, code: int) -> None:
    failure = errors.failure_of(error)
    assert failure.code == code
    assert failure.what


@pytest.mark.parametrize(
    ("number", "advice"),
    [(errno.ENOSPC, "free some space"), (errno.EROFS, "may write"), (errno.EACCES, "may write")],
)
def test_what_the_system_refuses_comes_with_a_way_out(number: int, advice: str) -> None:
    failure = errors.failure_of(OSError(number, os.strerror(number), "/state/up.pid"))
    assert failure.what.startswith("/state/up.pid: ")
    assert advice in failure.way_out


def test_a_missing_object_is_told_from_a_missing_kind() -> None:
    no_kind = errors.failure_of(kube.from_status(404, {"message": "page not found"}))
    assert "manifests/crd" in no_kind.way_out
    body = {"message": 'trainingjobs "a" not found', "details": {"name": "a"}}
    assert errors.failure_of(kube.from_status(404, body)).way_out == ""


def test_what_others_wrote_is_shown_harmless(capsys) -> None:
    errors.show(errors.Failure(1, "bad \x1b[2Jthing\nsecond", "try\rthis"))
    said = capsys.readouterr().err
    assert said == "error: bad \\x1b[2Jthing\nsecond\n  try: try\\rthis\n"


def test_an_unforeseen_error_asks_for_a_report() -> None:
    failure = errors.failure_of(ZeroDivisionError("division by zero"))
    assert "ZeroDivisionError" in failure.what
    assert "--debug" in failure.way_out
