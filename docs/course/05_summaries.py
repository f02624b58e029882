# %% [markdown] lang="en"
# # 5. Attention for summaries
#
# A translation uses each source word about once. A summary uses few words, from all over a long text, and a decoder that
# forgets its words repeats them. This lecture shows three additions to [Bahdanau's attention](02_bahdanau.md), each with
# another kind of memory:
#
# **Coverage** (See et al. 2017) sums up all earlier weights, lets the score see the sum, and makes reading twice cost something:
#
# $$
# c_t = \sum_{t' < t} a_{t'}, \qquad e_{ts} = v^\top \tanh(W q_t + U k_s + w_c c_{ts}), \qquad
# \mathrm{covloss}_t = \sum_s \min(a_{ts}, c_{ts})
# $$
#
# **Temporal** attention (Nallapati et al. 2016) divides a score by the place's earlier scores, with no weight and no
# loss:
#
# $$
# e'_{ts} = \frac{\exp e_{ts}}{\sum_{j < t} \exp e_{js}}, \qquad a_{ts} = \frac{e'_{ts}}{\sum_{s'} e'_{ts'}}
# $$
#
# **Hierarchical** attention (Nallapati et al. 2016) also weighs sentences, and multiplies the weights of word and
# sentence:
#
# $$
# P(j) = \frac{P_w(j)\, P_s(s(j))}{\sum_k P_w(k)\, P_s(s(k))}
# $$

# %% [markdown] lang="zh"
# # 5. 摘要中的注意力
#
# 译文大约把每个源词用一次；摘要只用其中很少几个，而且来自长文各处，忘了自己说过什么的解码器会重复。在
# [Bahdanau 的注意力](02_bahdanau.zh.md)上有三种补充，各带一种记忆：
#
# **覆盖率**（coverage，See 等 2017）把以前的权重全部加起来，让得分看到这个和，并让重复阅读付出代价：
#
# $$
# c_t = \sum_{t' < t} a_{t'}, \qquad e_{ts} = v^\top \tanh(W q_t + U k_s + w_c c_{ts}), \qquad
# \mathrm{covloss}_t = \sum_s \min(a_{ts}, c_{ts})
# $$
#
# **时间注意力**（temporal，Nallapati 等 2016）用一个位置以前的得分去除现在的得分，没有新参数，也没有损失：
#
# $$
# e'_{ts} = \frac{\exp e_{ts}}{\sum_{j < t} \exp e_{js}}, \qquad a_{ts} = \frac{e'_{ts}}{\sum_{s'} e'_{ts'}}
# $$
#
# **层次注意力**（hierarchical，Nallapati 等 2016）还给句子加权，一个词的分量要乘上它所在句子的分量：
#
# $$
# P(j) = \frac{P_w(j)\, P_s(s(j))}{\sum_k P_w(k)\, P_s(s(k))}
# $$

# %%
from keras_attention_command import quiet

quiet()

import keras
import matplotlib.pyplot as plt
import numpy as np
from keras import layers, ops

from keras_attention import (
    AttentionDecoder,
    BahdanauAttention,
    CoverageAttention,
    HierarchicalAttention,
    LuongAttention,
    TemporalAttention,
)
from keras_attention.course import check
from keras_attention.losses import coverage_loss

keras.utils.set_random_seed(5)
query = np.random.normal(size=(2, 4, 5)).astype("float32")
memory = np.random.normal(size=(2, 6, 8)).astype("float32")

# %% [markdown] lang="en"
# ## Coverage
#
# Coverage needs a loop, since each query changes the next one's score. $c_t$ is the coverage **before** step $t$. If it
# included $a_t$, the minimum would always be $a_t$, and the loss would be the constant 1. That mistake is easy to make and
# hard to see.

# %% [markdown] lang="zh"
# ## 覆盖率
#
# 这是一个循环，因为每个查询都会改变下一个查询看到的东西。$c_t$ 是第 $t$ 步**之前**的覆盖率。若把 $a_t$ 也算进去，最小值永远是 $a_t$，损失恒为 1：
# 这个错误容易犯，却难发现。

# %%
layer = CoverageAttention(units=7)
_, weights = layer(query, memory, return_attention_scores=True)

covered, losses, rows = ops.zeros((2, 6)), [], []
for t in range(4):
    hidden = ops.expand_dims(query[:, t] @ layer.query_kernel, 1) + memory @ layer.key_kernel
    hidden += ops.expand_dims(covered, -1) * layer.coverage_vector
    a = ops.softmax(ops.sum(layer.score_vector * ops.tanh(hidden), axis=-1))
    losses.append(ops.sum(ops.minimum(a, covered), axis=-1))
    covered, rows = covered + a, [*rows, a]
np.testing.assert_allclose(weights, ops.stack(rows, axis=1), atol=1e-5)
np.testing.assert_allclose(coverage_loss(weights), np.mean(losses), atol=1e-5)
print("coverage loss by step:", np.round(np.mean(losses, axis=1), 2))

# %% [markdown] lang="en"
# ## Temporal attention
#
# The formula overflows in float32 with energies of about 83, summed over 200 steps. In logarithms it is a softmax of differences.

# %% [markdown] lang="zh"
# ## 时间注意力
#
# 照公式直接算，能量到 83 左右、加上 200 步，float32 就会溢出。取对数后，它就是差的 softmax。

# %%
temporal = TemporalAttention()
_, weights = temporal(query, memory, return_attention_scores=True)
energy = np.asarray((query @ temporal.score_kernel) @ ops.swapaxes(memory, 1, 2))
before = np.zeros((2, 6))
for t in range(4):
    raw = np.exp(energy[:, t]) / (before if t else 1)
    np.testing.assert_allclose(weights[:, t], raw / raw.sum(-1, keepdims=True), rtol=1e-3)
    before += np.exp(energy[:, t])
large, _ = TemporalAttention(kernel_initializer="ones")(
    np.full((1, 200, 5), 3.0), memory[:1], return_attention_scores=True
)
assert np.all(np.isfinite(large))

# %% [markdown] lang="en"
# ## Hierarchical attention
#
# The layer multiplies the weights, not the energies, and normalises once over all words of the document.

# %% [markdown] lang="zh"
# ## 层次注意力
#
# 相乘的是权重，不是能量；在整篇文档的所有词上归一化一次。

# %%
words = np.random.normal(size=(2, 3, 4, 8)).astype("float32")  # 3 sentences of 4 words
sentences = np.random.normal(size=(2, 3, 6)).astype("float32")
both = HierarchicalAttention(BahdanauAttention(7), LuongAttention("general"))
_, weights = both(query, words, sentences, return_attention_scores=True)  # (B, T, 3, 4)

_, of_words = both.word_attention(query, words.reshape(2, 12, 8), return_attention_scores=True)
_, of_sentences = both.sentence_attention(query, sentences, return_attention_scores=True)
product = np.reshape(of_words, (2, 4, 3, 4)) * np.asarray(of_sentences)[..., None]
np.testing.assert_allclose(weights, product / product.sum((2, 3), keepdims=True), atol=1e-5)

# %% [markdown] lang="en"
# ## A summary to write
#
# A document of 24 words holds six facts among filler, and the summary is these facts in their order. Facts look alike, so a
# decoder that loses its place writes one twice or leaves one out. We train three attentions in the same way, and count
# both faults after each epoch.

# %% [markdown] lang="zh"
# ## 写一个摘要
#
# 24 个词的文档里，六个事实混在填充词之间；摘要就是按原次序写出这些事实。事实彼此相似，解码器一旦找不到自己的位置，就会重复一个或漏掉一个。
# 三种注意力同样训练，每个周期之后数一数这两种错误。

# %% tiny="DOCUMENTS, EPOCHS, TESTS = 64, 1, 16"
DOCUMENTS, EPOCHS, TESTS = 6400, 4, 300
FACTS, FILLERS, LENGTH, KEPT, UNITS = 40, 10, 24, 6, 48
START, SIZE = FACTS + FILLERS, FACTS + FILLERS + 1
random = np.random.default_rng(5)
source = random.integers(FACTS, FACTS + FILLERS, (DOCUMENTS + TESTS, LENGTH))
places = np.sort(np.argsort(random.random(source.shape), axis=1)[:, :KEPT], axis=1)
target = np.argsort(random.random((len(source), FACTS)), axis=1)[:, :KEPT]  # six different facts
np.put_along_axis(source, places, target, axis=1)
before = np.concatenate([np.full((len(target), 1), START), target[:, :-1]], axis=1)
train, test = slice(0, DOCUMENTS), slice(DOCUMENTS, None)


def summarizer(attention):
    read, written = keras.Input((LENGTH,), dtype="int32"), keras.Input((None,), dtype="int32")
    states = layers.Bidirectional(layers.GRU(UNITS, return_sequences=True))(
        layers.Embedding(SIZE, UNITS)(read)
    )
    decoder = AttentionDecoder(layers.GRUCell(UNITS), attention)
    outputs, contexts, weights = decoder(
        layers.Embedding(SIZE, UNITS)(written),
        states,
        return_context=True,
        return_attention_scores=True,
    )
    logits = layers.Dense(SIZE)(layers.Concatenate()([outputs, contexts]))
    model = keras.Model([read, written], logits)
    model.compile(
        keras.optimizers.Adam(3e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    return model, keras.Model([read, written], [logits, weights])


def write(reader, source):
    written = np.full((len(source), KEPT), START)
    for step in range(KEPT):
        logits, weights = reader.predict([source, written], verbose=0)
        if step + 1 < KEPT:
            written[:, step + 1] = np.argmax(logits[:, step], axis=-1)
    return np.argmax(logits, axis=-1), weights


attentions = {
    "additive": BahdanauAttention(UNITS),
    "coverage": CoverageAttention(UNITS, loss_weight=1.0),
    "temporal": TemporalAttention(),
}
maps, repeated = {}, {name: [] for name in attentions}
for name, attention in attentions.items():
    model, reader = summarizer(attention)
    for epoch in range(EPOCHS):
        model.fit([source[train], before[train]], target[train], batch_size=64, verbose=0)
        answers, weights = write(reader, source[test])
        repeated[name].append(np.mean([1 - len(set(row)) / KEPT for row in answers]))
        missed = np.mean(
            [
                len(set(right) - set(row)) / KEPT
                for right, row in zip(target[test], answers, strict=True)
            ]
        )
        print(
            f"{name:9} epoch {epoch + 1}: repeated {repeated[name][-1]:5.1%}  missed {missed:5.1%}"
            f"  coverage loss {float(coverage_loss(weights)):.2f}"
        )
    maps[name] = weights[0]

# %% [markdown] lang="en"
# The counts hold for one task and one seed. After one epoch all three repeat and miss facts, and coverage does so most. Its
# loss disturbs a decoder that does not attend yet, and See et al. therefore switch it on late (`loss_start`). Then coverage
# reads most sharply, and its loss goes to 0. The temporal rule, which training cannot remove, learns more slowly here.
# The maps show the last epoch, with a row for each written fact; ticks mark facts in the source.

# %% [markdown] lang="zh"
# 一个任务、一个种子：这些数字只说明三者在这里的表现。一个周期之后，三者都会重复和遗漏，覆盖率最多：解码器还不会注意时，它的损失是一种干扰，See 等也是很晚才打开它
# （`loss_start`）。之后它读得最集中，损失趋于 0。时间注意力的规则无法通过训练去掉，在这里学得慢一些。图是最后一个周期的：每写一个事实一行；源端的
# 事实用刻度标出。

# %% [markdown] lang="en"
# > **Predict first.** Six facts are written, one in each row. The bars below each map show how much of each place was read.
# > Under which of the three will the bars be nearest to 1 at the facts and to 0 elsewhere?

# %% [markdown] lang="zh"
# > **先猜一猜。** 写出六个事实，一行一个；每张图下面是每个位置总共被读了多少。三者中，哪一个的柱子在事实处最接近 1、在别处最接近 0？

# %% predict=true en="Attention while six facts are written, and below it the coverage: how much of each place has been read." zh="写出六个事实时的注意力；下面是覆盖率：每个位置被读了多少。"
figure, axes = plt.subplots(
    2, 3, figsize=(11, 3.8), layout="constrained", sharex=True, height_ratios=[3, 1.4]
)
for (upper, lower), (name, weights) in zip(axes.T, maps.items(), strict=True):
    upper.imshow(weights, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    upper.set_title(name, fontsize=10)
    lower.bar(range(LENGTH), weights.sum(axis=0), color="#3f51b5")
    lower.axhline(1, color="0.6", linewidth=0.8)
    lower.set(ylim=(0, 2), xticks=places[DOCUMENTS], xlabel="place in the document")
axes[0, 0].set_ylabel("step")
axes[1, 0].set_ylabel("coverage")
plt.show()

# %% [markdown] lang="en"
# ## Sentences first
#
# Now a document has five sentences of five words. The first word of a sentence is its topic, and the summary is the rest of
# the **one** sentence about "politics". Sentence attention can find the sentence, and word attention can read it.

# %% [markdown] lang="zh"
# ## 先看句子
#
# 现在一篇文档有五个句子，每句五个词。句首词是话题；摘要是那**一个**关于 “politics” 的句子的其余部分。句子注意力负责找到它，词注意力负责读它。

# %%
TOPICS = ["politics", "sport", "weather", "music", "trade"]
N, W, ALL = 5, 5, 5 + FACTS + 1
topics = np.argsort(random.random((DOCUMENTS + TESTS, N)), axis=1)  # each topic once
documents = np.concatenate(
    [topics[..., None], 5 + random.integers(0, FACTS, (len(topics), N, W - 1))], axis=2
)
wanted = documents[topics == 0][:, 1:]
given = np.concatenate([np.full((len(wanted), 1), ALL - 1), wanted[:, :-1]], axis=1)

read, written = keras.Input((N, W), dtype="int32"), keras.Input((None,), dtype="int32")
vectors = layers.Embedding(ALL, UNITS)(read)
states = layers.TimeDistributed(layers.GRU(UNITS, return_sequences=True))(
    vectors
)  # (B, N, W, units)
gists = layers.Bidirectional(layers.GRU(UNITS // 2, return_sequences=True))(states[:, :, -1])
attention = HierarchicalAttention(BahdanauAttention(UNITS), BahdanauAttention(UNITS))
decoder = AttentionDecoder(layers.GRUCell(UNITS), attention)
outputs, contexts, scores = decoder(
    layers.Embedding(ALL, UNITS)(written),
    {"words": states, "sentences": gists},
    return_context=True,
    return_attention_scores=True,
)
logits = layers.Dense(ALL)(layers.Concatenate()([outputs, contexts]))
model, reader = keras.Model([read, written], logits), keras.Model([read, written], scores)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(5e-3), loss, metrics=["accuracy"])
model.fit([documents[train], given[train]], wanted[train], batch_size=64, epochs=EPOCHS, verbose=0)
_, accuracy = model.evaluate([documents[test], given[test]], wanted[test], verbose=0)
print(f"words right, given the right words before: {accuracy:.1%}")

# %% en="Weights P of all words (rows: sentences) while the four words of the summary are written." zh="写摘要的四个词时，全部词的权重 P（行为句子）。"
weights = np.asarray(reader([documents[-1:], given[-1:]])).reshape(W - 1, N, W)
figure, axes = plt.subplots(1, W - 1, figsize=(11, 2.6), layout="constrained", sharey=True)
for step, axis in enumerate(axes):
    axis.imshow(weights[step], cmap="Blues", vmin=0, vmax=1)
    axis.set(title=f"word {step + 1} of the summary", xlabel="word", xticks=range(W))
axes[0].set_yticks(range(N), [TOPICS[topic] for topic in topics[-1]])
plt.show()

# %% trained=true
assert accuracy > 0.8

# %% [markdown] lang="en"
# ## Exercises
#
# **1.** What is the coverage loss, as the mean of the steps, of a decoder that reads the same place in all $T$ steps? Of one
# that never reads a place twice? Hand in both for $T = 5$.

# %% [markdown] lang="zh"
# ## 练习
#
# **1.** 若解码器 $T$ 步都读同一个位置，覆盖率损失（各步的平均）是多少？从不重复读的呢？交 $T = 5$ 时的两个数。

# %% exercise=true
answer = ...  # your answer
check("5.1", answer)

# %% answer=true
T = 5
same, once = np.zeros((1, T, T)), np.eye(T)[None]
same[:, :, 0] = 1
assert np.isclose(float(coverage_loss(same)), (T - 1) / T)  # 0 in the first step, 1 in each other
assert float(coverage_loss(once)) == 0
assert check("5.1", [coverage_loss(same), coverage_loss(once)])

# %% [markdown] lang="en"
# **2.** Ask temporal attention the same question again and again. What are the weights from the second time on, and why?

# %% [markdown] lang="zh"
# **2.** 反复问时间注意力同一个问题。从第二次起权重是多少？为什么？

# %% exercise=true
answer = ...  # your answer
check("5.2", answer)

# %% answer=true
again = np.repeat(query[:, :1], 4, axis=1)
_, weights = temporal(again, memory, return_attention_scores=True)
np.testing.assert_allclose(weights[:, 1:], 1 / 6, atol=1e-5)  # exp(e) over n exp(e): all alike
assert check("5.2", weights[:, 1:])

# %% [markdown] lang="en"
# **3.** Which `coverage_vector` turns `CoverageAttention` into `BahdanauAttention`?

# %% [markdown] lang="zh"
# **3.** `coverage_vector` 取什么值，`CoverageAttention` 就变成 `BahdanauAttention`？

# %% exercise=true
answer = ...  # your answer
check("5.3", answer)

# %% answer=true
layer.coverage_vector.assign(np.zeros(7))
plain = BahdanauAttention(units=7)
plain(query, memory)
for name in ("query_kernel", "key_kernel", "score_vector"):
    getattr(plain, name).assign(getattr(layer, name))
np.testing.assert_allclose(layer(query, memory), plain(query, memory), atol=1e-5)
assert check("5.3", layer.coverage_vector)

# %% [markdown] lang="en"
# **4.** All sentences have the same weight. What does hierarchical attention become? Compute $P$ for two sentences of two
# words, with word weights 0.1, 0.2 and 0.3, 0.4, and sentence weights 0.5 and 0.5.

# %% [markdown] lang="zh"
# **4.** 所有句子的权重都相同，层次注意力还剩下什么？两个句子各两个词，词的权重是 0.1、0.2 和 0.3、0.4，句子的权重是 0.5 和 0.5，算出 $P$。

# %% exercise=true
answer = ...  # your answer
check("5.4", answer)

# %% answer=true
even = np.ones_like(sentences)
context = both(query, words, even)
flat = both.word_attention(query, words.reshape(2, 12, 8))
np.testing.assert_allclose(context, flat, atol=1e-5)  # word attention over the whole document
products = np.array([0.1, 0.2, 0.3, 0.4]) * 0.5
assert check("5.4", products / products.sum())

# %% [markdown] lang="en"
# **Sources.** See, Liu and Manning 2017, "Get to the point"; Nallapati et al. 2016, "Abstractive text summarization using sequence-to-sequence RNNs and
# beyond". The layers: [coverage](../layers/coverage.md), [temporal](../layers/temporal.md), [hierarchical](../layers/hierarchical.md), and the
# [pointer](../layers/pointer_generator.md) that copies words; real data: [Summarise documents](../tutorials/summarize.md).
# Next: [attention is all you need](06_transformer.md).

# %% [markdown] lang="zh"
# **出处**：See, Liu and Manning 2017, “Get to the point”；Nallapati et al. 2016, “Abstractive text summarization using sequence-to-sequence RNNs and
# beyond”。层：[覆盖率](../layers/coverage.zh.md)、[时间注意力](../layers/temporal.zh.md)、[层次注意力](../layers/hierarchical.zh.md)，以及复制词的
# [指针](../layers/pointer_generator.zh.md)；真实数据：[写摘要](../tutorials/summarize.md)。下一讲：[注意力就是你所需要的一切](06_transformer.zh.md)。
