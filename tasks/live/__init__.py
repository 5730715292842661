"""A live session, its frames, what answers its questions, and what it leaves behind; knows neither HTTP nor vLLM."""
