"""The model: its identity, its prompts, its choices, and the engine in a process of its own."""
