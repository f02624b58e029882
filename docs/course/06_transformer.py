# %% [markdown] lang="en"
# # 6. Attention is all you need
#
# In the earlier lectures, attention served a recurrent net. Vaswani et al. (2017) leave the net out: every word reads all
# the others by attention, in parallel, and nothing else mixes the places of a sentence. The formula is
#
# $$
# \mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{Q K^\top}{\sqrt{d}}\right) V
# $$
#
# Each word makes three vectors from its vector: a **query** (what am I looking for?), a **key** (what can I be found by?)
# and a **value** (what do I hand over?). Compare [lecture 2](02_bahdanau.md): there the query was $s_{t-1}$, and the
# state $h_s$ was key and value at once.

# %% [markdown] lang="zh"
# # 6. 注意力就是你所需要的一切
#
# 前几讲的注意力为循环网络服务。Vaswani 等人（2017）干脆去掉循环网络：每个词通过注意力并行地读所有其他词，句子里不同位置之间的信息只靠它交流。公式是
#
# $$
# \mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{Q K^\top}{\sqrt{d}}\right) V
# $$
#
# 每个词从自己的向量做出三个向量：**查询**（query，我在找什么？）、**键**（key，凭什么找到我？）和**值**（value，我交出什么？）。
# 对照[第 2 讲](02_bahdanau.zh.md)：那里的查询是 $s_{t-1}$，而状态 $h_s$ 既是键又是值。

# %%
from keras_attention_command import quiet

quiet()

import keras
import matplotlib.pyplot as plt
import numpy as np
from keras import layers, ops

from keras_attention import (
    MultiHeadAttention,
    PositionalEncoding,
    TransformerDecoder,
    TransformerEncoder,
)
from keras_attention.course import check

keras.utils.set_random_seed(6)

# %% [markdown] lang="en"
# ## By hand: two words, three features
#
# Two words have two features each, and projections to three. All numbers are small, so compute them on paper first.

# %% [markdown] lang="zh"
# ## 手算：两个词，三个特征
#
# 两个词，每个两个特征，投影到三维。数字都很小，先在纸上算一遍。

# %%
x = np.array([[1.0, 0], [1, 1]])  # two words
W_Q = np.array([[1.0, 0, 1], [0, 1, 0]])
W_K = np.array([[1.0, 1, 0], [0, 1, 1]])
W_V = np.array([[1.0, 2, 0], [2, 0, 1]])
Q, K, V = x @ W_Q, x @ W_K, x @ W_V  # each 2 x 3: a row a word
print("Q", *Q, "\nK", *K, "\nV", *V)

# %% [markdown] lang="en"
# The first word's query is $(1, 0, 1)$. Its product with the first key $(1, 1, 0)$ is $1$, and with the second $(1, 2, 1)$
# it is $2$. So the first row of $QK^\top$ is $(1, 2)$. Divided by $\sqrt 3$ it is $(0.58, 1.15)$, and its softmax is
# $(0.36, 0.64)$. The first output is $0.36 \cdot (1, 2, 0) + 0.64 \cdot (3, 2, 1) = (2.28, 2, 0.64)$.

# %% [markdown] lang="zh"
# 第一个词的查询是 $(1, 0, 1)$，与第一个键 $(1, 1, 0)$ 的点积是 $1$，与第二个键 $(1, 2, 1)$ 的点积是 $2$。所以 $QK^\top$ 的第一行是 $(1, 2)$；
# 除以 $\sqrt 3$ 得 $(0.58, 1.15)$，softmax 得 $(0.36, 0.64)$。第一个输出是
# $0.36 \cdot (1, 2, 0) + 0.64 \cdot (3, 2, 1) = (2.28, 2, 0.64)$。


# %%
def attention(Q, K, V):
    scores = Q @ ops.swapaxes(K, -1, -2) / Q.shape[-1] ** 0.5
    weights = ops.softmax(scores, axis=-1)
    return weights @ V, weights


output, weights = attention(*map(ops.convert_to_tensor, (Q, K, V)))
print("scores\n", Q @ K.T, "\nweights\n", np.round(weights, 2), "\noutput\n", np.round(output, 2))
np.testing.assert_allclose(output[0], [2.28, 2, 0.64], atol=0.005)

# %% [markdown] lang="en"
# [`MultiHeadAttention`](../layers/multi_head.md) with one head, our projections, and an output projection of ones on the
# diagonal gives the same:

# %% [markdown] lang="zh"
# [`MultiHeadAttention`](../layers/multi_head.zh.md) 取一个头、我们的投影矩阵、单位阵作输出投影，结果相同：

# %%
layer = MultiHeadAttention(num_heads=1, key_dim=3, use_bias=False, output_shape=3)
layer.build((1, 2, 2))
layer.set_weights(
    [W_Q[:, None], W_K[:, None], W_V[:, None], np.eye(3)[None]]
)  # (features, heads, d)
from_layer, scores = layer(x[None], return_attention_scores=True)
np.testing.assert_allclose(from_layer[0], output, atol=1e-5)
np.testing.assert_allclose(scores[0, 0], weights, atol=1e-5)

# %% [markdown] lang="en"
# ### Question: why divide by sqrt(d)?
#
# A product of two vectors is a sum of $d$ products. If their entries are independent with variance 1, the sum has
# variance $d$: with 512 features scores of $\pm 23$ are common. A softmax of such numbers puts all weight on one place,
# and its gradient is almost 0, so that training stands still. After the division by $\sqrt d$ the variance is 1, for any
# width. We draw random queries and keys, and look at the largest of ten weights and at the gradient.

# %% [markdown] lang="zh"
# ### 问：为什么要除以 sqrt(d)？ {: #transformer-sqrt }
#
# 点积是 $d$ 个乘积之和。若各分量独立、方差为 1，点积的方差就是 $d$：512 维时得分达到 $\pm 23$ 是常事。对这样的数做 softmax，权重全部压在一个位置上，
# 梯度几乎为 0，训练停滞。除以 $\sqrt d$ 后，无论宽度多大，方差都回到 1。我们随机取查询和键，看十个权重中最大的一个，以及梯度。

# %% [markdown] lang="en"
# > **Predict first.** How large is the largest of ten weights for $d = 2$, and for $d = 512$? Guess four numbers: divided by
# > $\sqrt d$, and not divided.

# %% [markdown] lang="zh"
# > **先猜一猜。** $d = 2$ 时，十个权重中最大的一个有多大？$d = 512$ 时呢？猜四个数：除以 $\sqrt d$ 的，和不除的。

# %% predict=true en="Left: the largest of ten weights. Right: the size of the softmax's gradient. Without the division both depend on the width." zh="左：十个权重中最大的一个。右：softmax 梯度的大小。不除的话，两者都随宽度变化。"
random = np.random.default_rng(6)
widths = [2, 8, 32, 128, 512]
largest = {"divided by sqrt(d)": [], "not divided": []}
gradient = {name: [] for name in largest}
for d in widths:
    products = np.einsum(
        "nd,nsd->ns", random.normal(size=(500, d)), random.normal(size=(500, 10, d))
    )
    for name, score in (("divided by sqrt(d)", products / d**0.5), ("not divided", products)):
        a = np.exp(score - score.max(axis=1, keepdims=True))
        a /= a.sum(axis=1, keepdims=True)
        largest[name].append(a.max(axis=1).mean())
        gradient[name].append((a * (1 - a)).sum(axis=1).mean())  # the Jacobian's diagonal
figure, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
for axis, values, title in zip(
    axes, (largest, gradient), ("largest weight", "gradient"), strict=True
):
    for name, line in values.items():
        axis.plot(widths, line, marker="o", label=name)
    axis.set(xscale="log", xlabel="d", title=title, ylim=(0, 1))
axes[0].legend()
plt.show()
assert np.ptp(largest["divided by sqrt(d)"]) < 0.1 < np.ptp(largest["not divided"])

# %% [markdown] lang="en"
# ## Eight heads
#
# One set of weights can look at one thing at a time. Eight heads can look at eight: each projects to an eighth of the width
# and reads by itself. $W^O$ mixes the eight results, laid side by side:
#
# $$
# \mathrm{head}_h = \mathrm{Attention}(x W^Q_h,\; y W^K_h,\; y W^V_h), \qquad
# o = [\mathrm{head}_1; \dots; \mathrm{head}_8]\, W^O
# $$
#
# In code it is the same function, and the heads are one more axis.

# %% [markdown] lang="zh"
# ## 八个头
#
# 一组权重一次只能看一样东西，八个头可以同时看八样：每个头有自己的投影，宽度是总宽度的八分之一，各读各的；八个结果并排放好，再由 $W^O$ 混合：
#
# $$
# \mathrm{head}_h = \mathrm{Attention}(x W^Q_h,\; y W^K_h,\; y W^V_h), \qquad
# o = [\mathrm{head}_1; \dots; \mathrm{head}_8]\, W^O
# $$
#
# 代码里还是那个函数，只是多了一个“头”的轴。


# %%
def multi_head(x, y, W_Q, W_K, W_V, W_O):
    def split(z, W):
        return ops.einsum("bsf,fhd->bhsd", z, W)

    heads, weights = attention(split(x, W_Q), split(y, W_K), split(y, W_V))
    return ops.einsum("bhtd,hdo->bto", heads, W_O), weights


words = random.normal(size=(2, 5, 64)).astype("float32")
eight = MultiHeadAttention(num_heads=8, key_dim=8, use_bias=False)
output, scores = eight(words, return_attention_scores=True)
kernels = eight.query_kernel, eight.key_kernel, eight.value_kernel, eight.output_kernel
by_hand = multi_head(ops.convert_to_tensor(words), ops.convert_to_tensor(words), *kernels)
np.testing.assert_allclose(output, by_hand[0], atol=1e-5)
np.testing.assert_allclose(scores, by_hand[1], atol=1e-5)
print("weights", scores.shape, "- sentences, heads, queries, keys")

# %% [markdown] lang="en"
# ## A block
#
# Attention mixes the places, and a small network then works at each place by itself. After each of the two, the input is
# added and the sum is normalised. That is the whole encoder block.

# %% [markdown] lang="zh"
# ## 一个块
#
# 注意力在位置之间交换信息，然后一个小网络在每个位置上单独计算。两者外面都是：加上输入，做归一化。编码器块就是这些。

# %%
block = TransformerEncoder(intermediate_dim=128, num_heads=8)
output = block(words)
x = block.self_attention_norm(words + block.self_attention(words))
x = block.feed_forward_norm(x + block.feed_forward(x))
np.testing.assert_allclose(output, x, atol=1e-5)

# %% [markdown] lang="en"
# ### Question: how does it know the order of the words?
#
# It does not. Shuffle the words, and the outputs are shuffled in the same way. So we add the order to the vectors:
#
# $$
# PE(p, 2i) = \sin\left(p / 10000^{2i/D}\right), \qquad PE(p, 2i+1) = \cos\left(p / 10000^{2i/D}\right)
# $$

# %% [markdown] lang="zh"
# ### 问：它怎么知道词序？ {: #transformer-order }
#
# 它不知道。把词打乱，输出只是跟着打乱。词序必须写进向量里（位置编码）：
#
# $$
# PE(p, 2i) = \sin\left(p / 10000^{2i/D}\right), \qquad PE(p, 2i+1) = \cos\left(p / 10000^{2i/D}\right)
# $$

# %%
shuffled = [3, 1, 4, 0, 2]
np.testing.assert_allclose(block(words[:, shuffled]), np.asarray(output)[:, shuffled], atol=1e-5)


def positions(length, width):
    angle = np.arange(length)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(length, width)


encoded = PositionalEncoding()(np.zeros((1, 50, 6), "float32"))[0]
np.testing.assert_allclose(encoded, positions(50, 6), atol=1e-5)
print("place 3:", np.round(encoded[3], 3))
moved = np.asarray(block(PositionalEncoding()(words[:, shuffled])))
assert not np.allclose(
    moved, np.asarray(block(PositionalEncoding()(words)))[:, shuffled], atol=0.01
)

# %% [markdown] lang="en"
# ## Trained: sort the letters of a word
#
# The source is "keyboard", and the target is "abdekory". The model has to find each letter among all of them: the smallest
# that is not yet written. It has one encoder block and one decoder block of 64 features and eight heads. A causal mask hides later words
# from the decoder; without it, the decoder would read the answer.

# %% [markdown] lang="zh"
# ## 训练：给单词的字母排序
#
# 源端 “keyboard”，目标 “abdekory”。每写一个字母，都要在全部字母里找：还没写出的最小的那一个。编码器、解码器各一个块，64 维，八个头。
# 解码器内部用因果掩码挡住后面的词；不挡，它就直接读到答案了。

# %% tiny="WORDS, EPOCHS = 64, 1"
WORDS, EPOCHS = 12_800, 6
LETTERS, LENGTH, WIDTH = 26, 8, 64
START = LETTERS
source = random.integers(0, LETTERS, (WORDS + 500, LENGTH))
target = np.sort(source, axis=1)
before = np.concatenate([np.full((len(target), 1), START), target[:, :-1]], axis=1)

read, written = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
memory = TransformerEncoder(2 * WIDTH, num_heads=8)(layers.Embedding(LETTERS, WIDTH)(read))
state = PositionalEncoding(scale=True)(layers.Embedding(LETTERS + 1, WIDTH)(written))
state, weights = TransformerDecoder(2 * WIDTH, num_heads=8)(
    state, memory, return_attention_scores=True
)
logits = layers.Dense(LETTERS)(state)
model = keras.Model([read, written], logits)
reader = keras.Model([read, written], [logits, weights["cross_attention"]])
model.compile(
    keras.optimizers.Adam(2e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
)
train = slice(0, WORDS)
history = model.fit(
    [source[train], before[train]], target[train], batch_size=64, epochs=EPOCHS, verbose=0
)
print("loss:", *(f"{value:.3f}" for value in history.history["loss"]))


# %%
def sort(source):
    found = np.full((len(source), LENGTH), START)
    for step in range(LENGTH):
        logits, weights = reader.predict([source, found], verbose=0)
        if step + 1 < LENGTH:
            found[:, step + 1] = np.argmax(logits[:, step], axis=-1)
    return np.argmax(logits, axis=-1), weights


answers, _ = sort(source[WORDS:])
right = np.mean(np.all(answers == target[WORDS:], axis=1))
print(f"words sorted without an error: {right:.1%}")

# %% trained=true
assert right > 0.9

# %% [markdown] lang="en"
# ## What eight heads look at
#
# The rows are the written letters, and the columns are those of the source. Nobody told the heads to divide the work.

# %% [markdown] lang="zh"
# ## 八个头各看什么
#
# 行是写出的字母，列是源端字母。没有人告诉各个头怎样分工。

# %% en="Cross attention of the eight heads and their mean while 'keyboard' is sorted." zh="给 “keyboard” 排序时，八个头的交叉注意力及其平均。"
WORD = "keyboard"
answer, heads = sort(np.array([[ord(letter) - ord("a") for letter in WORD]]))
sorted_word = "".join(chr(letter + ord("a")) for letter in answer[0])
figure, axes = plt.subplots(2, 5, figsize=(11, 4.6), layout="constrained")
panels = [(f"head {h + 1}", heads[0, h]) for h in range(8)] + [("mean", heads[0].mean(axis=0))]
for axis, (title, panel) in zip(axes.flat, panels, strict=False):
    axis.imshow(panel, cmap="Blues", vmin=0, vmax=1)
    axis.set_title(title, fontsize=10)
    axis.set_xticks(range(LENGTH), WORD)
    axis.set_yticks(range(LENGTH), sorted_word)
axes.flat[-1].axis("off")
plt.show()
print(WORD, "->", sorted_word)

# %% [markdown] lang="en"
# One word is an anecdote. Over the 500 new words we ask each head: how much of its weight lies on the letter that is
# being written, and for which letters is that most and least?

# %% [markdown] lang="zh"
# 一个单词只是个例。在 500 个新单词上，我们问每个头：它的权重有多少落在正在写的字母上？对哪些字母最多，对哪些最少？

# %%
answers, heads = sort(source[WORDS:])
same = source[WORDS:][:, None, None, :] == answers[:, None, :, None]
on_letter = np.sum(heads * same, axis=-1)  # (words, heads, steps)
for h in range(8):
    share = np.array(
        [
            np.sum(on_letter[:, h] * (answers == letter)) / max(1, np.sum(answers == letter))
            for letter in range(LETTERS)
        ]
    )
    names = [f"{chr(letter + ord('a'))} {share[letter]:.0%}" for letter in np.argsort(-share)]
    print(f"head {h + 1}: {np.mean(on_letter[:, h]):.0%}; most", *names[:3], "- least", *names[-3:])

# %% [markdown] lang="en"
# All heads look for the same thing, the letter that is being written, and each puts about half of its weight there. What
# they divide is the alphabet:
#
# - Head 1 finds letters from the middle of the alphabet on, `o` and `p` best, and hardly looks at an `a`.
# - Head 2 finds `c` and `d`, and the end of the alphabet, but not `a`.
# - Head 3 finds `a`, and letters that lie far apart, `i`, `t` and `q`; it is weakest from `k` to `p`.
# - Head 4 is the most even of all: no letter has much more of it than the others.
# - Head 5 finds the beginning, `a` almost always; of the letters in the middle it finds a third.
# - Head 6 finds `c`, `o` and `b`, and is weakest near the end.
# - Head 7 finds the letters from `d` to `h`, `g` best, and little else.
# - Head 8 finds `e` and `b`, and hardly looks at an `r` or a `z`.
#
# Where one is weak another is strong, so their mean, the last map, is on the right letter. Another seed would divide the
# alphabet in another way.

# %% [markdown] lang="zh"
# 所有的头找的是同一样东西：正在写的字母，各有大约一半的权重在那里。它们分工的是字母表：
#
# - 头 1 找字母表中部以后的字母，`o` 和 `p` 最好，几乎不看 `a`。
# - 头 2 找 `c` 和 `d`，以及字母表末尾，但不找 `a`。
# - 头 3 找 `a`，以及相距很远的 `i`、`t` 和 `q`；从 `k` 到 `p` 最弱。
# - 头 4 最均匀：没有哪个字母得到的比别的多很多。
# - 头 5 找开头的字母，`a` 几乎每次都找到；中部的字母只有三分之一。
# - 头 6 找 `c`、`o` 和 `b`，靠近末尾最弱。
# - 头 7 找从 `d` 到 `h` 的字母，`g` 最好，别的很少。
# - 头 8 找 `e` 和 `b`，几乎不看 `r` 和 `z`。
#
# 一个头弱的地方，另一个头强，所以它们的平均（最后一张图）落在正确的字母上。换一个种子，分工也会不同。

# %% [markdown] lang="en"
# ## Exercises
#
# **1.** Multiply all keys of the example by hand by 10. What do the weights become? And by 0? Hand in the two arrays.

# %% [markdown] lang="zh"
# ## 练习
#
# **1.** 把手算例子里的键全部乘以 10，权重变成什么？乘以 0 呢？交这两个数组。

# %% exercise=true
answer = ...  # your answer
check("6.1", answer)

# %% answer=true
tensors = [ops.convert_to_tensor(each) for each in (Q, K, V)]
_, sharp = attention(tensors[0], 10 * tensors[1], tensors[2])
np.testing.assert_allclose(sharp, [[0, 1], [0, 1]], atol=0.01)  # all on the greater score
_, even = attention(tensors[0], 0 * tensors[1], tensors[2])
np.testing.assert_allclose(even, 0.5)  # the mean of the values
assert check("6.1", [sharp, even])

# %% [markdown] lang="en"
# **2.** Eight heads of 8 features, or one head of 64: which has more weights? Hand in both numbers, for words of 64 features
# and without biases.

# %% [markdown] lang="zh"
# **2.** 八个 8 维的头与一个 64 维的头，哪个参数多？设词为 64 维、没有偏置，交这两个数。

# %% exercise=true
answer = ...  # your answer
check("6.2", answer)

# %% answer=true
one = MultiHeadAttention(num_heads=1, key_dim=64, use_bias=False)
one(words)
assert one.count_params() == eight.count_params() == 4 * 64 * 64  # neither
assert check("6.2", [eight.count_params(), one.count_params()])

# %% [markdown] lang="en"
# **3.** With a causal mask, at which places does the output change with the last of five words? Show it with the layer, and
# hand in the list of places, counted from 0.

# %% [markdown] lang="zh"
# **3.** 用了因果掩码，改动五个词中的最后一个，哪些位置的输出会变？用层验证，交位置的列表，从 0 数起。

# %% exercise=true
answer = ...  # your answer
check("6.3", answer)

# %% answer=true
changed = words.copy()
changed[:, -1] += 1
one_way, other_way = (eight(each, use_causal_mask=True) for each in (words, changed))
np.testing.assert_allclose(one_way[:, :-1], other_way[:, :-1], atol=1e-6)
moved = np.max(np.abs(np.asarray(one_way - other_way)), axis=(0, 2)) > 1e-5
assert check("6.3", np.flatnonzero(moved))

# %% [markdown] lang="en"
# **4.** Our sorter's encoder has no positions. Does the order of the letters change the sorted word? Read the source
# backwards, and hand in how far the logits change at most.

# %% [markdown] lang="zh"
# **4.** 我们的排序模型的编码器没有位置编码。字母的次序不同，排序结果一样吗？把源端倒过来读，交 logits 最多变化了多少。

# %% exercise=true
answer = ...  # your answer
check("6.4", answer)

# %% answer=true
mixed = source[WORDS:, ::-1]
backwards, forwards = (
    reader.predict([each, before[WORDS:]], verbose=0)[0] for each in (mixed, source[WORDS:])
)
assert check("6.4", np.max(np.abs(backwards - forwards)))
# The same, right or wrong: to it a word is a bag of letters, and sorting needs no more

# %% [markdown] lang="en"
# **Source.** Vaswani et al. 2017, "Attention is all you need". The layers:
# [MultiHeadAttention](../layers/multi_head.md), [positions](../layers/positions.md),
# [the blocks](../layers/transformer.md). Next: [what pretrained models do with it](07_pretrained.md).

# %% [markdown] lang="zh"
# **出处**：Vaswani et al. 2017, “Attention is all you need”。层：[MultiHeadAttention](../layers/multi_head.zh.md)、
# [位置编码](../layers/positions.zh.md)、[Transformer 块](../layers/transformer.zh.md)。下一讲：[预训练模型拿它做什么](07_pretrained.zh.md)。
