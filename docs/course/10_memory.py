# %% [markdown] lang="en"
# # 10. Memory
#
# [Lecture 1](01_single_vector.md) had one vector for a whole sentence, and it was too little. [Lecture 2](02_bahdanau.md)
# kept the states of all words. A decoder that attends to its own words, as in [lecture 6](06_transformer.md), does the
# same: for each word it keeps a key and a value. They are what it remembers, and they grow with the text.
#
# Since then people have looked for something between the two. What does a decoder keep after $t$ words, in one layer of
# $H$ heads with $d$ features each?
#
# | mechanism | numbers kept |
# | --- | --- |
# | all pairs: keys and values of all heads (Vaswani et al. 2017) | $2 H d\, t$ |
# | groups: $G$ heads of keys and values serve all $H$ queries (Ainslie et al. 2023) | $2 G d\, t$ |
# | [latent](../layers/latent_attention.md): one short vector of $m$ numbers, from which all keys and values are made (DeepSeek-AI 2024) | $m\, t$ |
# | [window](../layers/newer_options.md#a-cache-that-rolls): the last $w$ words, and the first $n$ as sinks (Xiao et al. 2024) | $2 H d \, \min(t, w + n)$ |
# | linear: a sum of products of keys and values (Katharopoulos et al. 2020) | $H d (d + 1)$ |
# | delta: the same matrix, in which a new value replaces the old (Yang et al. 2025) | $H d^2$ |
# | GRU: one vector of $U$ numbers (lecture 1) | $U$ |
#
# The first three grow with $t$, the last three do not, and the window grows until it is full. This page counts their
# bytes, shows that attention can be a recurrent net, and then measures what each of the seven forgets.

# %% [markdown] lang="zh"
# # 10. 记忆
#
# [第 1 讲](01_single_vector.zh.md)里，整个句子只有一个向量，不够用；[第 2 讲](02_bahdanau.zh.md)留下了所有词的状态。像[第 6 讲](06_transformer.zh.md)那样
# 看自己写过的词的解码器也是这样：每个词留下一个键和一个值。这就是它记住的东西，文本越长就越多。
#
# 后来人们一直在两者之间找折中。一层有 $H$ 个头、每个头 $d$ 维，读过 $t$ 个词之后，解码器留下多少个数？
#
# | 机制 | 留下多少个数 |
# | --- | --- |
# | 全部键值对：所有头的键和值（Vaswani 等 2017） | $2 H d\, t$ |
# | 分组：$G$ 个头的键和值供全部 $H$ 个查询使用（Ainslie 等 2023） | $2 G d\, t$ |
# | [潜在向量](../layers/latent_attention.zh.md)：一个 $m$ 维的短向量，所有的键和值都由它做出（DeepSeek-AI 2024） | $m\, t$ |
# | [窗口](../layers/newer_options.zh.md)：最近的 $w$ 个词，加上最前面的 $n$ 个词作汇点（Xiao 等 2024） | $2 H d \, \min(t, w + n)$ |
# | 线性：键与值的乘积之和（Katharopoulos 等 2020） | $H d (d + 1)$ |
# | delta：同样的矩阵，但新值代替旧值（Yang 等 2025） | $H d^2$ |
# | GRU：一个 $U$ 维的向量（第 1 讲） | $U$ |
#
# 前三种随 $t$ 增长，后三种不增长，窗口装满之后不再增长。本页先数它们的字节，再说明注意力也可以看作循环网络，然后测量这七种机制各忘掉什么。

# %%
from keras_attention_command import quiet

quiet()

import keras
import matplotlib.pyplot as plt
import numpy as np
from keras import layers

from keras_attention import (
    GatedDeltaNet,
    LinearAttention,
    MultiHeadAttention,
    MultiHeadLatentAttention,
)
from keras_attention.course import check

keras.utils.set_random_seed(10)
random = np.random.default_rng(10)

# %% [markdown] lang="en"
# ## What is kept
#
# A layer makes room for what its steps keep with `initial_state`; in Keras' GRU it is `get_initial_state`. We make seven
# layers of width 512, and count the bytes. Groups are two heads, latent vectors have 128 numbers, and the window holds 256
# words and 4 sinks.

# %% [markdown] lang="zh"
# ## 留下了什么
#
# 层用 `initial_state` 为逐步计算时要留下的东西准备位置；Keras 的 GRU 用 `get_initial_state`。我们建七个宽 512 的层，数一数字节。分组是两个头，潜在向量是 128 个数，
# 窗口放得下 256 个词和 4 个汇点。


# %%
def mechanisms(heads, size, window, units):
    return {
        "all pairs": MultiHeadAttention(heads, size),
        "groups": MultiHeadAttention(heads, size, num_key_value_heads=heads // 4),
        "latent": MultiHeadLatentAttention(heads, size, latent_dim=2 * size, rotary_dim=0),
        "window": MultiHeadAttention(heads, size, window=window, num_sinks=4),
        "linear": LinearAttention(heads, size),
        "delta": GatedDeltaNet(heads, size, conv_size=None, use_gate=False),
        "GRU": layers.GRU(units, return_sequences=True),
    }


def bytes_kept(name, layer, length):
    if name == "GRU":
        state = layer.get_initial_state(1)
    elif name in ("all pairs", "groups", "latent"):
        state = layer.initial_state(1, length)
    else:
        state = layer.initial_state(1)
    return sum(np.asarray(part).nbytes for part in keras.tree.flatten(state))


large = mechanisms(heads=8, size=64, window=256, units=512)
for layer in large.values():
    layer.build((1, None, 512))
lengths = [4**power for power in range(1, 8)]
kept = {name: [bytes_kept(name, large[name], t) for t in lengths] for name in large}

# %% [markdown] lang="en"
# > **Predict first.** The matrix of linear attention is large, and a key with its value is small. After how many words do
# > all pairs take more bytes than the matrix: about 30, 300 or 3,000?

# %% [markdown] lang="zh"
# > **先猜一猜。** 线性注意力的矩阵很大，一个键加一个值很小。多少个词之后，全部键值对占的字节比这个矩阵多：大约 30、300 还是 3000？

# %% predict=true en="Bytes that one layer of width 512 keeps for one text, in float32: three mechanisms grow, four do not." zh="宽 512 的一层为一个文本留下的字节（float32）：三种机制增长，四种不增长。"
COLOURS = {
    "all pairs": "#3f51b5",
    "groups": "#0072b2",
    "latent": "#56b4e9",
    "window": "#009e73",
    "linear": "#e69f00",
    "delta": "#d55e00",
    "GRU": "#cc79a7",
}
figure, axis = plt.subplots(figsize=(7, 3.8), layout="constrained")
for name, sizes in kept.items():
    style = "-" if sizes[-1] > sizes[0] else "--"
    width = 6 if name == "linear" else 2  # delta lies on it
    axis.plot(lengths, sizes, style, linewidth=width, color=COLOURS[name], label=name)
axis.set(xscale="log", yscale="log", xlabel="words read", ylabel="bytes kept")
axis.set_xticks(lengths, [f"{t:,}" for t in lengths])
axis.set_yticks([1e4, 1e5, 1e6, 1e7], ["10 kB", "100 kB", "1 MB", "10 MB"])
axis.minorticks_off()
axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()
print(f"{'words':9}", *(f"{t:>10,}" for t in lengths))
for name, sizes in kept.items():
    print(f"{name:9}", *(f"{size:10,}" for size in sizes))

# %% [markdown] lang="en"
# A word takes $2 H d$ numbers, and the matrices take $H d (d + 1)$: they are equal after $(d + 1) / 2 = 32.5$ words. At
# 16,384 words the difference is a factor of 504. Groups and latent vectors save a factor, and their lines stay
# parallel to the first one. Only a window, or a state of fixed size, stops growing.
#
# ## Attention as a recurrent net
#
# Every step on this page takes a word and a state, and gives an output and the next state. With softmax, the state is the
# list of pairs, and a step puts one more at its end. How can attention have a state of fixed size? Softmax weighs a value by $\exp(q^\top k)$, and needs each key beside the
# query. Katharopoulos et al. (2020) take a product of features, $\phi(q)^\top \phi(k)$, in place of the exponential. Then
# the sum over the past no longer depends on the query, and can be taken first:
#
# $$
# o_t = \frac{\sum_{s \le t} \phi(q_t)^\top \phi(k_s)\, v_s^\top}{\sum_{s \le t} \phi(q_t)^\top \phi(k_s)}
# = \frac{\phi(q_t)^\top S_t}{\phi(q_t)^\top z_t}, \qquad
# S_t = S_{t-1} + \phi(k_t) v_t^\top, \quad z_t = z_{t-1} + \phi(k_t)
# $$
#
# On the left is attention, as in lecture 6. On the right is a recurrent net, as in lecture 1: a state, a step that updates
# it, and an output that is read from it. Both are the same numbers. Here is the right side by hand, with
# $\phi(x) = \mathrm{elu}(x) + 1$:

# %% [markdown] lang="zh"
# 一个词占 $2 H d$ 个数，矩阵占 $H d (d + 1)$ 个：$(d + 1) / 2 = 32.5$ 个词之后两者相等。到 16384 个词时相差 504 倍。分组和潜在向量省下的是一个固定的倍数，
# 它们的线与第一条平行；只有窗口和固定大小的状态不再增长。
#
# ## 把注意力看作循环网络
#
# 本页的每一步都是：给一个词和一个状态，得到输出和下一个状态。用 softmax 时，状态就是键值对的列表，每一步在末尾加一对。注意力怎么会有固定大小的状态？softmax 用 $\exp(q^\top k)$ 给值加权，每个键都要与查询放在一起算。Katharopoulos 等（2020）用特征的乘积
# $\phi(q)^\top \phi(k)$ 代替指数。这样，对过去求的和就不再依赖查询，可以先求出来：
#
# $$
# o_t = \frac{\sum_{s \le t} \phi(q_t)^\top \phi(k_s)\, v_s^\top}{\sum_{s \le t} \phi(q_t)^\top \phi(k_s)}
# = \frac{\phi(q_t)^\top S_t}{\phi(q_t)^\top z_t}, \qquad
# S_t = S_{t-1} + \phi(k_t) v_t^\top, \quad z_t = z_{t-1} + \phi(k_t)
# $$
#
# 左边是第 6 讲的注意力，右边是第 1 讲的循环网络：一个状态，更新它的一步，从它读出的输出。两边的数完全相同。下面手写右边，取
# $\phi(x) = \mathrm{elu}(x) + 1$：


# %%
def phi(x):
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


words = random.normal(size=(1, 6, 8)).astype("float32")
layer = LinearAttention(num_heads=1, key_dim=4, use_bias=False)
whole = layer(words, use_causal_mask=True)
W_Q, W_K, W_V, W_O = (np.squeeze(weight) for weight in layer.get_weights())

S, z = np.zeros((4, 4)), np.zeros(4)
for t, x in enumerate(words[0]):
    q, k, v = phi(x @ W_Q), phi(x @ W_K), x @ W_V
    S, z = S + np.outer(k, v), z + k
    np.testing.assert_allclose(q @ S / (q @ z) @ W_O, whole[0, t], atol=1e-5)

# %% [markdown] lang="en"
# The `step` of [`LinearAttention`](../layers/linear_attention.md) does the same, and its state has the same size after any
# number of words:

# %% [markdown] lang="zh"
# [`LinearAttention`](../layers/linear_attention.zh.md) 的 `step` 做的是同样的事，无论多少个词，状态的大小都一样：

# %%
state = layer.initial_state(batch_size=1)
for t in range(6):
    output, state = layer.step(words[:, t], state)
    np.testing.assert_allclose(output, whole[:, t], atol=1e-5)
np.testing.assert_allclose(state["sums"][0, 0], np.column_stack([S, z]), atol=1e-5)
print("state:", state["sums"].shape, "- texts, heads, features of a key, features of a value + 1")

# %% [markdown] lang="en"
# ### Question: does softmax have such a state, too?
#
# Yes, but an infinite one: $\exp(q^\top k) = \sum_n (q^\top k)^n / n!$ is a product of features as well, of all powers of
# the key. Linear attention keeps finitely many. That is what it gives up.
#
# ## A sum, or a new value in place of the old
#
# A matrix $S$ is a dictionary: $k^\top S$ looks up the key $k$. The sum only ever adds. Write a key twice, and it returns
# the mean of both values. The **delta rule** first reads what $S$ has for the key, and adds only the difference:
#
# $$
# S_t = S_{t-1} + \beta_t\, k_t (v_t - k_t^\top S_{t-1})^\top
# $$
#
# With $\beta = 1$ and keys of length 1 the new value replaces the old. In the **gated** delta rule, the matrix fades by
# $\alpha_t \le 1$ before each step, too. That is [`GatedDeltaNet`](../layers/gated_delta_net.md), whose page has $S$
# transposed.

# %% [markdown] lang="zh"
# ### 问：softmax 也有这样的状态吗？ {: #memory-softmax }
#
# 有，但是无限大：$\exp(q^\top k) = \sum_n (q^\top k)^n / n!$ 也是特征的乘积，特征是键的所有次幂。线性注意力只留下有限个，放弃的就是其余的。
#
# ## 求和，还是用新值代替旧值
#
# 矩阵 $S$ 是一部词典：$k^\top S$ 就是查键 $k$。求和只会往上加：同一个键写两次，读出来的是两个值的平均。**delta 规则**先读出 $S$ 里这个键已有的值，只加上差：
#
# $$
# S_t = S_{t-1} + \beta_t\, k_t (v_t - k_t^\top S_{t-1})^\top
# $$
#
# 当 $\beta = 1$、键的长度为 1 时，新值代替旧值。**门控** delta 规则还让矩阵在每一步之前衰减，乘以 $\alpha_t \le 1$：这就是
# [`GatedDeltaNet`](../layers/gated_delta_net.zh.md)，那一页的 $S$ 是这里的转置。


# %%
def add(S, k, v):
    return S + np.outer(k, v)


def delta(S, k, v, beta=1.0):
    return S + beta * np.outer(k, v - k @ S)


cat = np.array([1.0, 0])
S, z, D = np.zeros((2, 1)), np.zeros(2), np.zeros((2, 1))
for value in (1.0, 5.0):
    S, z, D = add(S, cat, [value]), z + cat, delta(D, cat, [value])
print("cat was 1, and is now 5")
print("linear attention reads", cat @ S / (cat @ z), "- the delta rule reads", cat @ D)

# %% [markdown] lang="en"
# ## The task: look it up
#
# How many pairs can each mechanism hold? The data are dictionaries. At each step the model reads one new pair, a key and
# its value, and is asked for one of the keys that it has read so far. So step $t$ tells how well it remembers $t$ pairs:
#
# | step | pair | asked for | answer |
# | --- | --- | --- | --- |
# | 1 | 17 → 3 | 17 | 3 |
# | 2 | 98 → 11 | 17 | 3 |
# | 3 | 40 → 0 | 98 | 11 |
#
# Keys are 64 of 128, in random order; each value is one of 16, so that guessing is right in 6 %. Nothing can be learned by
# heart: each dictionary is new. This is called associative recall.

# %% [markdown] lang="zh"
# ## 任务：查词典
#
# 每种机制能记住多少对？数据是一部部词典。每一步，模型读一对新的键和值，并被问到已经读过的某一个键。所以第 $t$ 步说明它把 $t$ 对记得多好：
#
# | 步 | 键值对 | 问 | 答 |
# | --- | --- | --- | --- |
# | 1 | 17 → 3 | 17 | 3 |
# | 2 | 98 → 11 | 17 | 3 |
# | 3 | 40 → 0 | 98 | 11 |
#
# 键是 128 个中的 64 个，次序随机；值有 16 种，乱猜的正确率是 6 %。每部词典都是新的，背不下来。这个任务叫联想回忆（associative recall）。

# %% tiny="DICTIONARIES, TESTED = 64, 8"
DICTIONARIES, TESTED = 32_000, 1000
PAIRS, KEYS, VALUES, WIDTH = 64, 128, 16, 32


def make(count):
    keys = random.permuted(np.tile(np.arange(KEYS), (count, 1)), axis=1)[:, :PAIRS]
    values = random.integers(0, VALUES, (count, PAIRS))
    asked = random.integers(0, np.arange(1, PAIRS + 1), (count, PAIRS))
    asked_keys, answers = (np.take_along_axis(x, asked, axis=1) for x in (keys, values))
    return [keys, values, asked_keys], answers


train, right = make(DICTIONARIES)
tests, expected = make(TESTED)
print("read", *(f"{k}→{v}" for k, v in zip(train[0][0, :6], train[1][0, :6], strict=True)))
print("asked", *train[2][0, :6], "- answers", *right[0, :6])

# %% [markdown] lang="en"
# ## Seven models, one difference
#
# The three embeddings stand side by side. One layer of the mechanism reads them, and two dense layers answer. Heads are
# small, four of eight features, so that 64 pairs are a lot: the matrices have 256 numbers (with the sums $z$ 288), and the
# GRU has 128. The embeddings start far apart, and `GatedDeltaNet` leaves out its convolution and its output gate. With
# the gate it learned more slowly: after 2,500 batches in place of 1,000, 26 % were right after 64 pairs.

# %% [markdown] lang="zh"
# ## 七个模型，一处不同
#
# 三个词嵌入并排放好，由一层机制来读，再由两个全连接层回答。头很小，四个头，每个八维，这样 64 对就算多了：矩阵有 256 个数（加上 $z$ 的和是
# 288 个），GRU 有 128 个。词嵌入一开始就相距很远；`GatedDeltaNet` 不用卷积和输出门。带着输出门时学得更慢：训练 2500 个批次（这里是 1000 个），64 对之后的正确率
# 才 26 %。


# %%
def model_of(layer):
    inputs = [keras.Input((PAIRS,), dtype="int32") for _ in range(3)]
    normal = keras.initializers.RandomNormal(stddev=1.0)  # keys that differ from the start
    embedded = [
        layers.Embedding(size, WIDTH, embeddings_initializer=normal)(ids)
        for size, ids in zip((KEYS, VALUES, KEYS), inputs, strict=True)
    ]
    x = layers.Concatenate()(embedded)
    found = layer(x) if isinstance(layer, layers.GRU) else layer(x, use_causal_mask=True)
    hidden = layers.Dense(64, activation="relu")(layers.Concatenate()([x, found]))
    model = keras.Model(inputs, layers.Dense(VALUES)(hidden))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2), loss)
    return model


def measure(layer):
    """Train a model; return its share of right answers at each step."""
    model = model_of(layer)
    model.fit(train, right, batch_size=32, verbose=0)
    answers = np.argmax(model.predict(tests, verbose=0), axis=-1)
    return np.mean(answers == expected, axis=0)


small = mechanisms(heads=4, size=8, window=16, units=128)
accuracy = {name: measure(layer) for name, layer in small.items()}

# %% [markdown] lang="en"
# > **Predict first.** Which of the seven lines stay at 100 %? Which fall, and which of those falls at once, which slowly?
# > The window holds 16 pairs and the first 4.

# %% [markdown] lang="zh"
# > **先猜一猜。** 七条线里，哪些一直是 100 %？哪些下降？其中哪条一下子掉下去，哪条慢慢下降？窗口能放下 16 对，加上最前面的 4 对。

# %% predict=true en="Share of right answers by the number of pairs read: those that keep every pair answer, the others forget." zh="正确率随读过的对数的变化：留下每一对的都能回答，其余的会忘。"
figure, axis = plt.subplots(figsize=(7, 3.8), layout="constrained")
for (name, line), width in zip(accuracy.items(), (7, 4.5, 2, 2, 2, 2, 2), strict=True):
    style = "-" if name in ("all pairs", "groups", "latent") else "--"
    axis.plot(range(1, PAIRS + 1), line, style, linewidth=width, color=COLOURS[name], label=name)
axis.axhline(1 / VALUES, color="0.6", linewidth=0.8)
axis.text(1, 1 / VALUES - 0.05, "guessing", color="0.4", fontsize=8)
axis.set(xlabel="pairs read", ylabel="right answers", ylim=(0, 1.03))
axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

columns = [1, 2, 4, 8, 16, 32, 48, 64]
print(f"{'pairs':9}", *(f"{n:5}" for n in columns), "  bytes")
for name, line in accuracy.items():
    shown = (f"{line[n - 1]:5.0%}" for n in columns)
    print(f"{name:9}", *shown, f"{bytes_kept(name, small[name], PAIRS):7,}")

# %% trained=true
assert min(accuracy[name][-16:].mean() for name in ("all pairs", "groups", "latent")) > 0.95
assert all(accuracy[name][-16:].mean() < 0.9 for name in ("window", "linear", "delta", "GRU"))

# %% [markdown] lang="en"
# What keeps every pair answers every question, and groups and latent vectors do so with a quarter of the bytes. The others
# forget, each in its own way:
#
# - The **window** is perfect up to 20 pairs, and then it has nothing of the pairs that left. After 64 pairs it holds 20, and
#   guesses one in sixteen of the rest: $(20 + 44/16)/64 = 36$ %, where 34 % were measured.
# - The **matrices** lose no pair at once. Each new pair makes all others less clear, since a head of eight features has at
#   most eight keys at right angles, and further keys must share.
# - **Delta** forgets sooner than linear attention here. Its strength is a new value for an old key, and no key comes twice
#   in these data. It also has to learn not to fade.
# - The **GRU** has the smallest state, and learns least: two pairs are already too many. It writes and reads without keys,
#   so that the dense layers would have to find a place for each key. A run of 2,500 batches ended where this one did, with
#   11 % after 64 pairs.
#
# Is it too little training? Partly. After 3,000 batches (96,000 dictionaries), linear attention was right in 78 % and delta in 69 % of the
# answers after 64 pairs. But the three that keep every pair need no more than the 1,000, and no training adds numbers to a
# state.
#
# ## A larger state forgets later
#
# If the size of the state is what counts, heads of more features must remember more. We train linear attention with heads
# of 4 and of 16 features, too.

# %% [markdown] lang="zh"
# 留下每一对的，每个问题都能回答；分组和潜在向量做到这一点只用了四分之一的字节。其余的会忘，各有各的忘法：
#
# - **窗口**在 20 对以内毫无差错，之后，离开窗口的就一点也没有了。64 对之后它有 20 对，其余的猜中十六分之一：$(20 + 44/16)/64 = 36$ %，测得 34 %。
# - **矩阵**不会一下子丢掉一对，而是每来一对，其余的就都模糊一点：八维的头最多有八个互相垂直的键，再多就得共用。
# - **delta** 在这里比线性注意力忘得早。它的长处是给旧键换上新值，而这份数据里没有哪个键出现两次；它还得学会不衰减。
# - **GRU** 的状态最小，学到的也最少：两对就已经太多。它写和读都没有键，每个键放在哪里，要由全连接层去找。训练 2500 个批次，结果也没有变：64 对之后 11 %。
#
# 是训练得不够吗？有一部分是。3000 个批次（96000 部词典）之后，64 对时线性注意力的正确率是 78 %，delta 是 69 %；而留下每一对的三种，1000 个批次就够了。
# 训练再多，状态里的数也不会变多。
#
# ## 状态越大，忘得越晚
#
# 如果起作用的是状态的大小，头的维数越多，就应当记得越多。我们再训练头为 4 维和 16 维的线性注意力。

# %% en="Linear attention with heads of 4, 8 and 16 features: a larger matrix holds more pairs." zh="线性注意力，头为 4、8、16 维：矩阵越大，装下的对越多。"
sizes = {
    4: measure(LinearAttention(num_heads=4, key_dim=4)),
    8: accuracy["linear"],
    16: measure(LinearAttention(num_heads=4, key_dim=16)),
}
figure, axis = plt.subplots(figsize=(7, 3.2), layout="constrained")
for (size, line), width in zip(sizes.items(), (1, 2, 3.5), strict=True):
    label = f"{size} features: {4 * size * (size + 1):,} numbers"
    axis.plot(
        range(1, PAIRS + 1), line, "--", linewidth=width, color=COLOURS["linear"], label=label
    )
    print(f"{label}: {line[-8:].mean():.0%} right after 57 to 64 pairs")
axis.set(xlabel="pairs read", ylabel="right answers", ylim=(0, 1.03))
axis.legend(loc="lower left")
plt.show()

# %% trained=true
assert sizes[4][-8:].mean() < sizes[8][-8:].mean() < sizes[16][-8:].mean()

# %% [markdown] lang="en"
# The curve falls each time, and a larger matrix moves the fall to the right. As in lecture 1, a state of fixed size has
# its limit somewhere. What has changed is how far away it is: 80 numbers that are written and read by keys still answer
# 6 of 10 questions after 16 pairs, and the GRU's 128 numbers 2 of 10.
#
# So what should a decoder keep? It depends on what is asked of it. A sentence to translate is short, and the translator of
# [lecture 9](09_real_translator.md) keeps one vector a layer of its own words, an [SSRU](../layers/ssru.md): it can look up
# the source by attention. A language model that is asked for a name from page one must have kept it. Many new ones mix
# both: most layers keep a state of fixed size, and a few keep all pairs.
#
# The course began with a vector that was too small, and attention was the way out. Now the two are ends of one scale: a state
# that grows and forgets nothing, and a state that stays and forgets.
#
# ## Exercises
#
# **1.** A language model has 32 layers, each with 8 heads of keys and values of 128 features, in numbers of 2 bytes. How
# many KiB does it keep for a word, and how many GiB for a text of 32,768 words? And after how many words does a layer
# that keeps all pairs, with heads of 128 features, hold more numbers than the sums of linear attention with such heads?
# Hand in the three numbers.

# %% [markdown] lang="zh"
# 每条曲线都会下降，矩阵越大，下降越晚。和第 1 讲一样，固定大小的状态总有个限度；变了的是限度有多远：按键写、按键读的 80 个数，16 对之后还能答对十个问题中的六个，而 GRU 的
# 128 个数只能答对两个。
#
# 那么解码器该留下什么？要看会问它什么。要翻译的句子很短，[第 9 讲](09_real_translator.zh.md)的翻译器对自己写过的词，每层只留一个向量，即
# [SSRU](../layers/ssru.zh.md)：源句可以用注意力去查。语言模型如果会被问到第一页上的一个名字，就必须把它留着。许多新的模型两者都用：大部分层留固定大小的状态，
# 少数层留下全部键值对。
#
# 这门课从一个太小的向量讲起，注意力是出路。现在看来，两者是同一把尺子的两端：一种状态不断增长，什么也不忘；一种状态大小不变，会忘。
#
# ## 练习
#
# **1.** 一个语言模型有 32 层，每层 8 个头的键和值，每个 128 维，每个数 2 字节。每个词留下多少 KiB？32768 个词的文本留下多少 GiB？
# 再有：头是 128 维时，多少个词之后，留下全部键值对的一层比线性注意力的和（同样的头）存的数更多？交这三个数。

# %% exercise=true
answer = ...  # your answer
check("10.1", answer)

# %% answer=true
a_word = 32 * 2 * 8 * 128 * 2
numbers = {t: 2 * 8 * 128 * t for t in range(100)}
first = next(t for t in numbers if numbers[t] > 8 * 128 * 129)
assert a_word == 128 * 2**10 and a_word * 32_768 == 4 * 2**30 and first == 65
assert check("10.1", [a_word / 2**10, a_word * 32_768 / 2**30, first])

# %% [markdown] lang="en"
# **2.** Keys of a trained model are rarely at right angles. Write the key $(1, 0)$ with the value 2, and then the key
# $(0.6, 0.8)$ with the value 6. What does linear attention read for the key $(1, 0)$, with $\phi(x) = x$? What does the
# delta rule with $\beta = 1$ read for it, and what for the key $(0.6, 0.8)$? Hand in the three numbers.

# %% [markdown] lang="zh"
# **2.** 训练出来的键很少互相垂直。先写键 $(1, 0)$，值为 2；再写键 $(0.6, 0.8)$，值为 6。线性注意力（$\phi(x) = x$）对键 $(1, 0)$ 读出什么？
# $\beta = 1$ 的 delta 规则对它读出什么，对键 $(0.6, 0.8)$ 又读出什么？交这三个数。

# %% exercise=true
answer = ...  # your answer
check("10.2", answer)

# %% answer=true
first, second = np.array([1.0, 0]), np.array([0.6, 0.8])
S = add(add(np.zeros((2, 1)), first, [2.0]), second, [6.0])
D = delta(delta(np.zeros((2, 1)), first, [2.0]), second, [6.0])
linear = (first @ S / (first @ (first + second)))[0]
assert abs(linear - 3.5) < 1e-9  # both values, weighed 1 and 0.6
assert abs((second @ D)[0] - 6) < 1e-9  # the last one written is exact
assert abs((first @ D)[0] - 4.88) < 1e-9  # and it has disturbed the one like it
assert check("10.2", [linear, (first @ D)[0], (second @ D)[0]])

# %% [markdown] lang="en"
# **3.** The window of our small model holds 16 pairs, and the first 4. Which share of 64 pairs can it still look up? A
# deep model sees further, because a word in the window has read its own window one layer below: how many words back can
# the output of six layers depend on, with windows of 128 (the word itself among them) and no sinks? Hand in the two numbers.

# %% [markdown] lang="zh"
# **3.** 小模型的窗口能放下 16 对，加上最前面的 4 对。64 对之中，它还能查到的占多大比例？深的模型看得更远：窗口里的词，在下面一层读过它自己的窗口。
# 六层、窗口为 128（包括这个词自己）、没有汇点时，输出能依赖往前多少个词？交这两个数。

# %% exercise=true
answer = ...  # your answer
check("10.3", answer)

# %% answer=true
blocks = [MultiHeadAttention(1, 4, window=4) for _ in range(3)]


def deep(x):
    for block in blocks:
        x = x + block(x, use_causal_mask=True)
    return np.asarray(x)


x = random.normal(size=(1, 20, 4)).astype("float32")
changed = x.copy()
changed[:, 0] += 1
far = np.flatnonzero(np.abs(deep(changed) - deep(x)).max(axis=-1)[0] > 1e-6)
assert far.max() == 3 * (4 - 1)  # each layer goes one window less one back
assert check("10.3", [(16 + 4) / 64, 6 * (128 - 1)])

# %% [markdown] lang="en"
# **Sources.** Katharopoulos et al. 2020, "Transformers are RNNs: fast autoregressive transformers with linear attention";
# Schlag, Irie and Schmidhuber 2021, "Linear transformers are secretly fast weight programmers" (the delta rule); Yang et al.
# 2025, "Gated delta networks: improving Mamba2 with delta rule"; Ainslie et al. 2023, "GQA: training generalized
# multi-query transformer models from multi-head checkpoints"; DeepSeek-AI 2024, "DeepSeek-V2"; Xiao et al. 2024, "Efficient
# streaming language models with attention sinks"; Arora et al. 2024, "Zoology: measuring and improving recall in efficient
# language models" (the task). Back to [the course](index.md).

# %% [markdown] lang="zh"
# **出处**：Katharopoulos et al. 2020, “Transformers are RNNs: fast autoregressive transformers with linear attention”；
# Schlag, Irie and Schmidhuber 2021, “Linear transformers are secretly fast weight programmers”（delta 规则）；Yang et al. 2025,
# “Gated delta networks: improving Mamba2 with delta rule”；Ainslie et al. 2023, “GQA: training generalized multi-query
# transformer models from multi-head checkpoints”；DeepSeek-AI 2024, “DeepSeek-V2”；Xiao et al. 2024, “Efficient streaming
# language models with attention sinks”；Arora et al. 2024, “Zoology: measuring and improving recall in efficient language
# models”（这个任务）。回到[课程首页](index.zh.md)。
