"""ollama: llama.cpp under ollama's defaults, and the engine of its own that it had from 0.6 to 0.25."""
