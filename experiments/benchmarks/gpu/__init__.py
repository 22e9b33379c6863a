"""What does jaxret do on a GPU?   `python -m experiments.benchmarks.gpu --out DIR`

One command for a machine that is there for minutes: JAX with CUDA, and PyTorch with transformers to
be held against. Without hydra or wandb, without a network, with random weights. The parts, in this
order, each number written as soon as it is measured:

    limits       what the machine can do: a copy's bandwidth, a product's rate in each precision
    simulation   a round in each form, size and precision, against PyTorch and the two products
    grid         64 runs as one program, against one run and against 64 in turn
    encoders     texts a second and share of the peak, against PyTorch; parity in float32
    training     a step of MLC and of ToolRefiner, against PyTorch
    sweeps       sizes of blocks, tiles and the kernels' programs
    agreement    rounds until the first item that differs from float32 on the CPU; accuracy
    rules        the best rules against `greedy`
    precisions   the simulation's mesh and PyTorch in TF32 and bfloat16

Figures are drawn after each part; ``--draw DIR/gpu.json`` draws them again. Eight minutes are not
passed: a part has its share of what is left, and what finds no time is named as skipped. Kernels
that fail when they are tried, before all that, are left out. ``--small`` runs all of it on any
machine, within a minute or two; then no time means anything.
"""
