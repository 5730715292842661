"""What keyframes cost: questions about moving shapes, on clips of few and of many keyframes."""
