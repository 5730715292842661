"""A plugin that gives vLLM our frames: any video's keyframes, and frame files as videos."""
