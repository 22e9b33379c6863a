"""Tasks that take several hops: `python -m experiments.multihop`."""
