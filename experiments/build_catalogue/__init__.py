"""Catalogues of tools from installed libraries: `python -m experiments.build_catalogue`."""
