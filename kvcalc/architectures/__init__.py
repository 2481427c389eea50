"""What does a model cache? A row a model type, pointing at one of a few small rules from fields to layers."""
