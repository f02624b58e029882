"""The ids that every tokenizer of the package reserves, whatever its kind."""

PAD_ID = 0
UNK_ID = 1
START_ID = 2
END_ID = 3

SPECIAL_TOKENS = ("<pad>", "<unk>", "<s>", "</s>")
"""How the special ids are shown; position is id. Text that spells one is ordinary text."""
