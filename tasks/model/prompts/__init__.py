"""Prompts, choices and what they become."""
