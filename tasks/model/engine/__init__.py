"""The vLLM engine in a process of its own."""
