"""Write the scripts as modules with their tables, for tests: ``python -m gpipe_sim.viewer FOLDER``."""

import sys
from pathlib import Path

from gpipe_sim.viewer.document import SCRIPTS, as_json, read
from gpipe_sim.viewer.tables import tables

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text('{"type":"module"}\n', encoding="utf-8")
    (folder / "tables.js").write_text(f"export const TABLES = {as_json(tables())};\n", encoding="utf-8")
    for name in SCRIPTS:
        (folder / f"{name}.js").write_text(read(f"{name}.js"), encoding="utf-8")
