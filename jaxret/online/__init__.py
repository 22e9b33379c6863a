"""Learning from one bit a round: policies, estimators, learners, environments, simulation."""
