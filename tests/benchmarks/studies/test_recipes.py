"""The recipes on real data: what is made of each corpus, how it is scored, and the command."""

import argparse
import json

import pytest

from benchmarks.__main__ import main
from benchmarks.common.errors import BenchmarkError
from benchmarks.studies import recipes
from benchmarks.studies import recipes_data as data
from benchmarks.studies.recipes_tagger import shape
from keras_attention.applications.command.cli import load_task, read_config
from tests.applications.commands import call_command

SEMEVAL = (
    "{0}\t\"So, see, tea's <e1>leaf</e1> isn't in an <e2>old pot</e2>, it is {1}.\"\r\n"
    "{2}\r\nComment: none\r\n\r\n"
)
NEWS = [
    [
        ("Oslo", "B-LOC"),
        (",", "O"),
        ("2", "O"),
        ("may", "O"),
        ("(", "O"),
        ("EFE", "B-ORG"),
        (")", "O"),
    ],
    [
        ("Ana", "B-PER"),
        ("Ruiz", "I-PER"),
        ("llama", "O"),
        ("a", "O"),
        ("Oslo", "B-LOC"),
        (".", "O"),
    ],
    [("Ana", "B-PER"), ("Ruiz", "I-PER"), ("ama", "O"), ("a", "O"), ("Lima", "B-LOC"), (".", "O")],
    [("Ana", "B-PER"), ("Ruiz", "I-PER"), ("gana", "O")],
]
TREE = """
( (S
    (NP-SBJ-1 (DT the) (NN dog) )
    (VP (VBD ran)
      (S (NP-SBJ (-NONE- *-1) )))
    (. .) ))
"""


@pytest.fixture
def corpora(tmp_path):
    """Tiny corpora in the formats of the real ones."""
    folder = tmp_path / "corpora"
    (folder / "conll2002").mkdir(parents=True)
    relations = ["Other", "Cause-Effect(e1,e2)", "Cause-Effect(e2,e1)"]
    text = "".join(SEMEVAL.format(n, f"w{n % 3}", relations[n % 3]) for n in range(30))
    for name in ("TRAIN_FILE.TXT", "TEST_FILE_FULL.TXT"):
        (folder / name).write_bytes(text.encode())
    for name in ("esp.train", "esp.testa", "esp.testb"):
        lines = ["\n".join(f"{word} X {tag}" for word, tag in sentence) for sentence in NEWS * 4]
        (folder / "conll2002" / name).write_text("\n\n".join(lines) + "\n\n")
    (folder / "treebank" / "combined").mkdir(parents=True)
    for number in range(10):
        (folder / "treebank" / "combined" / f"wsj_{number:04}.mrg").write_text(TREE * 2)
    return folder


def test_relations_are_read_with_marks(corpora):
    parts = data.read_relations(corpora)
    assert [len(parts[split]) for split in data.SPLITS] == [27, 3, 30]
    marked = "see , tea 's [e1 leaf e1] is n't in an [e2 old pot e2] , it is w0"
    assert parts["dev"][0] == (marked, "Other")


def test_the_score_of_relations_is_the_official_one():
    """Counted by hand: of A, 1 right of 3 answers and 3 wanted; of B, 1 of 2 and 1."""
    gold = ["A(e1,e2)", "A(e1,e2)", "A(e2,e1)", "B(e1,e2)", "Other", "Other"]
    found = ["A(e1,e2)", "A(e2,e1)", "Other", "B(e1,e2)", "B(e1,e2)", "A(e1,e2)"]
    assert data.relation_f1(gold, found) == pytest.approx((100 / 3 + 200 / 3) / 2)
    assert data.relation_f1(gold, gold) == 100
    assert data.relation_f1(gold, ["Other"] * 6) == 0


def test_phrases_and_their_f1():
    tags = ["B-A", "I-A", "O", "I-A", "B-A", "I-B", "I-B"]
    assert data.spans(tags) == [(0, 2, "A"), (3, 4, "A"), (4, 5, "A"), (5, 7, "B")]
    # Two of three answers are right, of four wanted.
    found = ["B-A", "I-A", "O", "O", "B-A", "I-A", "I-A"]
    assert data.spans(found) == [(0, 2, "A"), (4, 7, "A")]
    assert data.phrase_f1([tags, ["B-B"]], [found, ["B-B"]]) == pytest.approx(200 * 2 / (3 + 5))
    assert data.phrase_f1([["O"]], [["O"]]) == 0


def test_known_names_are_tagged_the_longest_first(corpora):
    train = data.read_tagged(corpora)["train"]
    assert train[1] == (["Ana", "Ruiz", "llama", "a", "Oslo", "."], [tag for _, tag in NEWS[1]])
    words = ["Oslo", "ama", "a", "Ana", "Ruiz", "Ruiz"]
    found = data.tags_of_known_names(train, [(words, [])])
    assert found == [["B-LOC", "O", "O", "B-PER", "I-PER", "O"]]
    train = [(["may", "EFE"], ["O", "B-ORG"]), (["may"], ["B-PER"]), (["may"], ["O"])]
    assert data.tags_of_known_names(train, [(["may", "EFE"], [])]) == [["O", "B-ORG"]]


def test_questions_are_of_entities_that_the_article_repeats(corpora):
    parts = data.read_questions(corpora)
    passage = "@1 , 2 may ( @0 )"
    assert parts["test"][:3] == [
        ("@2 llama a @x .", passage, "@1"),
        ("@x ama a @3 .", "@0 , 2 may ( @2 ) @1 llama a @0 .", "@1"),
        ("@x gana", "@1 , 2 may ( @3 ) @0 llama a @1 . @0 ama a @2 .", "@0"),
    ]
    assert [len(parts[split]) for split in data.SPLITS] == [12, 12, 12]
    assert len(data.articles(data.read_tagged(corpora)["train"])) == 4


def test_the_most_frequent_entity_that_the_question_lacks():
    assert data.frequent_entity("@x saw @1 .", "@1 saw @1 and @2 , @3 and @2") == "@2"
    assert data.frequent_entity("@x .", "@1 saw @2") == "@2"
    assert data.frequent_entity("@x saw @1", "@1 .") == "@1"


def test_trees_lose_empty_elements_and_functions(corpora):
    parts = data.read_trees(corpora)
    assert [len(parts[split]) for split in data.SPLITS] == [16, 2, 2]
    tree = ("S", ("NP", ("DT", "the"), ("NN", "dog")), ("VP", ("VBD", "ran")), (".", "."))
    assert parts["test"][0] == tree
    written = "S_ NP_ DT NN _NP VP_ VBD _VP . _S"
    parts["test"] = [("S", ("NN", "Dogs"), ("CD", "1,200"), ("VBD", "barked"))]
    rows = data.translations(parts)
    assert rows["train"][0] == ("the dog ran .", written)
    assert rows["test"] == [("A_gs 0a_ a_ed", "S_ NN CD VBD _S")]


def test_bracket_f1_as_evalb_counts():
    """Five wanted: S, NP, VP, PP, NP; the comma and the period are no words."""
    phrase = ("PP", ("IN", "c"), ("NP", ("PRP$", "d")))
    tree = ("S", ("NP", ("NN", "a")), (",", ","), ("VP", ("VB", "b")), phrase, (".", "."))
    gold = data.bracketed(tree)
    assert gold == "S_ NP_ NN _NP , VP_ VB _VP PP_ IN NP_ PRP _NP _PP . _S"
    assert data.bracket_scores([tree], [gold]) == (100, 100)
    moved = "S_ NP_ NN , _NP VP_ VB _VP PP_ IN NN _PP . _S"  # a comma moves, an NP is missing
    assert data.bracket_scores([tree], [moved]) == (pytest.approx(200 * 4 / (4 + 5)), 100)
    cut = "S_ NP_ NN _NP , VP_ VB _VP PP_ IN NN"  # repaired, and no well-formed output
    assert data.bracket_scores([tree], [cut]) == (pytest.approx(200 * 4 / (4 + 5)), 0)
    assert data.bracket_scores([tree] * 2, [gold, ""]) == (pytest.approx(200 * 5 / 15), 50)


def test_brackets_are_repaired():
    assert data.brackets("S_ a _S") == ([(0, 1, "S")], True, 1)
    assert data.brackets("S_ NP_ a _S") == ([(0, 1, "NP"), (0, 1, "S")], False, 1)
    assert data.brackets("S_ a _NP _S") == ([(0, 1, "S")], False, 1)
    assert data.brackets("a _S S_") == ([(1, 1, "S")], False, 1)
    assert data.brackets("a b") == ([], False, 2)


def test_right_branching():
    tree = ("S", ("NP", ("DT", "the"), ("NN", "dog")), ("VP", ("VBD", "ran")), (".", "."))
    assert data.right_branching(tree) == "S_ VP_ DT VP_ NN VBD _VP _VP . _S"
    assert data.right_branching(("S", ("UH", "no"))) == "S_ UH _S"


def test_the_shape_of_a_word():
    assert [shape(word) for word in ("Madrid", "EFE", "a1-22", "")] == ["Aa", "A", "a0-0", ""]


@pytest.mark.parametrize("name", [name for name in recipes.RECIPES if name != "tagging"])
def test_the_command_accepts_the_settings_of_each_recipe(name, tmp_path):
    recipe = recipes.RECIPES[name]
    options = argparse.Namespace(quick=False, vectors=tmp_path / "glove.txt")
    files = {split: tmp_path / f"{split}.tsv" for split in data.SPLITS}
    settings = recipes.overrides(recipe, 3, files, options)
    config = read_config(load_task(recipe.application), None, settings)
    assert config.training.seed == 3 and config.data.train == str(files["train"])
    assert ("--vectors.file" in " ".join(settings)) == recipe.vectors


@pytest.mark.slow
@pytest.mark.parametrize("name", ["relations", "parsing", "reading", "tagging"])
def test_each_recipe_trains_and_its_figures_are_kept(name, corpora, tmp_path, capsys, monkeypatch):
    def in_this_process(*words):
        done = call_command(capsys, *words)
        assert done.status == 0, done.err
        return done.out

    monkeypatch.setattr(recipes, "command", in_this_process)
    arguments = ["--folder", str(corpora), "--only", name, "--seeds", "1", "--quick"]
    arguments += ["--output", str(tmp_path / "runs")]
    assert main(["recipes", *arguments]) == 0
    out = capsys.readouterr().out.splitlines()
    kept = tmp_path / "runs" / f"{name}-1-test.json"
    figures = json.loads(kept.read_text())
    row = next(line for line in out if line.startswith(f"| {recipes.RECIPES[name].title} |"))
    assert recipes.RECIPES[name].published in row and recipes.RECIPES[name].simple in row
    assert out[-1].startswith("commit ") and "Keras" in out[-1]
    metric = next(iter(figures["figures"]))
    kept.write_text(json.dumps({**figures, "figures": {metric: 12.3}}))
    assert main(["recipes", *arguments, "--folder", "absent"]) == 0
    assert f"| {metric} | 1 | 12.3 | 12.3-12.3 |" in capsys.readouterr().out
    kept.unlink()  # the run itself is there, and gives the same again
    assert main(["recipes", *arguments]) == 0
    assert json.loads(kept.read_text())["figures"] == figures["figures"]


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("relations", "TRAIN_FILE.TXT is missing: it is of SemEval-2010 task 8"),
        ("reading", 'esp.train is missing: it is of nltk.download("conll2002")'),
        ("parsing", 'combined is missing: it is of nltk.download("treebank")'),
        ("tagging", 'esp.train is missing: it is of nltk.download("conll2002")'),
    ],
)
def test_a_missing_corpus_ends_with_one_line(name, missing, tmp_path, capsys):
    arguments = ["--folder", str(tmp_path), "--only", name, "--output", str(tmp_path / "runs")]
    assert main(["recipes", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and missing in line


def test_files_that_hold_something_else_are_refused(corpora):
    (corpora / "TRAIN_FILE.TXT").write_text("text,label\n")
    (corpora / "conll2002" / "esp.testa").write_text("")
    with pytest.raises(BenchmarkError, match="TRAIN_FILE.TXT has no"):
        data.read_relations(corpora)
    with pytest.raises(BenchmarkError, match="esp.testa has no"):
        data.read_tagged(corpora)
    for path in sorted((corpora / "treebank" / "combined").iterdir())[2:]:
        path.unlink()
    with pytest.raises(BenchmarkError, match="3 files .* or more. Received: 2"):
        data.read_trees(corpora)
