"""What processes need that import torchvision beside a CPU build of torch; a folder for their PYTHONPATH."""
