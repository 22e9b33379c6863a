"""What the experiments are made of: no file here is a command."""
