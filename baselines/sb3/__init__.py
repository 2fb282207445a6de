"""stable-baselines3 on the discrete wrapper."""
