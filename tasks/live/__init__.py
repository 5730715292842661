"""A live session, its frames, its model and its record; knows neither HTTP nor vLLM."""
