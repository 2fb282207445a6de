"""Scores of an answer against the gold answers, and the value of the gold answer."""
