"""llama.cpp: the engine, its reading of a header, and its caches by release."""
