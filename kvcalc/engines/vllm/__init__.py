"""vLLM: the engine, and the parts of its start-up that decide what it allocates."""
