"""One call into NVML and what may come back: a number, "cannot tell", an error, or garbage.

Runs in the child process only.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import pynvml

# Errors that say "cannot tell" and nothing about the GPU.
CANNOT_TELL = frozenset(
    {
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_INSUFFICIENT_SIZE,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NO_DATA,
        22,  # no ECC on virtual GPUs
        25,  # a structure of another version
        26,  # deprecated
        27,  # not ready
        29,  # not in this state
    }
)
# Of these an older form of the same call may still work.
OTHER_FORM = frozenset(
    {pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT, 25, 26}
)
MOST_COUNT = (1 << 63) - 1
# By the number of a value's type.
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
Answer = int | None


class Implausible(Exception):
    """An answer that no driver gives."""


def or_none(call: Callable[..., Any], *arguments: Any) -> Answer:
    """A call's number, None when the GPU or driver cannot tell. Raises NVMLError for the rest."""
    try:
        return int(call(*arguments))
    except pynvml.NVMLError as error:
        if error.value not in CANNOT_TELL:
            raise
        return None
    except AttributeError:
        return None  # the binding is older than the question


def first_form(handle: Any, *forms: Callable[[Any], Sequence[Answer]]) -> Sequence[Answer]:
    """The answer of the newest form that this driver knows. Raises the last one's NVMLError."""
    for form in forms[:-1]:
        try:
            return form(handle)
        except AttributeError:
            continue  # the binding is older than the form
        except pynvml.NVMLError as error:
            if error.value not in OTHER_FORM:
                raise
    return forms[-1](handle)


def field(handle: Any, number: int) -> int:
    """One value by its number. Raises NVMLError, Implausible."""
    (found,) = pynvml.nvmlDeviceGetFieldValues(handle, [number])
    if found.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(found.nvmlReturn)
    return _content(found)


def fields(handle: Any, wanted: Sequence[int | tuple[int, int]]) -> list[Answer]:
    """Several values, each by its number or by number and link. Raises NVMLError when all fail."""
    found = pynvml.nvmlDeviceGetFieldValues(handle, list(wanted))
    answers: list[Answer] = []
    for each in found:
        if each.nvmlReturn == pynvml.NVML_SUCCESS:
            answers.append(_content(each))
        elif each.nvmlReturn in CANNOT_TELL:
            answers.append(None)
        else:
            raise pynvml.NVMLError(each.nvmlReturn)
    return answers


def _content(found: Any) -> int:
    """The number in a value's union, by the type that stands beside it."""
    if not 0 <= found.valueType < len(_MEMBERS):
        raise Implausible
    return int(getattr(found.value, _MEMBERS[found.valueType]))


def count_only(symbol: str, handle: Any, *arguments: Any, lists: int) -> int:
    """How long a list is that NVML would fill, without making room for it: it may be garbage."""
    function = pynvml._nvmlGetFunctionPointer(symbol)
    count = ctypes.c_uint(0)
    result = function(handle, *arguments, ctypes.byref(count), *[None] * lists)
    if result not in (pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_INSUFFICIENT_SIZE):
        raise pynvml.NVMLError(result)
    return count.value
