"""The commands of `a2tgpo`, one function each: (arguments, console) → exit code."""
