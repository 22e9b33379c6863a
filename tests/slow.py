"""Parametrised tests of which some cases run with the slow tests."""

import pytest


def slowly(cases, slow):
    """Mark some cases as slow; a case is a value or a tuple of values."""
    marks = [pytest.mark.slow if case in slow else () for case in cases]
    values = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*each, marks=mark) for each, mark in zip(values, marks, strict=True)]
