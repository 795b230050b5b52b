# SPDX-License-Identifier: Apache-2.0
"""Numbers of callers, before they become fields of C: ctypes cuts integers off without a word."""

import operator
from typing import Any

_INT_BITS = 32


def _ranged(value: Any, name: str, least: int, most: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} is {value!r}: an integer is needed") from None
    if not least <= number <= most:
        raise ValueError(f"{name} is {number}: {least} to {most} can be said")
    return number


def signed(value: Any, name: str, bits: int = _INT_BITS) -> int:
    """An int, or with 64 bits an int64_t."""
    return _ranged(value, name, -(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def unsigned(value: Any, name: str, bits: int = _INT_BITS) -> int:
    """A uint32_t, or with 64 bits an address."""
    return _ranged(value, name, 0, (1 << bits) - 1)


def real(value: Any, name: str) -> float:
    """A float; text is none."""
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} is {value!r}: a number is needed") from None
