"""Routing: when keyframes are enough, and when jobs are asked again with a dense sampler."""
