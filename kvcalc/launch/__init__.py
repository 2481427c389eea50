"""Launch lines, scripts and manifests → what they set: pure parsing, nothing is run, nothing beyond the text is read."""
