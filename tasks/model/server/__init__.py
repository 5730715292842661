"""An OpenAI-compatible server, such as `vllm serve`, as the backend in place of a local engine."""
