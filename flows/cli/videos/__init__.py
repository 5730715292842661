"""The commands that look at single videos and prompts."""
