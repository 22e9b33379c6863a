"""What logs say: the value of a policy that never served, and learners that begin from a log."""
