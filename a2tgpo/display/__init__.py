"""How results are shown: tables in the terminal, curves as pictures."""
