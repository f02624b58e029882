import sys
from pathlib import Path

from docs.pictures import draw_all

folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for name, png in draw_all().items():
    (folder / f"{name}.png").write_bytes(png)
    print(folder / f"{name}.png")
