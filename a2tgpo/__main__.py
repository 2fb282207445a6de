"""`python -m a2tgpo` is the command `a2tgpo`."""

import sys

from a2tgpo.cli import main

if __name__ == "__main__":
    sys.exit(main())
