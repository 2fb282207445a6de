"""Engines: what generates text for the policy."""
