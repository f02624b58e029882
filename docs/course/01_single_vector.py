# %% [markdown] lang="en"
# # 1. Why a single vector fails
#
# The first neural translators (Sutskever et al. 2014; Cho et al. 2014) had two recurrent nets. The **encoder** reads the
# source word by word, and its last state $c$ stands for the whole sentence. The **decoder** starts from $c$ and writes:
#
# $$
# h_s = f(x_s, h_{s-1}), \qquad c = h_S, \qquad
# s_t = g(y_{t-1}, s_{t-1}), \quad s_0 = c, \qquad p(y_t) = \mathrm{softmax}(V s_t)
# $$
#
# $c$ has the same width for three words and for thirty. This page measures the cost: BLEU by the length of the sentence,
# with a single vector and with attention, on generated data.

# %% [markdown] lang="zh"
# # 1. 为什么一个向量不够
#
# 最早的神经翻译模型（Sutskever 等 2014；Cho 等 2014）由两个循环网络组成。**编码器**逐词读源句，最后一个状态 $c$ 就代表整个句子；
# **解码器**从 $c$ 出发写译文：
#
# $$
# h_s = f(x_s, h_{s-1}), \qquad c = h_S, \qquad
# s_t = g(y_{t-1}, s_{t-1}), \quad s_0 = c, \qquad p(y_t) = \mathrm{softmax}(V s_t)
# $$
#
# 句子无论是三个词还是三十个词，$c$ 的宽度都一样。本页测量它的代价：在自己生成的数据上，比较单个向量与注意力两种模型，看 BLEU 怎样随句子长度变化。

# %%
from keras_attention_command import quiet

quiet()

import keras
import matplotlib.pyplot as plt
import numpy as np
import sacrebleu
import tensorflow as tf
from keras import layers, ops

from keras_attention import AttentionDecoder, BahdanauAttention
from keras_attention.course import check

keras.utils.set_random_seed(1)

# %% [markdown] lang="en"
# ## The formula in a few lines
#
# $f$ is a GRU here (Cho et al. 2014): an update gate $z$ says how much of the old state stays, and a reset gate $r$ says
# how much of it the new candidate sees. Keras' layer gives the same numbers:

# %% [markdown] lang="zh"
# ## 几行代码写出公式
#
# 这里的 $f$ 是 GRU（Cho 等 2014）：更新门 $z$ 决定旧状态保留多少，重置门 $r$ 决定候选状态看到旧状态的多少。Keras 的层给出同样的数字：


# %%
def gru_step(x, h, W, U, b):
    def parts(z):
        return ops.split(z, 3, axis=-1)

    (x_z, x_r, x_h), (U_z, U_r, U_h) = parts(x @ W + b), parts(U)
    z, r = ops.sigmoid(x_z + h @ U_z), ops.sigmoid(x_r + h @ U_r)
    candidate = ops.tanh(x_h + (r * h) @ U_h)
    return z * h + (1 - z) * candidate


sentence = np.random.normal(size=(1, 6, 4)).astype("float32")
gru = layers.GRU(5, reset_after=False)
c = gru(sentence)

h = ops.zeros((1, 5))
for s in range(6):
    h = gru_step(sentence[:, s], h, *gru.cell.get_weights())
np.testing.assert_allclose(h, c, atol=1e-5)
print("six words in", sentence.size, "numbers; one vector of", c.shape[-1])

# %% [markdown] lang="en"
# ## Data: numbers read out
#
# The model translates random figures to German number words: "7 3 9" to "sieben drei neun". No word of such a sentence
# can be guessed from the others, so a model has to carry all of it. Each word is one of thirty, so $n$ words
# carry $n \log_2 30 \approx 4.9\,n$ bits.

# %% [markdown] lang="zh"
# ## 数据：念数字
#
# 把随机数字译成德语数词：“7 3 9”译为“sieben drei neun”。这样的句子里，任何一个词都无法从其余的词猜出，模型必须把全部内容带过去。
# 每个词有三十种可能：$n$ 个词就是 $n \log_2 30 \approx 4.9\,n$ 比特。

# %% tiny="SENTENCES, EPOCHS, TESTED = 64, 1, 4"
SENTENCES, EPOCHS, TESTED = 12_800, 10, 100
LONGEST, START, END = 20, 1, 2
GERMAN = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn "
    "sechzehn siebzehn achtzehn neunzehn zwanzig einundzwanzig zweiundzwanzig dreiundzwanzig "
    "vierundzwanzig fünfundzwanzig sechsundzwanzig siebenundzwanzig achtundzwanzig neunundzwanzig"
).split()
random = np.random.default_rng(1)


def make(lengths):
    source = np.zeros((len(lengths), LONGEST + 1), int)
    for row, length in zip(source, lengths, strict=True):
        row[:length] = random.integers(3, 3 + len(GERMAN), length)  # 0 pads, 1 starts, 2 ends
        row[length] = END
    return source  # the ids of the target are the same: word 7 is "sieben"


def shifted(target):
    return np.pad(target, [(0, 0), (1, 0)], constant_values=START)[:, :-1]


train = make(random.integers(1, LONGEST + 1, SENTENCES))
print(
    [int(i) - 3 for i in train[0] if i > 2],
    "->",
    " ".join(GERMAN[i - 3] for i in train[0] if i > 2),
)

# %% [markdown] lang="en"
# ## Two models, one difference
#
# Both models have the same encoder, the same widths and the same training. The first decoder is a GRU that starts from
# $c$. The second also starts from $c$, and attends to the states $h_1 \dots h_S$ before each word.

# %% [markdown] lang="zh"
# ## 两个模型，一处不同
#
# 编码器、宽度和训练方法都相同。第一个解码器是从 $c$ 出发的 GRU；第二个也从 $c$ 出发，但写每个词之前还可以看状态 $h_1 \dots h_S$。


# %%
def translator(attention, units=64):
    source, before = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    size = 3 + len(GERMAN)
    states, c = layers.GRU(units, return_sequences=True, return_state=True)(
        layers.Embedding(size, units, mask_zero=True)(source)
    )
    words = layers.Embedding(size, units)(before)
    if attention:
        decoder = AttentionDecoder(layers.GRUCell(units), BahdanauAttention(units))
        written = decoder(words, states, initial_state=[c])
    else:
        written = layers.GRU(units, return_sequences=True)(words, initial_state=c)
    model = keras.Model([source, before], layers.Dense(size)(written))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    model.compile(keras.optimizers.Adam(4e-3), loss)
    return model


models = {"single vector": translator(attention=False), "attention": translator(attention=True)}
for name, model in models.items():
    history = model.fit([train, shifted(train)], train, batch_size=128, epochs=EPOCHS, verbose=0)
    print(
        f"{name:14}",
        *(f"{loss:.2f}" for loss in history.history["loss"]),
        f"  {model.count_params():,} weights",
    )

# %% [markdown] lang="en"
# ## BLEU by length
#
# We translate 100 new sentences of each length greedily, and score them with sacrebleu. BLEU counts runs of up to four
# words, so it is near 0 for two words even if all are right. There, read the share of sentences without an error.

# %% [markdown] lang="zh"
# ## BLEU 随长度的变化
#
# 每种长度取 100 个新句子，用贪心搜索翻译，由 sacrebleu 打分。BLEU 要数到四个词的连续片段，所以两个词的句子即使全对也接近 0：这时请看全句正确率。


# %%
def translate(model, source):
    before = np.zeros_like(source)
    before[:, 0] = START
    for step in range(source.shape[1]):
        found = np.argmax(model.predict([source, before], verbose=0), axis=-1)
        before[:, step + 1 : step + 2] = found[:, step : step + 1]
    return found


def text(row):
    row = list(row)
    end = row.index(END) if END in row else len(row)
    return " ".join(GERMAN[i - 3] if i > 2 else "?" for i in row[:end])


lengths = [2, 4, 6, 8, 10, 12, 14, 16, 18, 20]
tests = make(np.repeat(lengths, TESTED))
bleu, exact = {}, {}
for name, model in models.items():
    found = translate(model, tests).reshape(len(lengths), TESTED, -1)
    right = tests.reshape(found.shape)
    bleu[name], exact[name] = [], []
    for answers, references in zip(found, right, strict=True):
        answers, references = [text(row) for row in answers], [text(row) for row in references]
        score = sacrebleu.corpus_bleu(answers, [references], smooth_method="floor", force=True)
        bleu[name].append(score.score)
        exact[name].append(np.mean([a == b for a, b in zip(answers, references, strict=True)]))
    print(f"{name:14} BLEU ", *(f"{score:4.0f}" for score in bleu[name]))
    print(f"{'':14} exact", *(f"{share:4.0%}" for share in exact[name]))

# %% [markdown] lang="en"
# > **Predict first.** The sentences get longer, from 2 words to 20. Sketch two lines: the share of sentences without an
# > error by the single vector, and by attention. Where does the first one begin to fall, and where does it end?

# %% [markdown] lang="zh"
# > **先猜一猜。** 句子从 2 个词增加到 20 个词。画出两条线：单个向量和注意力各有多少句子全对？第一条从哪里开始下降，到哪里为止？

# %% predict=true en="BLEU and the share of sentences without an error by length: the single vector falls, attention does not." zh="BLEU 与全句正确率随长度的变化：单个向量一路下降，注意力则不然。"
figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for axis, values, label in zip(
    axes, (bleu, exact), ("BLEU", "sentences without an error"), strict=True
):
    for name, line in values.items():
        axis.plot(lengths, line, marker="o", label=name)
    axis.set(xlabel="words in the sentence", ylabel=label, ylim=(0, None), xticks=lengths)
axes[0].legend()
plt.show()

# %% trained=true
assert exact["attention"][-1] > exact["single vector"][-1] + 0.3
assert exact["single vector"][0] > exact["single vector"][-1] + 0.3

# %% [markdown] lang="en"
# How close was your guess? The single vector is no weak model: it gets short sentences right. It fails when the sentence holds more than $c$ has
# learned to hold. More units and more training move this limit to longer sentences, but they do not remove it.
#
# ### Question: could the decoder not be given c at every step?
#
# Yes (Cho et al. 2014 do so), and then the decoder forgets less. But $c$ is still one vector: the decoder cannot get out
# what the encoder did not put in. The solution is to keep all the states, and to look up the one that is needed.
#
# ## What is forgotten first
#
# How much does the last state change with each word? The figure shows the norm of the gradient
# $\partial c / \partial x_s$ of the trained encoder, averaged over sentences of 20 words:

# %% [markdown] lang="zh"
# 你猜得有多近？单个向量并不是弱模型：短句子它译得对。句子的内容一旦超过 $c$ 学会装下的量，它就失败。加宽、多训练，只是把这条边界向右推，边界依然存在。
#
# ### 问：能不能每一步都把 c 交给解码器？
#
# 可以（Cho 等 2014 就这样做），这能帮助解码器不忘记。但 $c$ 本身仍是一个向量：没装进去的，就取不出来。真正有用的是保留全部状态，需要哪个查哪个。
#
# ## 先忘掉的是什么
#
# 最后的状态随每个词变化多少？对训练好的编码器，求梯度 $\partial c / \partial x_s$ 的范数，在 20 个词的句子上取平均：

# %% en="The single vector depends more on some places of the sentence than on others." zh="单个向量对句中各个位置的依赖并不均匀。"
parts = models["single vector"].layers
embedding = next(part for part in parts if getattr(part, "mask_zero", False))
encoder = next(part for part in parts if getattr(part, "return_state", False))
with tf.GradientTape() as tape:
    vectors = tf.convert_to_tensor(embedding(tests[-TESTED:, :LONGEST]))
    tape.watch(vectors)
    _, c = encoder(vectors)
    total = ops.sum(c * np.random.normal(size=(1, 64)).astype("float32"))
size = np.linalg.norm(tape.gradient(total, vectors), axis=-1).mean(axis=0)
figure, axis = plt.subplots(figsize=(5.5, 2.6), layout="constrained")
axis.bar(range(1, LONGEST + 1), size, color="#3f51b5")
axis.set(xlabel="place of the word", ylabel="gradient's norm", xticks=range(1, LONGEST + 1, 3))
plt.show()

# %% [markdown] lang="en"
# One would expect the encoder to forget the first words, the furthest from the end. It does the opposite here: it keeps
# the beginning, which the decoder has to write first and which every sentence has, and gives up the rest. Training, not
# only distance, decides which words a small vector drops.
#
# ## Exercises
#
# **1.** Sutskever et al. reversed the source, "c b a" for "a b c", and BLEU rose. Which distance gets shorter, and
# which gets longer? For 20 words, count how many words are read or written between each source word and its translation,
# with the source as it is and reversed. Hand in two lists of 20 numbers.

# %% [markdown] lang="zh"
# 人们会以为最先忘掉的是开头的词，因为它们离结尾最远。这里训练出来的编码器恰恰相反：它守住开头（解码器要先写开头，而且每个句子都有开头），放弃了后面。
# 太小的向量丢掉什么，由训练决定，不只看距离。
#
# ## 练习
#
# **1.** Sutskever 等把源句倒过来读，“a b c”读成“c b a”，BLEU 就上升了。哪些距离变短，哪些变长？取 20 个词，
# 数一数从每个源词到它的译文之间要读、写多少个词：一次按原序，一次倒序。交两个列表，各 20 个数。

# %% exercise=true
answer = ...  # your answer
check("1.1", answer)

# %% answer=true
s = np.arange(20)
forward = 20 - s + s  # 20 - s words are left to read, then s words to write
backward = s + s  # read last, written first
assert np.all(forward == 20) and backward.mean() == 19  # the mean is almost the same,
assert backward.min() == 0 and backward.max() == 38  # but the first words become near: a start
assert check("1.1", [forward, backward])

# %% [markdown] lang="en"
# **2.** How many bits must $c$ hold at least for a sentence of 2 words, and how many for 20? How many does it have, if each
# of its 64 numbers keeps only 2 bits? Hand in the three numbers.

# %% [markdown] lang="zh"
# **2.** 对 2 个词和 20 个词的句子，$c$ 至少各要装下多少比特？如果 64 个数每个只能可靠地存 2 比特，它有多少？交这三个数。

# %% exercise=true
answer = ...  # your answer
check("1.2", answer)

# %% answer=true
assert round(2 * np.log2(30)) == 10 and round(20 * np.log2(30)) == 98
assert 64 * 2 == 128  # enough by counting: the limit is what training finds, not the arithmetic
assert check("1.2", [2 * np.log2(30), 20 * np.log2(30), 64 * 2])

# %% [markdown] lang="en"
# **3.** Which of the two models has weights whose number grows with the length of the sentence? Answer
# `"single vector"`, `"attention"`, `"both"` or `"neither"`.

# %% [markdown] lang="zh"
# **3.** 两个模型中，哪一个的参数量随句子长度增长？答“单个向量”、“注意力”、“两个”或“都不”。

# %% exercise=true
answer = ...  # your answer
check("1.3", answer)

# %% answer=true
shapes = {tuple(w.shape) for model in models.values() for w in model.weights}
assert not any(
    LONGEST in shape or LONGEST + 1 in shape for shape in shapes
)  # neither: only what is looked at grows
assert check("1.3", "neither")

# %% [markdown] lang="en"
# **Sources.** Sutskever, Vinyals and Le 2014, "Sequence to sequence learning with neural networks"; Cho et al. 2014, "On the
# properties of neural machine translation: encoder-decoder approaches". Next: [Bahdanau's alignment](02_bahdanau.md).

# %% [markdown] lang="zh"
# **出处**：Sutskever, Vinyals and Le 2014, “Sequence to sequence learning with neural networks”；Cho et al. 2014, “On the
# properties of neural machine translation: encoder-decoder approaches”。下一讲：[Bahdanau 的对齐](02_bahdanau.zh.md)。
