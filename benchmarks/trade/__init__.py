"""Measures accuracy and cost of keyframes: questions about moving shapes, on clips with few and many keyframes."""
