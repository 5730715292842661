"""A folder for the PYTHONPATH of processes that import torchvision beside a CPU build of torch."""
