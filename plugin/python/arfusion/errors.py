# SPDX-License-Identifier: Apache-2.0
"""Errors of the library as exceptions, with its text."""

from typing import Union

from ._abi import Result


class Error(RuntimeError):
    """A call of the library failed; `result` says how (an int that is none of Result's: a later library's), the text
    says why."""

    def __init__(self, result: Union[Result, int], text: str):
        super().__init__(text)
        self.result = result


class InvalidArgumentError(Error, ValueError):
    """An argument is wrong; the text names it and the limit. Nothing was enqueued."""


class RemoteError(Error):
    """Another rank failed, left, or did not answer in time."""


_KINDS = {Result.INVALID_ARGUMENT: InvalidArgumentError, Result.REMOTE_ERROR: RemoteError}
_RESULTS = {int(result): result for result in Result}


def error_of(result: int, text: str) -> Error:
    """The exception for a result code of the library."""
    known = _RESULTS.get(result, result)
    return _KINDS.get(known, Error)(known, text)
