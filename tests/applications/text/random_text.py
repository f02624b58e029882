"""Text that no one would write, to find where two implementations part."""

import random

from sentencepiece import sentencepiece_model_pb2

from keras_attention.applications.text import END_ID, UNK_ID, SentencePieceTokenizer

ODD_LINES = [
    "",
    " ",
    "\t \u00a0\u3000",
    "\x00a\x01\x02b\x7f",
    'don\'t  stop… (ever) "now"?!',
    "İstanbul Straße GROẞ ΟΔΟΣ ﬁ Ǆ",
    "नमस्ते 日本語 עברית می‌خواهم",
    "<s> </s> <pad> <unk> a<s>b",
    "\uffed a\uffedb \uffed,\uffed",
    "▁ ▁a a▁",
    "a\u2028b\u0085c\nd\re",
    "e\u0301 \u0301 👩‍👩‍👧 ２３ x_y _",
    "ppp aaaa aaabbb",
]


def random_lines(number: int, seed: int) -> list[str]:
    """Return lines of characters from all of Unicode, those of short alphabets more often."""
    draw = random.Random(seed)
    tops = (0x7F, 0x7F, 0x250, 0x3100, 0x110000)

    def character():
        code = draw.randrange(draw.choice(tops))
        return " " if 0xD800 <= code < 0xE000 or draw.random() < 0.15 else chr(code)

    wild = ["".join(character() for _ in range(draw.randrange(25))) for _ in range(number)]
    narrow = [
        "".join(draw.choice("abp. ") for _ in range(draw.randrange(25))) for _ in range(number)
    ]
    return ODD_LINES + wild + narrow


SENTENCES = [
    "Ein Mann steht auf einer Leiter und putzt ein Fenster.",
    "Zwei Männer stehen am Herd, und bereiten (wie immer) Essen zu!",
    "Ein kleines Mädchen klettert in ein Spielhaus aus Holz.",
    "Der Hund appp und die Katze aab, 3.5 Äpfel für 20 €.",
    "Mehrere Kinder spielen im Park; eines ruft: »Fang den Ball!«",
]


def foreign_model(lowercase: bool = False, size: int = 75) -> bytes:
    """Return a model of Marian's kind: `</s>` is 0, `<unk>` 1, and there are no others."""
    own = SentencePieceTokenizer.train(SENTENCES, size, lowercase=lowercase)
    proto = sentencepiece_model_pb2.ModelProto.FromString(own._content())
    pieces = list(proto.pieces)
    del proto.pieces[:]
    proto.pieces.extend([pieces[END_ID], pieces[UNK_ID], *pieces[4:]])
    spec = proto.trainer_spec
    spec.eos_id, spec.unk_id, spec.pad_id, spec.bos_id = 0, 1, -1, -1
    return proto.SerializeToString()
