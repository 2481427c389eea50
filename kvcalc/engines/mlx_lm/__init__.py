"""MLX-LM: one growing buffer a layer, on Apple silicon."""
