# %% [markdown] lang="en"
# # Old beside new: three tutorials
#
# Many people learned attention from one of three tutorials: TensorFlow's `nmt_with_attention`, Keras' English-to-Spanish
# Transformer, and the translation tutorial of TensorFlow Addons. This page writes the **pattern** of each anew in a few
# lines beside our version, on small data of its kind, and measures the fault of each pattern.

# %% [markdown] lang="zh"
# # 新旧对照：三个教程
#
# 很多人是从这三个教程学会注意力的：TensorFlow 的 `nmt_with_attention`、Keras 的英西翻译 Transformer、TensorFlow Addons 的翻译教程。这里把每一个的
# **写法**用几行代码重写一遍，放在我们的写法旁边，用同类的小数据运行。每种写法的问题都用测量说明，而不是争论。

# %%
from keras_attention_command import quiet

quiet()

import keras
import numpy as np
from keras import layers, ops

from keras_attention import (
    AttentionDecoder,
    BahdanauAttention,
    LuongAttention,
    PositionalEncoding,
    TransformerDecoder,
    TransformerEncoder,
)
from keras_attention.losses import (
    MaskedSparseCategoricalCrossentropy,
    masked_sparse_categorical_crossentropy,
)

keras.utils.set_random_seed(8)
random = np.random.default_rng(8)

# %% [markdown] lang="en"
# All three use the same data: "sentences" of 3 to 9 words, padded to 10 with zeros; the translation gives the words in
# reverse, in another vocabulary.

# %% [markdown] lang="zh"
# 三者共用的数据：3 到 9 个词的“句子”，用零填充到 10；译文是用另一套词表把词倒过来说。

# %% tiny="SENTENCES, EPOCHS = 64, 1"
SENTENCES, EPOCHS = 6400, 10
WORDS, LENGTH, UNITS, START, END = 23, 10, 48, 1, 2
lengths = random.integers(3, LENGTH, SENTENCES + 300)
source = np.zeros((len(lengths), LENGTH), int)
target = np.zeros_like(source)
for row, (length, words) in enumerate(
    zip(lengths, random.integers(3, WORDS, source.shape), strict=True)
):
    source[row, :length], target[row, :length] = words[:length], words[:length][::-1]
    source[row, length] = target[row, length] = END
before = np.pad(target, [(0, 0), (1, 0)], constant_values=START)[:, :-1]
train, test = slice(0, SENTENCES), slice(SENTENCES, None)


def accuracy(model):
    """The share of real words predicted right, given the right words before."""
    found = np.argmax(model.predict([source[test], before[test]], verbose=0), axis=-1)
    return np.mean((found == target[test])[target[test] != 0])


def fit(model):
    model.compile(keras.optimizers.Adam(3e-3), MaskedSparseCategoricalCrossentropy())
    model.fit(
        [source[train], before[train]], target[train], batch_size=64, epochs=EPOCHS, verbose=0
    )
    return accuracy(model)


# %% [markdown] lang="en"
# ## 1. `nmt_with_attention`
#
# It stopped running when Keras 3 came ([tensorflow/text #1267](https://github.com/tensorflow/text/issues/1267)). We run
# its pattern here: a GRU over the target, then one head of dot-product attention over its outputs, added and normalised.

# %% [markdown] lang="zh"
# ## 1. `nmt_with_attention`
#
# Keras 3 出来后它就跑不动了（[tensorflow/text #1267](https://github.com/tensorflow/text/issues/1267)）。它的写法（这里让它跑起来）：
# 目标端一个 GRU，然后对其输出做单头点积注意力，相加、归一化。


# %%
def inputs():
    read, written = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    states = layers.Bidirectional(layers.GRU(UNITS, return_sequences=True), merge_mode="sum")(
        layers.Embedding(WORDS, UNITS, mask_zero=True)(read)
    )
    return read, written, states, layers.Embedding(WORDS, UNITS)(written)


read, written, states, words = inputs()
own = layers.GRU(UNITS, return_sequences=True)(words)  # nothing of the source comes in
found = layers.MultiHeadAttention(num_heads=1, key_dim=UNITS)(own, states)
logits = layers.Dense(WORDS)(layers.LayerNormalization()(own + found))
old = keras.Model([read, written], logits)
recurrent = keras.Model([read, written], own)

read, written, states, words = inputs()
decoder = AttentionDecoder(
    layers.GRUCell(UNITS), BahdanauAttention(UNITS)
)  # the context enters the cell
new = keras.Model([read, written], layers.Dense(WORDS)(decoder(words, states)))

one, other = source[:1], source[1:2]
same = np.allclose(recurrent([one, before[:1]]), recurrent([other, before[:1]]))
print("the old decoder's states are the same for two different sources:", same)
assert same
print(
    f"words right: old {fit(old):.1%} ({old.count_params():,} weights), new {fit(new):.1%} ({new.count_params():,})"
)

# %% [markdown] lang="en"
# **What was wrong.** The tutorial calls it Bahdanau's attention, but it has no $v$, no tanh and no alignment before the
# step. The context is added *beside* the recurrent net and never enters it, so the decoder's state knows its written
# words, but not the source or the places it has read. Every query comes only from the earlier words. On sentences this
# short both models are right: the last word written is enough to find the next one. The fault shows when a word comes
# twice, and in [coverage](05_summaries.md).
#
# **What changes.** Embedding, encoder, loss and training stay. GRU, attention, addition and normalisation become one `AttentionDecoder`.
#
# ## 2. Keras' English-to-Spanish Transformer
#
# Until [keras-io #1997](https://github.com/keras-team/keras-io/pull/1997) the example swapped the two languages and
# computed padding masks that nothing used. Before that, it laid the target's mask over the source
# ([#1046](https://github.com/keras-team/keras-io/pull/1046)). Neither fault raises an error. Two tests would have found
# both.
#
# **More padding must not change a result.** Here are the pattern without masks, and ours:

# %% [markdown] lang="zh"
# **问题在哪。** 它被当作 Bahdanau 注意力来讲解，其实是另一种：没有 $v$，没有 tanh，也不是先对齐再走一步。上下文向量加在循环网络**旁边**，从不进入它；
# 所以解码器的状态只知道写过哪些词，对源句、对自己读过哪里一无所知。每个查询都只由前面的词得出。句子这么短，两者都能做对：只要看上一个写出的词就能找到下一个词，状态不必知道更多。旧写法缺的东西，要到同一个词出现两次时、
# 以及在[覆盖率](05_summaries.zh.md)里才显出来。
#
# **怎样改。** 词嵌入、编码器、损失和训练都不变。GRU、注意力、相加、归一化合成一个 `AttentionDecoder`。
#
# ## 2. Keras 的英西翻译 Transformer
#
# 在 [keras-io #1997](https://github.com/keras-team/keras-io/pull/1997) 之前，这个例子把两种语言的输入放反了，填充掩码算了却没有用上；更早的版本把目标端的
# 掩码盖在源端上（[#1046](https://github.com/keras-team/keras-io/pull/1046)）。两者都不报错。两个测试就能发现它们。
#
# **多一些填充不应改变结果。** 没有掩码的写法，与我们的写法：


# %%
def transformer(masked):
    def embed(ids):
        vectors = layers.Embedding(WORDS, UNITS, mask_zero=masked)(ids)
        return PositionalEncoding(scale=True)(vectors)

    read, written = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    memory = TransformerEncoder(2 * UNITS, num_heads=4)(embed(read))
    state = TransformerDecoder(2 * UNITS, num_heads=4)(embed(written), memory)
    return keras.Model([read, written], layers.Dense(WORDS)(state))


old, new = transformer(masked=False), transformer(masked=True)
old.set_weights(new.get_weights())
wider = np.pad(source[:8], [(0, 0), (0, 10)])  # ten more zeros
for name, model in (("without masks", old), ("with masks", new)):
    change = np.max(np.abs(model([wider, before[:8]]) - model([source[:8], before[:8]])))
    print(f"{name:14} largest change of a logit by ten zeros: {change:.1e}")
    assert (change < 1e-4) == (name == "with masks")

# %% [markdown] lang="en"
# **Padding must not count.** This model predicts nothing but padding. We judge it by plain accuracy and loss, and by those
# that leave padding out:

# %% [markdown] lang="zh"
# **填充不应计分。** 一个只会预测填充的模型，用普通的正确率和损失，以及不计填充的正确率和损失来评价：

# %%
lazy = np.zeros((300, LENGTH, WORDS), "float32")
lazy[:, :, 0] = 9.0  # always padding
plain = keras.metrics.SparseCategoricalAccuracy()
plain.update_state(target[test], lazy)
token_loss = keras.losses.sparse_categorical_crossentropy(target[test], lazy, from_logits=True)
real = target[test] != 0
print(
    f"accuracy: {float(plain.result()):.1%} with padding, {np.mean((lazy.argmax(-1) == target[test])[real]):.1%} without"
)
masked = np.asarray(masked_sparse_categorical_crossentropy(target[test], lazy))
print(
    f"loss:     {float(ops.mean(token_loss)):.2f} with padding, {masked.sum() / real.sum():.2f} without"
)

# %% [markdown] lang="en"
# **Which way round?** In our calls the memory is the second argument of the decoder: `decoder(target, memory)`. A swap shows at once, since the output has the
# target's length:

# %% [markdown] lang="zh"
# **哪个在前？** 我们的调用里，解码器的第二个参数是记忆：`decoder(target, memory)`。放反了立刻看得出来，因为输出的长度就是目标的长度：

# %%
english, spanish = np.ones((1, 7, 8), "float32"), np.ones((1, 4, 8), "float32")
block = TransformerDecoder(16, num_heads=2)
assert block(spanish, english).shape[1] == 4 and block(english, spanish).shape[1] == 7
print(f"words right after training, ours: {fit(new):.1%}")

# %% [markdown] lang="en"
# **What changes.** Set `mask_zero=True` in both embeddings. Keras then passes the masks on, and the cross attention
# gets that of the source. The loss is `MaskedSparseCategoricalCrossentropy`. You no longer write the two classes of the example
# (position embedding, decoder).
#
# ## 3. A TensorFlow Addons tutorial
#
# The package ended in 2024 and does not import beside Keras 3, so we can only show its lines:

# %% [markdown] lang="zh"
# **怎样改。** 两个词嵌入都用 `mask_zero=True`，掩码会自己往下传，源端的掩码传到交叉注意力。损失用 `MaskedSparseCategoricalCrossentropy`。
# 例子里的两个类（位置嵌入、解码器）不必自己写了。
#
# ## 3. TensorFlow Addons 的教程
#
# 这个包 2024 年停止维护，在 Keras 3 下无法导入，所以它的写法只能列出来：

# %% [markdown] lang="en"
# ```text
# mechanism = LuongAttention(units, memory=None, memory_sequence_length=BATCH * [longest])
# cell = AttentionWrapper(LSTMCell(units), mechanism, attention_layer_size=units)
# mechanism.setup_memory(encoder_outputs)               # before every batch
# state = cell.get_initial_state(batch_size=BATCH).clone(cell_state=encoder_states)
# outputs = BasicDecoder(cell, TrainingSampler(), output_layer=Dense(words))(embedded, initial_state=state)
# ```
#
# **What was wrong.** The code gives the longest length for every sentence, so attention reads the padding like words. You
# must set the memory, an attribute, before each batch; if you forget it, the decoder reads the last batch's memory. The
# batch size is fixed in the model. The next lines measure the first fault, with any weights: the share of attention on
# padding.

# %% [markdown] lang="zh"
# ```text
# mechanism = LuongAttention(units, memory=None, memory_sequence_length=BATCH * [longest])
# cell = AttentionWrapper(LSTMCell(units), mechanism, attention_layer_size=units)
# mechanism.setup_memory(encoder_outputs)               # 每个批次之前
# state = cell.get_initial_state(batch_size=BATCH).clone(cell_state=encoder_states)
# outputs = BasicDecoder(cell, TrainingSampler(), output_layer=Dense(words))(embedded, initial_state=state)
# ```
#
# **问题在哪。** 每个句子的长度都写成最长句的长度，注意力就把填充当词来读。记忆是一个属性，每个批次之前都要设置；忘了设置，解码器读的就是上一批的内容。
# 批次大小固定在模型里。下面测量第一个问题的代价：不论权重如何，有多少注意力落在填充上。

# %%
read, written = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
memory, h, c = layers.LSTM(UNITS, return_sequences=True, return_state=True)(
    layers.Embedding(WORDS, UNITS)(read)
)
decoder = AttentionDecoder(
    layers.LSTMCell(UNITS),
    LuongAttention("general"),
    query="current",
    attention_size=UNITS,
    input_feeding=True,
)
words = layers.Embedding(WORDS, UNITS)(written)
readers = {}
for name, mask in (("as in the tutorial", None), ("with a mask", ops.not_equal(read, 0))):
    outputs, weights = decoder(
        words, memory, initial_state=[h, c], value_mask=mask, return_attention_scores=True
    )
    readers[name] = keras.Model([read, written], weights)
model = keras.Model([read, written], layers.Dense(WORDS)(outputs))
for name, reader in readers.items():
    weights = reader.predict([source[test], before[test]], verbose=0)
    padding = (source[test] == 0)[:, None, :]
    real = (target[test] != 0)[:, :, None]
    print(
        f"{name:19} attention on padding, before training: {np.sum(weights * padding * real) / real.sum():.1%}"
    )
print(f"words right after training, with the mask: {fit(model):.1%}")

# %% trained=true
assert accuracy(model) > 0.8 and accuracy(new) > 0.8

# %% [markdown] lang="en"
# **What changes.** The memory and its mask are arguments of the call. You set up and clone nothing, and one model serves
# every batch size. The table of all names is in [Moving over](../moving_over.md), with greedy and beam search in place of
# samplers.
#
# ## Exercise
#
# Which three lines would you add to any translation model's tests, after reading this page?

# %% [markdown] lang="zh"
# **怎样改。** 记忆和掩码都是调用的参数；不需要设置或克隆任何东西，一个模型适用于任何批次大小。全部名称的对照表，以及代替采样器的贪心搜索和束搜索，见
# [迁移](../moving_over.md)。
#
# ## 练习
#
# 读完本页，你会给任何翻译模型的测试加上哪三行？

# %% answer=true
a, b = source[:8], before[:8]
logits = np.asarray(new([a, b]))
np.testing.assert_allclose(new([np.pad(a, [(0, 0), (0, 5)]), b]), logits, atol=1e-4)  # padding
assert not np.allclose(new([a[::-1], b]), logits, atol=1e-3)  # the source counts
np.testing.assert_allclose(
    new([a, np.where(np.arange(10) < 5, b, 3)])[:, :5], logits[:, :5], atol=1e-4
)  # no future
