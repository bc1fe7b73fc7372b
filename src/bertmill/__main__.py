"""`python -m bertmill`, the same as `bertmill`."""

import sys

from bertmill.cli.main import main

sys.exit(main())
