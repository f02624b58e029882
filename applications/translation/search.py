"""A network and the searches of `keras_attention.decoding`, put together: ids in, ids out."""

from collections.abc import Iterator

from keras import ops

from keras_attention.decoding import DecodingResult, SearchOptions, sentence_seeds
from keras_attention.decoding import search as search_by_options
from keras_attention.losses import masked_sparse_categorical_crossentropy

from ..base.network import without_unwritable
from ..errors import shown
from ..text import END_ID, PAD_ID, START_ID
from .networks.base import TranslationModel
from .shortlist import Shortlist

# Tokens that a state which grows has room for at first; the search makes more.
FIRST_ROOM = 8


def search(
    model: TranslationModel,
    source,
    options: SearchOptions,
    seed=None,
    attention: bool = True,
    shortlist=None,
    room: int | None = None,
    prefix=None,
) -> DecodingResult:
    """Translate a batch of ids `(B, S)`, padded with 0, at least one of each.

    `seed` is what `sentence_seeds` takes, in place of the options' own, where tokens are drawn: the
    samples of a sentence depend on it and on the sentence's ids alone. `attention` says whether the
    attention history is wanted. Translations begin with the ids `prefix` `(B, P)`, padded behind
    with 0. `shortlist` holds the ids `(n,)` of the words that may be written, of a known number,
    the special tokens first, perhaps padded behind with 0. With `room` for so many steps no tensor
    grows or shrinks, and scores are NaN where they are not enough. Padding and the start token are
    never among the tokens found, and have no part in the probabilities.
    """
    if options.coverage_penalty and not model.has_attention:
        raise ValueError(
            "A coverage penalty needs a network with attention. Received: "
            f"coverage_penalty={options.coverage_penalty} with {type(model).__name__}"
        )
    mask = ops.not_equal(source, PAD_ID)
    keeps_attention = model.has_attention and (attention or options.uses_coverage)

    def kept(state):  # what is not wanted is then not computed either
        wanted = keeps_attention or "attention_scores" not in state
        return state if wanted else {k: state[k] for k in state if k != "attention_scores"}

    chosen = {} if shortlist is None else {"words": model.output_of(shortlist)}
    if shortlist is not None and prefix is not None:  # as numbers of the list, whose first is 0
        is_word = ops.equal(ops.expand_dims(prefix, -1), shortlist)
        prefix = ops.cast(ops.argmax(ops.cast(is_word, "int32"), axis=-1), "int32")
    if options.sample:
        seed = sentence_seeds(options.seed if seed is None else seed, source, mask)

    def step(tokens, state, index):
        if shortlist is not None:  # the search counts the words of the list
            tokens = ops.take(shortlist, tokens)
        logits, state = model.step(tokens, state, index, **chosen)
        logits = without_unwritable(logits)
        if shortlist is not None:  # a list may be filled up with padding
            logits = ops.where(ops.equal(shortlist, PAD_ID), float("-inf"), logits)
        return logits, kept(state)

    found = search_by_options(
        step,
        kept(model.start(source, max_length=room or FIRST_ROOM)),
        options,
        start_id=START_ID,
        end_id=END_ID,
        pad_id=PAD_ID,
        lengths=ops.sum(ops.cast(mask, "int32"), axis=-1),
        longest=options.longest(source.shape[1]),
        room=room,
        attention_key="attention_scores" if keeps_attention else None,
        attention_mask=mask,
        constant_keys=("memory",),
        sentence_keys=model.sentence_keys,
        growing_axes=model.growing_axes,
        shrink_batch=room is None,
        seed=seed,
        prefix=prefix,
    )
    if shortlist is None:
        return found
    return found._replace(tokens=ops.take(shortlist, found.tokens))


def force(model: TranslationModel, source, target, labels, attention: bool = True):
    """Make the network write given translations: labels `(B, T)` after the target's words before.

    Return the negative log-probability of each label, 0 of padding, and the attention `(B, T, S)`,
    where it is wanted and there is one; probabilities are those of tokens that can be written.
    """
    scores = None
    if attention:
        logits, scores = model.score(source, target)
    else:
        logits = model({"source": source, "target": target}, training=False)
    return masked_sparse_categorical_crossentropy(labels, without_unwritable(logits)), scores


def batches_of(rows, lengths, size) -> Iterator[list[int]]:
    """Yield rows in batches of like lengths, the longest first."""
    ordered = sorted(rows, key=lambda row: -lengths[row])
    for first in range(0, len(ordered), size):
        yield ordered[first : first + size]


def check_engine(engine, compute_type, shortlist, preprocessor) -> None:
    """Refuse an engine, its compute type and a shortlist that do not go together."""
    if engine is None and compute_type is not None:
        raise ValueError(
            f"`compute_type` is an engine's: give `engine` too. Received: {compute_type!r}"
        )
    if shortlist is not None:
        if not isinstance(shortlist, Shortlist):
            raise ValueError(f"`shortlist` should be a Shortlist. Received: {shown(shortlist)}")
        if engine == "ctranslate2":
            raise ValueError(
                "The engine ctranslate2 takes no shortlist: leave `engine` or `shortlist` out. "
                f"Received: engine={engine!r}"
            )
        shortlist.check_fits(preprocessor)
