"""Pure PyAV and NumPy: which frames, decoded exactly, in processes that may die."""
