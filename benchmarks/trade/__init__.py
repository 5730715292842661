"""Accuracy and cost of keyframes: questions about moving shapes, on clips of few and of many keyframes."""
