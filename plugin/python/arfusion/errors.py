# SPDX-License-Identifier: Apache-2.0
"""Errors of the library as exceptions, with its text."""

from ._abi import Result


class Error(RuntimeError):
    """A call of the library failed; `result` says how, the text says why."""

    def __init__(self, result: Result, text: str):
        super().__init__(text)
        self.result = result


class InvalidArgumentError(Error, ValueError):
    """An argument is wrong; the text names it and the limit. Nothing was enqueued."""


class RemoteError(Error):
    """Another rank failed, left, or did not answer in time."""


def error_of(result: int, text: str) -> Error:
    """The exception for a result code of the library."""
    kind = {Result.INVALID_ARGUMENT: InvalidArgumentError, Result.REMOTE_ERROR: RemoteError}.get(Result(result), Error)
    return kind(Result(result), text)
