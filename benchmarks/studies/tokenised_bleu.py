"""BLEU as papers on Multi30k measure it: of tokenised text in lower case.

Wu et al. (2021) and their public code give BLEU4 of text that is normalised, cut into words by
Moses' scripts and made lower case before anything is trained. The BLEU of this project is of text
as it is written, cut by sacrebleu. This command prints both for the same lines, and with `--write`
it makes the tokenised files that a model as theirs is trained on. It needs `sacremoses`.
"""

import argparse
from pathlib import Path

from benchmarks.common.data import lines_of
from benchmarks.common.errors import BenchmarkError
from benchmarks.common.tables import markdown


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


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("files", type=Path, nargs="+", help="HYPOTHESES REFERENCES")
    parser.add_argument("--language", default="de", help="of the files (default: %(default)s)")
    parser.add_argument(
        "--write", type=Path, metavar="FOLDER", help="write the files tokenised into it instead"
    )


def run(options: argparse.Namespace) -> None:
    """Print the table, or write tokenised files."""
    if options.write is None:
        if len(options.files) != 2:
            raise BenchmarkError(
                f"Expected the files HYPOTHESES REFERENCES. Received: {len(options.files)} files."
            )
        hypotheses, references = map(lines_of, options.files)
        print(table(hypotheses, references, options.language))
        return
    options.write.mkdir(parents=True, exist_ok=True)
    for path in options.files:
        lines = tokenised(lines_of(path), options.language)
        written = options.write / path.name.removesuffix(".gz")
        with written.open("x", encoding="utf-8") as file:  # nothing is overwritten
            file.writelines(f"{line}\n" for line in lines)
        print(written)
