"""Models of transformers itself, run beside ours: logits and words, in every form of weights.

pip install transformers torch
python -m pytest tests/applications/translation/pretrained/test_transformers.py -m slow
"""

import random

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
transformers = pytest.importorskip("transformers", reason="needs transformers")

from keras_attention.applications.text import START_ID  # noqa: E402
from keras_attention.applications.translation import Translator  # noqa: E402
from tests.applications.text.random_text import SENTENCES  # noqa: E402
from tests.applications.translation.pretrained.hugging_face_files import (  # noqa: E402
    SEPARATE,
    safetensors_of,
    write_folder,
    write_h5,
)
from tests.applications.translation.pretrained.test_hugging_face import ids_of, to_ours  # noqa: E402

pytestmark = pytest.mark.slow

SMALL = {"max_position_embeddings": 512}
MIDDLE = SMALL | {"d_model": 256, "encoder_layers": 6, "decoder_layers": 6}
MIDDLE |= {f"{side}_attention_heads": 8 for side in ("encoder", "decoder")}
MIDDLE |= {f"{side}_ffn_dim": 1024 for side in ("encoder", "decoder")}
CASES = {"small": SMALL, "middle": MIDDLE, "separate": SMALL | SEPARATE}
INPUTS = 200
TOLERANCE = 1e-5


def made_texts():
    """Sentences of random words, some with a tag before them."""
    words = sorted({word for text in SENTENCES for word in text.split()})
    draw = random.Random(11)
    texts = [" ".join(draw.choices(words, k=draw.randrange(1, 12))) for _ in range(INPUTS)]
    return [f">>fra<< {text}" if number % 5 == 0 else text for number, text in enumerate(texts)]


@pytest.fixture(scope="module", params=CASES)
def pair(request, tmp_path_factory):
    """A model of transformers and ours, of the same folder."""
    folder = tmp_path_factory.mktemp("transformers") / "opus"
    weights, config, words = write_folder(folder, CASES[request.param])
    # So that attention is not all on one word, whatever the width.
    scale = (12 / config["d_model"]) ** 0.5
    weights = {name: x * scale if x.ndim == 2 else x for name, x in weights.items()}
    (folder / "model.safetensors").write_bytes(safetensors_of(weights))
    theirs = transformers.MarianMTModel.from_pretrained(folder).eval()
    files = [str(folder / each) for each in ("source.spm", "target.spm", "vocab.json")]
    own = {}
    if (folder / "target_vocab.json").is_file():
        own = {"separate_vocabs": True, "target_vocab_file": str(folder / "target_vocab.json")}
    tokenizer = transformers.MarianTokenizer(*files, **own)
    return theirs, tokenizer, Translator.from_preset(folder), config, words, folder


def generated(pair, **options):
    """The ids that transformers writes, as ours."""
    theirs, tokenizer, _, config, words, _ = pair
    start = config["decoder_start_token_id"]
    options = {"max_new_tokens": 12, "bad_words_ids": [[start]], "do_sample": False} | options
    found = []
    texts = made_texts()
    for first in range(0, len(texts), 50):
        batch = tokenizer(texts[first : first + 50], return_tensors="pt", padding=True)
        with torch.no_grad():
            rows = theirs.generate(**batch, forced_eos_token_id=None, **options)
        found += ids_of(rows.tolist(), words["target"])
    return found


def test_greedy_words(pair):
    wanted = generated(pair, num_beams=1)
    found = pair[2].translate(made_texts(), beam_size=1, max_length=12)
    assert [list(each.ids) for each in found] == wanted


def test_words_of_a_beam(pair):
    """Scores are sums of log-probabilities, without a penalty for their lengths."""
    options = {"num_beams": 4, "length_penalty": 0.0, "early_stopping": False}
    wanted = generated(pair, renormalize_logits=True, **options)
    found = pair[2].translate(made_texts(), beam_size=4, length_penalty=0.0, max_length=12)
    assert [list(each.ids) for each in found] == wanted


@pytest.mark.parametrize("form", ["model.safetensors", "pytorch_model.bin", "tf_model.h5"])
def test_logits_of_every_form(pair, form, tmp_path):
    """Of what transformers itself writes, but for its form of TensorFlow, which it gave up."""
    theirs, tokenizer, _, config, words, folder = pair
    for path in folder.iterdir():
        if path.name != "model.safetensors":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    if form == "model.safetensors":
        theirs.save_pretrained(tmp_path)
        assert (tmp_path / form).is_file()
    elif form == "pytorch_model.bin":
        torch.save(theirs.state_dict(), tmp_path / form)
    else:
        names = {"model.shared.weight", "final_logits_bias", "lm_head.weight"}
        ties = config.get("share_encoder_decoder_embeddings", True)
        arrays = {
            name: each.numpy()
            for name, each in theirs.state_dict().items()
            if "positions" not in name and (not ties or "embed_tokens" not in name)
        }
        arrays = {name: x for name, x in arrays.items() if name in names or "." in name}
        if config.get("tie_word_embeddings", True):
            arrays.pop("lm_head.weight", None)
        write_h5(tmp_path / form, arrays)
    ours = Translator.from_preset(tmp_path)
    batch = tokenizer(made_texts()[:20], return_tensors="pt", padding=True)
    draw = np.random.default_rng(2)
    written = draw.integers(1, len(words["target"]) - 1, (20, 9))
    start = np.full((20, 1), config["decoder_start_token_id"])
    with torch.no_grad():
        read = torch.tensor(np.concatenate([start, written], axis=1))
        wanted = theirs(**batch, decoder_input_ids=read).logits.numpy()
    source = ours.preprocessor(made_texts()[:20])["source"]
    target = [[START_ID, *to_ours(row, words["target"])] for row in written.tolist()]
    logits = ours.backbone({"source": source, "target": np.array(target)})
    own = to_ours(range(len(words["target"])), words["target"])
    logits = np.asarray(logits)[..., own]
    # Padding, the last, is never written: its bias is ours.
    difference = np.abs(logits - wanted)[..., :-1].max()
    assert difference < TOLERANCE * max(1, np.abs(wanted).max()), difference
