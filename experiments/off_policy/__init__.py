"""Studies of the accuracy of `jr.off_policy` and `jr.select`, and of the logs they need."""
