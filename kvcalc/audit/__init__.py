"""An engine's own log lines held against the prediction: stated, predicted, the difference, and what explains it. Pure."""
