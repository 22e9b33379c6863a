"""Simulated deployments: rounds, runs, sweeps and logs. Start reading with `scan.py`."""
