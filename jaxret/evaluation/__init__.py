"""How good a ranking or a run is: metrics, evaluation, comparison, statistics, figures."""
