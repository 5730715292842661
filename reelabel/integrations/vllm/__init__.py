"""A vLLM plugin: our samplers and frame files as video loaders."""
