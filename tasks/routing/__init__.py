"""When keyframes are enough, and when jobs answered from them are asked again losslessly."""
