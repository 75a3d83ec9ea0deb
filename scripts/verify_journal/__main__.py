"""`python scripts/verify_journal RUN`: runs wherever this folder has been copied to."""

import importlib
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[0] = str(FOLDER.parent)  # a folder that is run is otherwise not a package
verifier = importlib.import_module(FOLDER.name)

if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
    sys.exit(verifier.__doc__)
sys.exit(verifier.main(sys.argv[1:]))
