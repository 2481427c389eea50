"""Hugging Face transformers: the engine, and its cache classes by release."""
