"""Fitting parameters to labelled queries: losses, batches, one loop."""
