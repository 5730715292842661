"""Compares whole pipelines, from videos to answers, with the engine's ceiling and with plain vLLM."""
