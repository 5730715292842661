"""A live session, its frames, and what answers its questions; knows neither HTTP nor Postgres nor vLLM."""
