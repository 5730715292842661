"""A vLLM plugin with video loaders: sampled frames of any video, and frame files in place of videos."""
