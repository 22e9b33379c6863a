"""Is what `jr.off_policy` and `jr.select` say of logs right, and what must a log have for it?"""
