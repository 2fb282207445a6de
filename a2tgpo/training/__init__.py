"""The main flow: rollout, information gain, credit, update, evaluation."""
