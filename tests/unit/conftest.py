"""Coroutine tests run on a loop of their own, under a deadline."""

from tests.worlds import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
