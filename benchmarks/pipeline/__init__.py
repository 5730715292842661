"""Ways from videos to answers, measured beside each other: the engine's ceiling, ours, and what a user would write."""
