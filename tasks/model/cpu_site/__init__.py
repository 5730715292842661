"""A folder for the PYTHONPATH of processes that import torchvision with a CPU build of torch."""
