"""The exact blocked form: the rounds of `jaxret.simulation.scan`, many in one matrix product."""
