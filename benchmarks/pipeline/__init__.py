"""Whole pipelines, from videos to answers, compared with the engine's ceiling and with plain vLLM."""
