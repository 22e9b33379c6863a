"""Parts of a rank-one learner: estimators, policies, projections, schedules, maps of queries."""
