"""An OpenAI-compatible server, such as `vllm serve`, in the place of an engine of our own."""
