"""Commands about single videos and prompts."""
