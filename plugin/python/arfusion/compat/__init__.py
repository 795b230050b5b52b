# SPDX-License-Identifier: Apache-2.0
"""This folder on PYTHONPATH holds a `flashinfer` whose comm is arfusion's: see flashinfer/__init__.py."""
