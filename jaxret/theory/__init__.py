"""Statements about runs: regret, comparators, bounds with their assumptions, checks."""
