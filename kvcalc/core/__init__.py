"""Pure integer arithmetic over layers: no files, no clock, no environment, no printing."""
