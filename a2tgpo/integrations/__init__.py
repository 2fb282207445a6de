"""Our environment and our credit inside other trainers, one module each; every module imports its framework when it is
used, not before.

An adapter brings two things: the environment as the framework wants to roll it out, and the credit of a turn (advantage
and clip range) as the framework's loss wants to read it. The arithmetic stays in `a2tgpo.algorithms`.
"""
