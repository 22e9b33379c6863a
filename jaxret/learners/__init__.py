"""Learners: the contract, presets, wrappers, grids of settings, and mixtures."""
