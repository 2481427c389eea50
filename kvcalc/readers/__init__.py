"""Bytes and mappings in, fields out: presets, config.json, GGUF, the hub, engine logs."""
