"""Logs: off-policy evaluation, and learners warm-started from a log."""
