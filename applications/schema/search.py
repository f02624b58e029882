"""The settings of a search, which are the fields of `keras_attention.decoding.SearchOptions`."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from .keys import Section, key

if TYPE_CHECKING:
    from keras_attention.decoding import SearchOptions


@dataclass(frozen=True, kw_only=True)
class SearchConfig(Section):
    """How to search for an output."""

    section = "decoding"

    beam_size: int = key(
        5,
        "hypotheses kept at each step; 1 is greedy search, which applies no penalty. Ignored when "
        "tokens are sampled",
        common=True,
    )
    n_best: int = key(
        1,
        "hypotheses to return of each sentence, at most `beam_size`; when tokens are sampled, the "
        "number of independent samples, without that bound",
    )
    length_penalty: float = key(
        1.0,
        "alpha of GNMT's length penalty; 0 for none. Larger values favour longer hypotheses",
    )
    coverage_penalty: float = key(
        0.0,
        "beta of GNMT's coverage penalty, which favours hypotheses that attend to the whole "
        "source; 0 for none. It needs attention",
    )
    max_length: int = key(
        100, "most tokens, the end counted; a hypothesis that has as many may lack its end"
    )
    max_length_ratio: float | None = key(
        3.0,
        "most tokens as a multiple of the source's tokens, with ten to spare, where that is less "
        "than `max_length`; null for no such limit",
    )
    min_length: int = key(0, "fewest tokens, the end not counted")
    no_repeat_ngram: int = key(0, "never write the same n-gram of this length twice; 0 allows it")
    sample: bool = key(False, "draw tokens at random in place of searching for the best")
    temperature: float = key(
        1.0, "of the samples; below 1 sharpens the distribution, above 1 flattens it"
    )
    top_k: int = key(0, "sample from this many of the likeliest tokens; 0 for all")
    top_p: float = key(
        1.0, "sample from the likeliest tokens that make up this probability; 1 for all"
    )
    seed: int | None = key(
        None,
        "of the samples; the same seed draws the same samples of a text, whatever else is "
        "searched, null draws anew at each call",
    )
    batch_size: int = key(64, "sentences searched together")
    streams: int | None = key(
        None,
        "batches that are searched at once, a thread each; null for one on each core, eight at "
        "most, and one on a GPU. Results do not depend on it",
    )

    def check(self) -> None:
        self.search()

    def search(self) -> "SearchOptions":
        """Return the options of the search, which check themselves."""
        from keras_attention.decoding import SearchOptions

        return SearchOptions(
            **{each.name: getattr(self, each.name) for each in fields(SearchConfig)}
        )
