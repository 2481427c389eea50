"""The proof: real caches on a real device, against full attention. Torch is imported here and nowhere else."""
