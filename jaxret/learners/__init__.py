"""Learners: the contract, the rank-one learner, presets, bandits, mixtures, wrappers, and grids."""
