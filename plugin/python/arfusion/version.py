# SPDX-License-Identifier: Apache-2.0
"""The package's version: the library's (Makefile)."""

__version__ = "0.1.0"
