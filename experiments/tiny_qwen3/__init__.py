"""A small Qwen3 with random weights: `python -m experiments.tiny_qwen3`."""
