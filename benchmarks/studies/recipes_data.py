"""The corpora of `recipes`: read, split, written as tables, and scored."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.common.errors import BenchmarkError

SPLITS = ("train", "dev", "test")
Parts = dict[str, list]
"""The rows of each split."""


def existing(path: Path, origin: str) -> Path:
    """Return a path, or raise an error that says where the file comes from."""
    if not path.exists():
        raise BenchmarkError(f"{path} is missing: {origin}")
    return path


def _check(rows: list, path: Path, form: str) -> None:
    if not rows:
        raise BenchmarkError(f"{path} has no sentence {form}.")


def write_tables(folder: Path, parts: Parts, head: Sequence[str] = ()) -> dict[str, Path]:
    """Write the rows of each split as a table with tabs, and return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for split, rows in parts.items():
        lines = ["\t".join(row) for row in ([head] if head else []) + list(rows)]
        paths[split] = folder / f"{split}.tsv"
        paths[split].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return paths


# Relations: SemEval-2010 task 8.

MARKS = ("[e1", "e1]", "[e2", "e2]")
AROUND = 4
"""How many words before the first thing and behind the second one a text keeps."""
_SEMEVAL = re.compile(r'^\d+\t"(.*)"\n(\S+)\n', re.MULTILINE)
_WORDS = re.compile(r"\[e[12]|e[12]\]|n't|'\w+|\w+?(?=n't)|\w+|[^\w\s]", re.IGNORECASE)


def read_relations(folder: Path) -> Parts:
    """Return texts with marks and their relations; each tenth training text is development."""
    origin = "it is of SemEval-2010 task 8"
    rows = {}
    for name in ("TRAIN_FILE.TXT", "TEST_FILE_FULL.TXT"):
        text = existing(folder / name, origin).read_text(encoding="utf-8")
        rows[name] = [(_marked(text), label) for text, label in _SEMEVAL.findall(text)]
        _check(rows[name], folder / name, 'like 1<TAB>"A <e1>b</e1> <e2>c</e2>", a relation below')
    train, test = rows.values()
    return {
        "train": [row for place, row in enumerate(train) if place % 10],
        "dev": train[::10],
        "test": test,
    }


def _marked(text: str) -> str:
    """Return the words from a few before the first mark to a few after the last one."""
    text = re.sub(r"<(e[12])>", r" [\1 ", re.sub(r"</(e[12])>", r" \1] ", text))
    words = _WORDS.findall(text)
    places = [place for place, word in enumerate(words) if word in MARKS]
    return " ".join(words[max(0, places[0] - AROUND) : places[-1] + AROUND + 1])


def relation_f1(gold: Sequence[str], found: Sequence[str]) -> float:
    """Return the official score of SemEval-2010 task 8, in percent.

    The mean of F1 over the relations without Other. An answer with the wrong direction is wrong,
    but counts as an answer of its relation ("(9+1)-way, directionality taken into account").
    """
    wanted, given = ([label.split("(")[0] for label in labels] for labels in (gold, found))
    right = Counter(
        label.split("(")[0] for label, own in zip(gold, found, strict=True) if label == own
    )
    wanted, given = Counter(wanted), Counter(given)
    names = [name for name in wanted if name != "Other"]
    scores = [_f1(right[name], given[name], wanted[name]) for name in names]
    return sum(scores) / len(scores)


def _f1(right: int, given: int, wanted: int) -> float:
    """Return F1 in percent of counts."""
    return 200 * right / max(given + wanted, 1)


# Tags: CoNLL-2002.

Span = tuple[int, int, str]


def read_tagged(folder: Path) -> Parts:
    """Return the Spanish sentences of CoNLL-2002 as lists of words and tags."""
    origin = 'it is of nltk.download("conll2002")'
    files = dict(zip(SPLITS, ("esp.train", "esp.testa", "esp.testb"), strict=True))
    parts = {}
    for split, name in files.items():
        text = existing(folder / "conll2002" / name, origin).read_text(encoding="utf-8")
        sentences = [
            [line.split() for line in block.splitlines()] for block in text.strip().split("\n\n")
        ]
        parts[split] = [
            ([line[0] for line in lines], [line[-1] for line in lines])
            for lines in sentences
            if lines and all(len(line) > 1 for line in lines)
        ]
        _check(parts[split], folder / "conll2002" / name, "of lines `word tag`")
    return parts


def spans(tags: Sequence[str]) -> list[Span]:
    """Return `(start, end, label)` of each phrase; an I- that continues nothing begins one."""
    found: list[list] = []
    before = "O"
    for place, tag in enumerate(tags):
        if tag != "O":
            if tag[0] == "I" and before[2:] == tag[2:]:
                found[-1][1] = place + 1
            else:
                found.append([place, place + 1, tag[2:]])
        before = tag
    return [(start, end, label) for start, end, label in found]


def phrase_f1(gold: Iterable[Sequence[str]], found: Iterable[Sequence[str]]) -> float:
    """Return F1 over phrases in percent: right are those with the same words and label."""
    counts = [0, 0, 0]
    for one, other in zip(gold, found, strict=True):
        wanted, given = set(spans(one)), set(spans(other))
        counts = [a + len(b) for a, b in zip(counts, (wanted & given, given, wanted), strict=True)]
    return _f1(*counts)


def tags_of_known_names(train: list, sentences: list) -> list[list[str]]:
    """Tag the longest phrases that were names in at least half of their places in training."""
    labels, places = defaultdict(Counter), Counter()
    for words, tags in train:
        for start, end, label in spans(tags):
            labels[tuple(words[start:end])][label] += 1
    longest = max(map(len, labels), default=0)
    for words, _ in train:
        places.update(phrase for _, phrase in _phrases(words, longest) if phrase in labels)
    known = {
        name: label.most_common(1)[0][0]
        for name, label in labels.items()
        if 2 * label.total() >= places[name]
    }
    answers = []
    for words, _ in sentences:
        tags = ["O"] * len(words)
        end = 0
        for place, phrase in _phrases(words, longest):
            if place >= end and phrase in known:
                end = place + len(phrase)
                tags[place:end] = [f"B-{known[phrase]}"] + [f"I-{known[phrase]}"] * (
                    len(phrase) - 1
                )
        answers.append(tags)
    return answers


def _phrases(words: Sequence[str], longest: int):
    """Yield the place and the words of each phrase, at each place the longest first."""
    for start in range(len(words)):
        for end in range(min(len(words), start + longest), start, -1):
            yield start, tuple(words[start:end])


# Reading: questions made from the same news.

CONTEXT = 100
"""How many words of an article, up to the question, a reader gets."""
MOST_ENTITIES = 20


def articles(sentences: Iterable) -> list[list]:
    """Cut sentences at the datelines of the agency EFE, as `Madrid , 23 may ( EFE ) .`"""
    found = [[]]
    for words, tags in sentences:
        start = words[:16]
        if "(" in start and any(word.startswith("EFE") for word in start[start.index("(") :]):
            found.append([])
        found[-1].append((words, tags))
    return [article for article in found if article]


def read_questions(folder: Path) -> Parts:
    """Return `(question, passage, answer)`, one row for each entity that an article repeats.

    A sentence is the question, with `@x` in the place of one entity; the words before it in its
    article are the passage. All entities are numbers, so that only the passage tells of them
    (Hermann et al. 2015, "Teaching machines to read and comprehend"). `@0` is the passage's most
    frequent one, of equals the last, and so on: numbers that say nothing need far more questions.
    """
    return {
        split: [row for article in articles(sentences) for row in _questions(article)]
        for split, sentences in read_tagged(folder).items()
    }


def _questions(article: list):
    before: list = []  # an entity is a tuple of words, another word a string
    for words, tags in article:
        ends = {start: end for start, end, _ in spans(tags)}
        sentence, place = [], 0
        while place < len(words):
            end = ends.get(place)
            sentence.append(tuple(words[place:end]) if end else words[place])
            place = end or place + 1
        passage = before[-CONTEXT:]
        counts = Counter(reversed([each for each in passage if isinstance(each, tuple)]))
        known = [entity for entity, _ in counts.most_common()]
        new = dict.fromkeys(each for each in sentence if isinstance(each, tuple))
        names = {
            entity: f"@{number}" for number, entity in enumerate(dict.fromkeys([*known, *new]))
        }
        for answer in new:
            if answer in counts and len(names) <= MOST_ENTITIES:
                question = ("@x" if each == answer else names.get(each, each) for each in sentence)
                text = " ".join(names.get(each, each) for each in passage)
                yield " ".join(question), text, names[answer]
        before += sentence


def frequent_entity(question: str, passage: str) -> str:
    """Return the passage's most frequent entity that the question lacks; the last of equals."""
    counts = Counter(word for word in reversed(passage.split()) if word[0] == "@")
    names = [name for name, _ in counts.most_common()]
    return next((name for name in names if name not in question.split()), names[0])


# Trees: the Penn Treebank's sample.

PUNCTUATION = {",", ":", "``", "''", "."}


def read_trees(folder: Path) -> Parts:
    """Return trees as (label, child, ...) and (tag, word), a tenth of the files for each of two.

    Empty elements and functions of phrases (`-SBJ`) are left out.
    """
    from nltk import Tree

    root = existing(folder / "treebank" / "combined", 'it is of nltk.download("treebank")')
    files = sorted(root.glob("wsj_*.mrg"))
    if len(files) < 3:
        raise BenchmarkError(f"{root} needs 3 files wsj_NNNN.mrg or more. Received: {len(files)}")
    texts = [f"(all {path.read_text(encoding='utf-8')})" for path in files]
    trees = [[_plain(tree) for tree in Tree.fromstring(text)] for text in texts]
    trees = [[tree for tree in file if tree] for file in trees]
    tenth = max(1, len(files) // 10)
    parts = trees[: -2 * tenth], trees[-2 * tenth : -tenth], trees[-tenth:]
    return {split: sum(part, []) for split, part in zip(SPLITS, parts, strict=True)}


def _plain(tree):
    """Return an NLTK tree as tuples, without empty elements; None where nothing is left."""
    if tree.height() == 2:
        return None if tree.label() == "-NONE-" else (tree.label(), tree[0])
    children = [child for child in map(_plain, tree) if child]
    label = re.split("[-=|]", tree.label())[0]
    if not label and len(children) == 1:  # the treebank's bracket around a sentence
        return children[0]
    return (label or "S", *children) if children else None


def leaves(tree) -> list[tuple[str, str]]:
    """Return the (tag, word) of each word."""
    if isinstance(tree[1], str):
        return [tree]
    return [leaf for child in tree[1:] for leaf in leaves(child)]


def bracketed(tree) -> str:
    """Write a tree as words for a translator: tags, `NP_` and `_NP`, which no tokenizer cuts."""
    label, *children = tree
    if isinstance(children[0], str):
        return _whole(label)
    return " ".join([f"{label}_", *map(bracketed, children), f"_{label}"])


def _whole(word: str) -> str:
    """Return a word without its punctuation, of which a tokenizer makes words."""
    return re.sub(r"\W+", "", word) or word[0]


def signature(word: str) -> str:
    """Return what is left of a rare word: digits, a capital, and its last two letters."""
    digit = "0" if any(map(str.isdigit, word)) else ""
    ending = word[-2:].lower() if word[-2:].isalpha() and len(word) > 3 else ""
    return f"{digit}{'A' if word[0].isupper() else 'a'}_{ending}"


def translations(parts: Parts) -> Parts:
    """Return `(words, brackets)` of trees; words that occur once in training are signatures."""
    counts = Counter(word for tree in parts["train"] for _, word in leaves(tree))

    def row(tree):
        words = (word for _, word in leaves(tree))
        words = [_whole(word) if counts[word] > 1 else signature(word) for word in words]
        return " ".join(words), bracketed(tree)

    return {split: [row(tree) for tree in trees] for split, trees in parts.items()}


def brackets(text: str) -> tuple[list[Span], bool, int]:
    """Return the phrases of a written tree, whether its brackets match, and its number of words.

    A closing bracket that closes nothing is ignored, and those that are missing are added.
    """
    found, stack, words, matches = [], [], 0, True
    for token in text.split():
        if token.endswith("_"):
            stack.append((token[:-1], words))
        elif not token.startswith("_"):
            words += 1
        elif any(label == token[1:] for label, _ in stack):
            while True:
                label, start = stack.pop()
                found.append((start, words, label))
                if label == token[1:]:
                    break
                matches = False
        else:
            matches = False
    found += [(start, words, label) for label, start in stack]
    return found, matches and not stack and bool(found), words


def bracket_scores(trees: Sequence, texts: Sequence[str]) -> tuple[float, float]:
    """Return labelled bracket F1, and the share of well-formed outputs, in percent.

    As EVALB counts: without tags and without punctuation. Well-formed is an output whose brackets
    match and which has as many tags as the sentence has words.
    """
    counts, formed = [0, 0, 0], 0
    for tree, text in zip(trees, texts, strict=True):
        tags = [tag for tag, _ in leaves(tree)]

        def at(place, tags=tags):  # how many words that are no punctuation stand before it
            return sum(tag not in PUNCTUATION for tag in tags[:place])

        found, matches, words = brackets(text)
        formed += matches and words == len(tags)
        wanted, given = (
            Counter(
                (at(start), at(end), label) for start, end, label in phrases if at(start) < at(end)
            )
            for phrases in (brackets(bracketed(tree))[0], found)
        )
        right = (wanted & given).total()
        counts = [
            a + b for a, b in zip(counts, (right, given.total(), wanted.total()), strict=True)
        ]
    return _f1(*counts), 100 * formed / len(trees)


def right_branching(tree) -> str:
    """Return the tree in which each phrase is a word and the rest: an S of VPs, the period last."""
    tags = [_whole(tag) for tag, _ in leaves(tree)]
    inner, last = (tags[:-1], tags[-1:]) if len(tags) > 1 and tags[-1] == "." else (tags, [])
    text = inner[-1]
    for tag in reversed(inner[:-1]):
        text = f"VP_ {tag} {text} _VP"
    return " ".join(["S_", text, *last, "_S"])
