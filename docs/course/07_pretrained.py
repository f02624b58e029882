# %% [markdown] lang="en"
# # 7. What pretrained models do with it
#
# BERT (Devlin et al. 2019) is the encoder of [lecture 6](06_transformer.md), trained on a task that needs no labels. Some words are hidden, and the
# model guesses them from both sides (the masked language model),
#
# $$
# p(w \mid \text{sentence}) = \mathrm{softmax}(E\, h_m), \qquad L = -\frac 1{|M|} \sum_{m \in M} \log p(w_m)
# $$
#
# $M$ are the hidden places, $h_m$ the encoder's output there, $E$ the table of embeddings. Then we **use** it: a small
# layer reads $h_{[CLS]}$, the output at a mark before the text, and gives a class. Two texts are packed into one
# sequence, `[CLS] a [SEP] b [SEP]`, so that every word of one attends to every word of the other.
#
# This page downloads nothing. We train a BERT of 44,000 weights on generated text in about a minute. It shows *why*
# pretraining helps. How much it helps on English, the papers tell.

# %% [markdown] lang="zh"
# # 7. 预训练模型拿它做什么
#
# BERT（Devlin 等 2019）就是[第 6 讲](06_transformer.zh.md)的编码器，训练任务不需要标注：盖住一些词，从左右两边猜出来（掩码语言模型），
#
# $$
# p(w \mid \text{sentence}) = \mathrm{softmax}(E\, h_m), \qquad L = -\frac 1{|M|} \sum_{m \in M} \log p(w_m)
# $$
#
# $M$ 是被盖住的位置，$h_m$ 是编码器在那里的输出，$E$ 是词嵌入表。然后是**使用**：在文本前面放一个标记 `[CLS]`，用一个小层读它的输出 $h_{[CLS]}$ 来分类；
# 两个文本则拼成一个序列 `[CLS] a [SEP] b [SEP]`，这样一个文本的每个词都能注意到另一个文本的每个词。
#
# 本页不下载任何东西。我们用自己生成的文本，花一分钟左右训练一个 4.4 万参数的 BERT。它能说明预训练**为什么**有用；在真实英语上有多大用处，请看论文，
# 不在本页。

# %%
from keras_attention_command import quiet

quiet()

import tempfile
from pathlib import Path

import keras
import keras_hub
import matplotlib.pyplot as plt
import numpy as np
from keras import layers, ops

from keras_attention import TransformerEncoder
from keras_attention.course import check
from keras_attention.losses import MaskedSparseCategoricalCrossentropy

keras.utils.set_random_seed(7)

# %% [markdown] lang="en"
# ## Text without labels
#
# The texts are reviews of a hotel. Twelve words praise and twelve blame, and nobody tells the model which. But guests who
# praise come back. Half of the reviews describe two things, in one mood.

# %% [markdown] lang="zh"
# ## 没有标注的文本
#
# 酒店评论。十二个词是夸，十二个词是批评，没有人告诉模型哪个是哪个；但夸的客人会再来。一半的评论说两件事，心情一致。

# %% tiny="TEXTS, EPOCHS, TUNING = 64, 1, 2"
TEXTS, EPOCHS, TUNING = 12_800, 14, 40
PRAISE = "tasty fresh clean quiet warm bright cosy lovely friendly quick cheap charming".split()
BLAME = "stale dirty noisy cold dark cramped ugly rude slow pricey broken greasy".split()
THINGS = "soup room bed staff bar view lift pool bread tea".split()
ENDS = {
    1: ["we will return", "we told our friends"],
    0: ["we left early", "we want our money back"],
}
random = np.random.default_rng(7)


def clause(mood):
    return f"the {random.choice(THINGS)} was {random.choice([BLAME, PRAISE][mood])}"


def review():
    mood = int(random.integers(2))
    first = clause(mood)
    return (
        f"{first} and {clause(mood)}"
        if random.random() < 0.5
        else f"{first} so {random.choice(ENDS[mood])}"
    )


texts = [review() for _ in range(TEXTS)]
MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*MARKS, *sorted({word for text in [*texts, *PRAISE, *BLAME] for word in text.split()})]
LENGTH = 22


def pack(*parts):
    """`[CLS] a [SEP] b [SEP]`, and which part each word is of."""
    words, segments = ["[CLS]"], [0]
    for number, part in enumerate(parts):
        words += [*part.split(), "[SEP]"]
        segments += [number] * (len(part.split()) + 1)
    rest = [0] * (LENGTH - len(words))
    return [WORDS.index(word) for word in words] + rest, segments + rest


def inputs(rows):
    ids, segments = np.array([pack(*row) for row in rows]).transpose(1, 0, 2)
    return {"token_ids": ids, "segment_ids": segments, "padding_mask": (ids != 0).astype("int32")}


print(texts[0], "/", texts[1])

# %% [markdown] lang="en"
# ## The backbone, and what is inside
#
# `BertBackbone` is KerasHub's and comes in any size. The command's `--model.backbone` takes the same class. Inside are the
# blocks of lecture 6, and our block gives the same numbers with its weights.

# %% [markdown] lang="zh"
# ## 骨干网络，里面是什么
#
# `BertBackbone` 来自 KerasHub，大小可以任选；命令行的 `--model.backbone` 用的就是这个类。里面是第 6 讲的块：把它的参数放进我们的层，得到同样的数字。


# %%
def new_backbone():
    return keras_hub.models.BertBackbone(
        vocabulary_size=len(WORDS), num_layers=2, num_heads=4, hidden_dim=48,
        intermediate_dim=96, dropout=0.0, max_sequence_length=LENGTH,
    )  # fmt: skip


backbone = new_backbone()
theirs = backbone.transformer_layers[0]
x = np.random.normal(size=(2, 7, 48)).astype("float32")
ours = TransformerEncoder(96, num_heads=4, activation=theirs.activation, layer_norm_epsilon=1e-12)
ours(x)
weights = theirs.get_weights()
ours.self_attention.set_weights(weights[:8])
ours.self_attention_norm.set_weights(weights[8:10])
ours.feed_forward_norm.set_weights(weights[10:12])
ours.feed_forward.set_weights(weights[12:])
np.testing.assert_allclose(ours(x), theirs(x), atol=1e-4)
print(f"{backbone.count_params():,} weights")

# %% [markdown] lang="en"
# ## Pretraining: guess the hidden words
#
# `[MASK]` replaces one word in four. The loss counts only the hidden places: elsewhere the target is 0, which the loss leaves
# out. Here it is by hand:

# %% [markdown] lang="zh"
# ## 预训练：猜被盖住的词
#
# 每四个词盖住一个，换成 `[MASK]`。损失只算被盖住的位置：其他位置的目标是 0，0 不计入。手写如下：

# %%
given = inputs([[text] for text in texts])
ids = given["token_ids"]
hidden = (random.random(ids.shape) < 0.25) & (ids >= len(MARKS))
target = np.where(hidden, ids, 0)
given["token_ids"] = np.where(hidden, WORDS.index("[MASK]"), ids)

states = backbone.output["sequence_output"]
masked_model = keras.Model(backbone.input, backbone.token_embedding(states, reverse=True))  # E h

few = {name: array[:8] for name, array in given.items()}
logits = masked_model(few)
log_p = ops.log_softmax(logits)
right = np.take_along_axis(np.asarray(log_p), target[:8][..., None], axis=-1)[..., 0]
by_hand = -right[hidden[:8]].mean()
np.testing.assert_allclose(
    MaskedSparseCategoricalCrossentropy()(target[:8], logits), by_hand, rtol=1e-4
)

masked_model.compile(keras.optimizers.Adam(2e-3), MaskedSparseCategoricalCrossentropy())
history = masked_model.fit(given, target, batch_size=128, epochs=EPOCHS, verbose=0)
print("loss:", *(f"{value:.2f}" for value in history.history["loss"]))


# %% [markdown] lang="en"
# What does the model guess? Training showed it both ends of this sentence, and never a label:

# %% [markdown] lang="zh"
# 它会猜什么？下面两种结尾训练时都见过，但从来没有标注：


# %%
def guesses(text):
    logits = np.asarray(masked_model(inputs([[text]])))[0]
    place = pack(text)[0].index(WORDS.index("[MASK]"))
    order = np.argsort(-logits[place])[:5]
    return [WORDS[word] for word in order]


for end in ("we will return", "we left early"):
    text = f"the soup was [MASK] so {end}"
    print(text, "->", guesses(text))

# %% [markdown] lang="en"
# ## Use 1: a class, from few labels
#
# Twelve labelled texts of the short form, "the tea was stale", with **three** praising and three blaming words. The test
# uses the other eighteen. A model from scratch cannot know them. The pretrained model has read all of them, and words
# with the same neighbours have moved together.

# %% [markdown] lang="zh"
# ## 用法一：少量标注做分类
#
# 十二个带标注的短句，如 “the tea was stale”，只用到**三个**夸的词和三个批评的词；测试用其余十八个。从零训练的模型不可能认识它们；预训练的模型在文本里都
# 见过：邻居相同的词，向量靠在了一起。


# %%
def labelled(words):
    rows = [(f"the {thing} was {word}",) for word in words for thing in THINGS[:2]]
    return rows, [word in PRAISE for word in words for _ in THINGS[:2]]


def classifier(trained, frozen=False):
    own = new_backbone()
    if trained:
        own.set_weights(backbone.get_weights())
    own.trainable = not frozen
    score = layers.Dense(1)(own.output["sequence_output"][:, 0])  # h at [CLS]
    model = keras.Model(own.input, score)
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2 if frozen else 1e-3), loss)
    return model


def accuracy(model, rows, labels):
    return np.mean((model.predict(inputs(rows), verbose=0)[:, 0] > 0) == np.array(labels))


shown, unseen = labelled(PRAISE[:3] + BLAME[:3]), labelled(PRAISE[3:] + BLAME[3:])
results = {}
for name, options in {
    "from scratch": {"trained": False},
    "pretrained, frozen": {"trained": True, "frozen": True},
    "pretrained, fine-tuned": {"trained": True},
}.items():
    model = classifier(**options)
    model.fit(
        inputs(shown[0]), np.array(shown[1], "float32"), epochs=TUNING, batch_size=12, verbose=0
    )
    results[name] = accuracy(model, *shown), accuracy(model, *unseen)
    print(f"{name:23} words seen {results[name][0]:.0%}, words not seen {results[name][1]:.0%}")

# %% [markdown] lang="en"
# > **Predict first.** Nobody told the model which words praise and which blame. Where will "charming" lie in its space of
# > words: beside "lovely", or anywhere? And how often will three labelled words of each kind be enough for the other eighteen?

# %% [markdown] lang="zh"
# > **先猜一猜。** 没有人告诉模型哪些词是夸、哪些词是批评。“charming” 在词向量空间里会在 “lovely” 旁边，还是随便在哪里？每种只标注三个词，对其余十八个词能答对多少？

# %% predict=true en="Left: the word vectors, by their two main directions; colours were never shown to the model. Right: accuracy on words that had no label." zh="左：词向量的前两个主方向；颜色从未给模型看过。右：没有标注过的词上的正确率。"
figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
chosen = PRAISE + BLAME
vectors = np.asarray(backbone.token_embedding.embeddings)[[WORDS.index(word) for word in chosen]]
vectors -= vectors.mean(axis=0)
flat = vectors @ np.linalg.svd(vectors)[2][:2].T
colours = ["#0072b2"] * 12 + ["#d55e00"] * 12
axes[0].scatter(*flat.T, c=colours, s=12)
for word, point, colour in zip(chosen, flat, colours, strict=True):
    axes[0].annotate(word, point, fontsize=7, color=colour)
axes[0].set_title("embeddings after pretraining", fontsize=10)
axes[1].barh(list(results), [after for _, after in results.values()], color="#3f51b5")
axes[1].axvline(0.5, color="0.5", linewidth=0.8)
axes[1].set(xlim=(0, 1), title="accuracy, words not seen")
plt.show()

# %% trained=true
assert results["pretrained, fine-tuned"][1] > results["from scratch"][1] + 0.2

# %% [markdown] lang="en"
# ## Use 2: pairs of texts
#
# Do two reviews agree? When both are packed into one sequence, words attend across the `[SEP]`. We have 120 labelled pairs:

# %% [markdown] lang="zh"
# ## 用法二：文本对
#
# 两条评论意见一致吗？拼成一个序列，词可以越过 `[SEP]` 互相注意。120 个带标注的对：

# %%
moods = random.integers(0, 2, (320, 2))
pairs = [(clause(a), clause(b)) for a, b in moods]
agree = moods[:, 0] == moods[:, 1]
train, test = slice(0, 120), slice(120, None)
for name, trained in (("from scratch", False), ("pretrained, fine-tuned", True)):
    model = classifier(trained)
    model.fit(
        inputs(pairs[train]),
        agree[train].astype("float32"),
        epochs=TUNING,
        batch_size=32,
        verbose=0,
    )
    print(f"{name:23} pairs not seen {accuracy(model, pairs[test], agree[test]):.0%}")

# %% [markdown] lang="en"
# ## Question: where are these attention weights?
#
# Every head of every block has a map of all words with all words, `layers x heads` in total. KerasHub's block does not
# return them by default, and ours does. Here the first block reads a pair: do words attend across the `[SEP]`?

# %% [markdown] lang="zh"
# ## 问：这些注意力权重在哪里？ {: #pretrained-weights }
#
# 在每个块、每个头里：共 `层数 x 头数` 张“所有词对所有词”的图。不要求时块不交出权重；我们的块可以交出来。下面是第一个块读一个文本对：词会越过 `[SEP]` 看吗？

# %% en="Self-attention of the four heads of the first block, after pretraining, on a packed pair." zh="预训练之后，第一个块的四个头在一个文本对上的自注意力。"
weights = theirs.get_weights()
ours.self_attention.set_weights(weights[:8])
pair = inputs([("the soup was tasty", "the room was dirty")])
count = int(pair["padding_mask"].sum())
token_ids, segment_ids = pair["token_ids"][:, :count], pair["segment_ids"][:, :count]
x = backbone.token_embedding(token_ids)
x = x + backbone.position_embedding(x) + backbone.segment_embedding(segment_ids)
x = backbone.embeddings_layer_norm(x)  # what the first block reads
_, heads = ours.self_attention(x, return_attention_scores=True)
names = [WORDS[word] for word in pair["token_ids"][0, :count]]
figure, axes = plt.subplots(1, 4, figsize=(12, 3.6), layout="constrained", sharey=True)
for number, axis in enumerate(axes):
    axis.imshow(heads[0, number], cmap="Blues", vmin=0)
    axis.set_title(f"head {number + 1}", fontsize=10)
    axis.set_xticks(range(count), names, rotation=90, fontsize=8)
axes[0].set_yticks(range(count), names, fontsize=8)
plt.show()

# %% [markdown] lang="en"
# ## The same with a real BERT
#
# The package's classifiers take any KerasHub backbone, by the name of a preset or from a folder. This writes ours to a
# folder, and `keras-attention train classification --model.architecture backbone --model.backbone FOLDER` reads it ([the
# tutorial](../tutorials/classify_more.md#a-pretrained-backbone)).

# %% [markdown] lang="zh"
# ## 换成真正的 BERT
#
# 本包的分类器接受任何 KerasHub 骨干网络：预设的名字（会下载），或一个文件夹。我们的模型可以这样写进文件夹；
# `keras-attention train classification --model.architecture backbone --model.backbone FOLDER` 会读它
# （[教程](../tutorials/classify_more.md#a-pretrained-backbone)）。

# %%
folder = Path(tempfile.mkdtemp()) / "hotel-bert"
backbone.save_to_preset(str(folder))
keras_hub.models.BertTokenizer(vocabulary=WORDS, lowercase=True).save_to_preset(str(folder))
again = keras_hub.models.Backbone.from_preset(str(folder))
first = {name: array[:3] for name, array in given.items()}
np.testing.assert_allclose(
    again(first)["pooled_output"], backbone(first)["pooled_output"], atol=1e-5
)
print(sorted(path.name for path in folder.iterdir()))

# %% [markdown] lang="en"
# ## Exercises
#
# **1.** Without segments, does BERT give another output for `a [SEP] b` than for `b [SEP] a`? What tells it the order:
# `"positions"`, `"segments"`, `"words"` or `"nothing"`?

# %% [markdown] lang="zh"
# ## 练习
#
# **1.** 如果不用片段编号，BERT 对 `a [SEP] b` 和 `b [SEP] a` 的输出不同吗？它从哪里知道次序：“位置”、“片段”、“词”还是“没有”？

# %% exercise=true
answer = ...  # your answer
check("7.1", answer)

# %% answer=true
one, two = (
    inputs([("the soup was tasty", "the room was dirty")]),
    inputs([("the room was dirty", "the soup was tasty")]),
)
outputs = [
    backbone({**each, "segment_ids": 0 * each["segment_ids"]})["pooled_output"]
    for each in (one, two)
]
assert not np.allclose(*outputs, atol=1e-4)  # different: from the position embeddings
assert check("7.1", "positions")

# %% [markdown] lang="en"
# **2.** More padding at the end must not change the result. Does it? Hand in how far `pooled_output` changes at most.

# %% [markdown] lang="zh"
# **2.** 末尾多一些填充不应改变结果。会改变吗？交 `pooled_output` 最多变化了多少。

# %% exercise=true
answer = ...  # your answer
check("7.2", answer)

# %% answer=true
shorter = {name: array[:, :-4] for name, array in one.items()}
change = backbone(one)["pooled_output"] - backbone(shorter)["pooled_output"]
assert check("7.2", np.max(np.abs(change)))  # no: the padding has weight 0

# %% [markdown] lang="en"
# **3.** What is the masked loss of a uniform guess over the 54 words of the vocabulary? Did ours begin there?

# %% [markdown] lang="zh"
# **3.** 若对词表的 54 个词均匀地猜，掩码损失是多少？我们的训练是从那里开始的吗？

# %% exercise=true
answer = ...  # your answer
check("7.3", answer)

# %% answer=true
uniform = np.log(len(WORDS))
assert abs(float(by_hand) - uniform) < 1.0  # about log(V): it knew nothing
assert history.history["loss"][-1] < uniform
assert check("7.3", uniform)

# %% [markdown] lang="en"
# **Source.** Devlin et al. 2019, "BERT: pre-training of deep bidirectional transformers for language understanding". The layers:
# [the blocks](../layers/transformer.md); the application: [Classify texts](../tutorials/classify.md).
# Back to [the course](index.md).

# %% [markdown] lang="zh"
# **出处**：Devlin et al. 2019, “BERT: pre-training of deep bidirectional transformers for language understanding”。层：
# [Transformer 块](../layers/transformer.zh.md)；应用：[文本分类](../tutorials/classify.md)。回到[课程首页](index.zh.md)。
