"""How each part of a layer is proved: its inputs, its reference, and the step over its cache."""
