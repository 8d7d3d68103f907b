"""``python -m gpipe_sim``, which is also installed as ``gpipe-sim``: what it does stands in ``command/``."""

import sys

from gpipe_sim.command.main import main

if __name__ == "__main__":
    sys.exit(main())
