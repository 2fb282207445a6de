"""What a run begins from: models, demonstrations, the warm start."""
