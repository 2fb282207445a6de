"""Studies: contenders × seeds, run side by side and compared."""
