from docs.pictures.drawing import draw_all
from docs.pictures.kept import HERE, keep

pictures = draw_all()
keep(pictures)
print(f"Drew {len(pictures)} pictures into {HERE}")
