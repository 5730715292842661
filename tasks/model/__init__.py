"""The model: its identity, prompts, choice scoring, and the vLLM engine in its own process."""
