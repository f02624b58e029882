"""Multi30k: image captions in four languages, by name.

The files are of the task 1 of https://github.com/multi30k/dataset, free for research; this package
fetches them and does not contain them.
"""

from pathlib import Path

from keras_attention.applications.common import downloads
from keras_attention.applications.common.errors import UserError

URL = (
    "https://raw.githubusercontent.com/multi30k/dataset/"
    "a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw/"
)
LANGUAGES = ("cs", "de", "en", "fr")
_NAMES = {"train": "train", "dev": "val", "test": "test_2016_flickr"}
SHA256 = {
    "train.cs.gz": "a65adb8b32e3bc664f21ecba7a6e7f6950fd1f405e135f7c312faabdb6255077",
    "val.cs.gz": "b63226e05c4bd5dd6a42897d74b86a1b9d2c31498252c572b1ea7f7996927fcc",
    "test_2016_flickr.cs.gz": "200a4a74cc9560f051924abb9803be008d1908d77f747e9141aeb86dfd2797f1",
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.fr.gz": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.fr.gz": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.fr.gz": "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
}


def file_of(split: str, language: str, folder: str | None = None) -> Path:
    """Return the file of a split in a language: out of `folder`, or fetched into the cache.

    Args:
        split: `"train"`, `"dev"` or `"test"` (test_2016_flickr).
        language: `"cs"`, `"de"`, `"en"` or `"fr"`.
        folder: a folder with the files under their own names, `.gz` or unpacked.

    Raises:
        UserError: for another language, a file that the folder lacks, or a failed download.
    """
    if language not in LANGUAGES:
        raise UserError(
            f"multi30k has the languages {', '.join(LANGUAGES)}. Received: {language!r} "
            "(data.source_language and data.target_language)."
        )
    name = f"{_NAMES[split]}.{language}"
    if folder is None:
        return downloads.fetch(f"{URL}{name}.gz", SHA256[f"{name}.gz"], subfolder="multi30k")
    found = [path for path in (Path(folder) / f"{name}.gz", Path(folder) / name) if path.is_file()]
    if not found:
        raise UserError(
            f"data.folder {folder} has no file {name}.gz or {name}; leave data.folder out to "
            "fetch multi30k."
        )
    return found[0]
