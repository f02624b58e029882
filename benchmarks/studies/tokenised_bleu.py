"""`python -m benchmarks.studies.tokenised_bleu`: BLEU as papers on Multi30k measure it.

Wu et al. (2021) and their public code give BLEU4 of text that is normalised, cut into words by
Moses' scripts and made lower case before anything is trained. The BLEU of this project is of text
as it is written, cut by sacrebleu. This command prints both for the same lines, and with `--write`
it makes the tokenised files that a model as theirs is trained on. It needs `sacremoses`.
"""

import argparse
import gzip
import sys
from pathlib import Path

from benchmarks.children import BenchmarkError
from benchmarks.commands import show
from benchmarks.report import markdown


def tokenised(lines: list[str], language: str) -> list[str]:
    """Return lines as the paper's data have them: normalised, tokenised and in lower case."""
    try:
        from sacremoses import MosesPunctNormalizer, MosesTokenizer
    except ImportError:
        raise BenchmarkError("sacremoses is missing: pip install sacremoses.") from None
    normal, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)
    return [
        tokenizer.tokenize(normal.normalize(line.strip()), return_str=True).lower()
        for line in lines
    ]


def lines_of(path: Path) -> list[str]:
    """Return the lines of a text file, plain or compressed."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open() as file:
        return [line.rstrip("\n") for line in file]


def table(hypotheses: list[str], references: list[str], language: str) -> str:
    """Return the BLEU of hypotheses by each way of cutting words, with signatures."""
    from sacrebleu.metrics import BLEU

    if len(hypotheses) != len(references):
        raise BenchmarkError(
            f"There should be a line for each of {len(references)} references. "
            f"Received: {len(hypotheses)}."
        )
    moses = [tokenised(lines, language) for lines in (hypotheses, references)]
    rows = [["text", "BLEU", "signature"]]
    for name, metric, pair in (
        ("as written", BLEU(), [hypotheses, references]),
        ("lower case", BLEU(lowercase=True), [hypotheses, references]),
        ("tokenised, lower case (BLEU4)", BLEU(tokenize="none", force=True), moses),
    ):
        score = metric.corpus_score(pair[0], [pair[1]]).score
        rows.append([name, f"{score:.2f}", f"`{metric.get_signature()}`"])
    return markdown(rows)


def main(arguments: list[str] | None = None) -> int:
    """Print the table, or write tokenised files."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.studies.tokenised_bleu",
        description="Measure BLEU as written, and of tokenised text in lower case.",
    )
    parser.add_argument("files", type=Path, nargs="+", help="HYPOTHESES REFERENCES")
    parser.add_argument("--language", default="de", help="of the files (default: %(default)s)")
    parser.add_argument(
        "--write", type=Path, metavar="FOLDER", help="write the files tokenised into it instead"
    )
    options = parser.parse_args(arguments)
    if options.write is None and len(options.files) != 2:
        parser.error(f"expected HYPOTHESES REFERENCES. Received: {len(options.files)} files.")

    def answer() -> str:
        if options.write is None:
            hypotheses, references = map(lines_of, options.files)
            return table(hypotheses, references, options.language)
        options.write.mkdir(parents=True, exist_ok=True)
        written = [options.write / path.name.removesuffix(".gz") for path in options.files]
        for path, to in zip(options.files, written, strict=True):
            lines = tokenised(lines_of(path), options.language)
            with to.open("x", encoding="utf-8") as file:  # nothing is overwritten
                file.writelines(f"{line}\n" for line in lines)
        return "\n".join(map(str, written))

    return show(answer)


if __name__ == "__main__":
    sys.exit(main())
