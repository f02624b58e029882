# %% [markdown] lang="en"
# # 3. Luong's scores, windows and input feeding
#
# Luong, Pham and Manning (2015) ask which parts of [Bahdanau's attention](02_bahdanau.md) matter. They try other scores,
# attend to only a part of the source, and change the order of the step.
#
# $$
# e_{ts} = \begin{cases}
# q_t^\top k_s & \text{dot} \\
# q_t^\top W k_s & \text{general} \\
# v^\top \tanh(W [q_t; k_s]) & \text{concat} \\
# (W q_t)_s & \text{location}
# \end{cases}
# \qquad \tilde h_t = \tanh(W_c [c_t; h_t])
# $$
#
# The query is $q_t = h_t$, the state **after** the step, and the **attentional vector** $\tilde h_t$ predicts the word.

# %% [markdown] lang="zh"
# # 3. Luong 的得分、窗口与输入馈送
#
# Luong、Pham 和 Manning（2015）追问 [Bahdanau 的注意力](02_bahdanau.zh.md)：其中哪些部分真正重要？他们换了几种得分函数，只看源句的一部分，
# 还改了一步之内的次序。
#
# $$
# e_{ts} = \begin{cases}
# q_t^\top k_s & \text{dot} \\
# q_t^\top W k_s & \text{general} \\
# v^\top \tanh(W [q_t; k_s]) & \text{concat} \\
# (W q_t)_s & \text{location}
# \end{cases}
# \qquad \tilde h_t = \tanh(W_c [c_t; h_t])
# $$
#
# 查询是 $q_t = h_t$，即这一步**之后**的状态；词由**注意力向量** $\tilde h_t$ 预测。

# %%
from keras_attention_command import quiet

quiet()

import keras
import matplotlib.pyplot as plt
import numpy as np
from keras import layers, ops

from keras_attention import AttentionDecoder, LocalAttention, LuongAttention
from keras_attention.course import check

keras.utils.set_random_seed(3)

# %% [markdown] lang="en"
# ## Four scores, a line each
#
# `q` holds the queries `(B, T, D)` and `k` the keys `(B, S, D)`. `concat` is Bahdanau's score, since
# $W[q; k] = W_q q + W_k k$.

# %% [markdown] lang="zh"
# ## 四种得分，各一行
#
# `q` 是查询 `(B, T, D)`，`k` 是键 `(B, S, D)`。`concat` 其实就是 Bahdanau 的得分，因为 $W[q; k] = W_q q + W_k k$。

# %%
q = np.random.normal(size=(2, 3, 8)).astype("float32")
k = np.random.normal(size=(2, 5, 8)).astype("float32")
attentions = {
    "dot": LuongAttention("dot"),
    "general": LuongAttention("general"),
    "concat": LuongAttention("concat", units=6),
    "location": LuongAttention("location", max_length=10),
}
scores = {
    "dot": lambda a: q @ ops.swapaxes(k, 1, 2),
    "general": lambda a: (q @ a.score_kernel) @ ops.swapaxes(k, 1, 2),
    "concat": lambda a: ops.sum(
        a.score_vector
        * ops.tanh(ops.expand_dims(q @ a.query_kernel, 2) + ops.expand_dims(k @ a.key_kernel, 1)),
        axis=-1,
    ),
    "location": lambda a: (q @ a.location_kernel)[:, :, : k.shape[1]],
}
for name, attention in attentions.items():
    context, weights = attention(q, k, return_attention_scores=True)
    np.testing.assert_allclose(weights, ops.softmax(scores[name](attention)), atol=1e-5)
    np.testing.assert_allclose(context, weights @ k, atol=1e-5)
    print(f"{name:9} {attention.count_params():3} weights")

# %% [markdown] lang="en"
# ### Question: must query and key be of one width?
#
# For `dot` they must. `general` puts a matrix between them, so that any two widths fit. `location` does not read the keys: the query
# alone says which places count, so the score works only up to the length it was built for (`max_length`) and knows no
# words.
#
# ## Windows
#
# **Local** attention reads $2D + 1$ places around $p_t$. If it is *monotonic*, $p_t = t$. If it is *predictive*, the query
# predicts the place,
#
# $$
# p_t = S \cdot \sigma\left(v_p^\top \tanh(W_p q_t)\right), \qquad
# a_{ts} = \mathrm{softmax}_{|s - p_t| \le D}(e_t)_s\; \exp\left(-\frac{(s - p_t)^2}{2 \sigma^2}\right), \quad \sigma = \frac D 2
# $$
#
# The bell curve lets gradients reach $p_t$: if the place moves a little, the weights change a little. The weights are not
# normalised after it.

# %% [markdown] lang="zh"
# ### 问：查询和键的宽度必须一样吗？
#
# `dot` 必须。`general` 在两者之间放一个矩阵，任意两种宽度都行。`location` 根本不读键：只由查询决定看哪些位置，所以它只能用于建层时定下的长度
# （`max_length`），也不认识词。
#
# ## 窗口
#
# **局部**注意力只读 $p_t$ 周围的 $2D + 1$ 个位置。**单调**（local-m）：$p_t = t$。**预测**（local-p）：由查询说出位置，
#
# $$
# p_t = S \cdot \sigma\left(v_p^\top \tanh(W_p q_t)\right), \qquad
# a_{ts} = \mathrm{softmax}_{|s - p_t| \le D}(e_t)_s\; \exp\left(-\frac{(s - p_t)^2}{2 \sigma^2}\right), \quad \sigma = \frac D 2
# $$
#
# 高斯钟形曲线让梯度能传到 $p_t$：位置移动一点，权重也变一点。乘上它之后不再归一化。

# %%
D = 1
local = LocalAttention(half_width=D, alignment="predictive", score="general", units=4)
_, weights = local(q, k, return_attention_scores=True)

S, place = k.shape[1], np.arange(k.shape[1])
p = S * ops.sigmoid(ops.tanh(q @ local.position_kernel) @ local.position_vector[:, None])
p = np.asarray(p)  # (B, T, 1)
energy = np.asarray((q @ local.score_kernel) @ ops.swapaxes(k, 1, 2))
inside = np.exp(energy) * (np.abs(place - p) <= D)
bell = np.exp(-((place - p) ** 2) / (2 * (D / 2) ** 2))
np.testing.assert_allclose(weights, inside / inside.sum(-1, keepdims=True) * bell, atol=1e-5)
print(
    "positions",
    np.round(p[0, :, 0], 1),
    "of",
    S,
    "- sums of the weights",
    np.round(ops.sum(weights[0], -1), 2),
)

# %% [markdown] lang="en"
# ## Which score for which task?
#
# We take two tasks on random words. **Copy** repeats them word for word. **Group** writes all even words first and then the
# odd ones, each in their order, so that the right place depends on the words. One decoder with $\tilde h$ gets five
# attentions and the same training for each.

# %% [markdown] lang="zh"
# ## 什么任务用什么得分？
#
# 随机词上的两个任务。**复制**：逐词照抄。**分组**：先写所有偶数词，再写奇数词，各按原来的次序；看哪里取决于那里是什么。
# 同样的解码器、同样的 $\tilde h$、同样的训练，五种注意力。

# %% tiny="EXAMPLES, EPOCHS, TESTS = 64, 1, 8"
EXAMPLES, EPOCHS, TESTS = 6400, 6, 200
WORDS, LENGTH, UNITS = 20, 10, 48
random = np.random.default_rng(3)
source = random.integers(0, WORDS, (EXAMPLES + TESTS, LENGTH))
targets = {
    "copy": source,
    "group": np.take_along_axis(source, np.argsort(source % 2, axis=1, kind="stable"), axis=1),
}
print(source[0], "\n", targets["group"][0])


def translator(attention, input_feeding=True):
    read, before = keras.Input((LENGTH,), dtype="int32"), keras.Input((None,), dtype="int32")
    memory, h, c = layers.LSTM(UNITS, return_sequences=True, return_state=True)(
        layers.Embedding(WORDS, UNITS)(read)
    )
    decoder = AttentionDecoder(
        layers.LSTMCell(UNITS), attention, query="current", input_feeding=input_feeding
    )
    vectors, weights = decoder(
        layers.Embedding(WORDS + 1, UNITS)(before),
        memory,
        initial_state=[h, c],
        return_attention_scores=True,
    )
    logits = layers.Dense(WORDS)(vectors)
    model = keras.Model([read, before], logits)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(5e-3), loss, metrics=["accuracy"])
    return model, keras.Model([read, before], weights)


def train(attention, target, **options):
    before = np.concatenate([np.full((len(target), 1), WORDS), target[:, :-1]], axis=1)
    model, reader = translator(attention, **options)
    model.fit(
        [source[:EXAMPLES], before[:EXAMPLES]],
        target[:EXAMPLES],
        batch_size=64,
        epochs=EPOCHS,
        verbose=0,
    )
    _, accuracy = model.evaluate(
        [source[EXAMPLES:], before[EXAMPLES:]], target[EXAMPLES:], verbose=0
    )
    return accuracy, np.asarray(reader([source[-1:], before[-1:]]))[0]


kinds = {
    "dot": lambda: LuongAttention("dot"),
    "general": lambda: LuongAttention("general"),
    "location": lambda: LuongAttention("location", max_length=LENGTH),
    "local-m": lambda: LocalAttention(half_width=2),
    "local-p": lambda: LocalAttention(2, "predictive", score="general", units=UNITS),
}
found = {
    task: {kind: train(make(), target) for kind, make in kinds.items()}
    for task, target in targets.items()
}
for task, results in found.items():
    print(f"{task:6}", *(f"{kind} {accuracy:.0%} " for kind, (accuracy, _) in results.items()))

# %% [markdown] lang="en"
# The figures are the share of words predicted right, given the right earlier words. A state of an LSTM knows much without
# attention, so every row is above chance.

# %% [markdown] lang="zh"
# 数字是：给出正确的前文时，预测正确的词所占的比例。LSTM 的状态本身就知道不少，所以没有一行落到随机水平。

# %% [markdown] lang="en"
# > **Predict first.** Ten maps follow: five attentions copy, then group. Which of the five can draw the diagonal of a copy?
# > Which can draw the two lines of a grouping, where the right place depends on the words?

# %% [markdown] lang="zh"
# > **先猜一猜。** 下面是十张图：五种注意力，先复制，后分组。复制是一条对角线：五种里哪些画得出？分组是两条线，看哪里取决于词：哪些画得出？

# %% predict=true en="Where five attentions look: above while copying, below while grouping." zh="五种注意力各看哪里：上排是复制，下排是分组。"
figure, axes = plt.subplots(2, 5, figsize=(11, 4.6), layout="constrained", sharex=True, sharey=True)
for row, (task, results) in zip(axes, found.items(), strict=True):
    for axis, (kind, (accuracy, weights)) in zip(row, results.items(), strict=True):
        axis.imshow(weights, cmap="Blues", vmin=0, vmax=1)
        axis.set_title(f"{task}, {kind}: {accuracy:.0%}", fontsize=9)
for axis in axes[1]:
    axis.set_xlabel("source")
axes[0, 0].set_ylabel("target")
plt.show()

# %% [markdown] lang="en"
# Read the maps by what each score can know. `location` knows only places, and `local-m` compares words
# no more than two places from its own. That is enough to copy, and too little to group, where the place depends on the words. `general` learns both tasks. `dot` has no matrix, so encoder and decoder
# must first learn a common language. In the copy task it found no alignment in this time, and the LSTMs carried the words
# as far as they could. `local-p` can look anywhere, but its place moves by gradients of a narrow bell: in the second task
# it finds where each group begins, and then hardly moves. Other seeds and longer training change the figures, but not what a score can know.

# %% [markdown] lang="zh"
# 看图时想一想每种得分能知道什么。`location` 只知道位置，`local-m` 只在前后两个位置之内比较词：复制够用，分组就不够，因为位置取决于词。`general` 两样都能找到。`dot` 没有自己的矩阵，
# 编码器和解码器得先学会说同一种语言；在复制任务里，这点时间它还没找到对齐，只靠 LSTM 自己记住一部分。`local-p` 想看哪里都行，但它的位置要靠窄窄的钟形曲线
# 传来的梯度移动：第二个任务里它找到每组的开头，之后就几乎不动了。换种子、延长训练，数字会变；一种得分不可能知道的东西，不会变。

# %% [markdown] lang="en"
# ## Input feeding
#
# So far each step attends by itself: only the last word tells step $t$ where step $t - 1$ looked. With **input feeding** the cell
# reads $[y_{t-1};\, \tilde h_{t-1}]$. The input is $\tilde h$, not $c$.

# %% [markdown] lang="zh"
# ## 输入馈送
#
# 注意力的决定是一步一步独立做出的：第 $t$ 步不知道第 $t-1$ 步看了哪里，只能从前一个词猜。**输入馈送**（input feeding）让单元读
# $[y_{t-1};\, \tilde h_{t-1}]$。馈送的是 $\tilde h$，不是 $c$。

# %%
cell, general = layers.LSTMCell(6), LuongAttention("general")
decoder = AttentionDecoder(cell, general, query="current", input_feeding=True)
y = np.random.normal(size=(2, 3, 4)).astype("float32")
outputs = decoder(y, k)

state, fed = [ops.zeros((2, 6)), ops.zeros((2, 6))], ops.zeros((2, 6))
for t in range(3):
    h, state = cell(ops.concatenate([y[:, t], fed], axis=-1), state)
    context = general(h[:, None], k)[:, 0]
    fed = ops.tanh(ops.concatenate([context, h], axis=-1) @ decoder.attentional_kernel)
    np.testing.assert_allclose(outputs[:, t], fed, atol=1e-5)

with_feeding = found["group"]["general"][0]
without, _ = train(LuongAttention("general"), targets["group"], input_feeding=False)
print(f"group, general: {with_feeding:.1%} with input feeding, {without:.1%} without")

# %% [markdown] lang="en"
# ## Exercises
#
# **1.** Which matrix makes `general` the `dot` score? Hand in the matrix for 8 features.

# %% [markdown] lang="zh"
# ## 练习
#
# **1.** 什么矩阵使 `general` 变成 `dot`？交 8 维时的矩阵。

# %% exercise=true
answer = ...  # your answer
check("3.1", answer)

# %% answer=true
general = attentions["general"]
general.score_kernel.assign(np.eye(8))
np.testing.assert_allclose(general(q, k), attentions["dot"](q, k), atol=1e-5)
assert check("3.1", np.eye(8))

# %% [markdown] lang="en"
# **2.** How many places does `LocalAttention(half_width=D)` read at the first step of a long source, and how many in its
# middle? Hand in both numbers for $D = 3$.

# %% [markdown] lang="zh"
# **2.** 源句很长时，`LocalAttention(half_width=D)` 在第一步读多少个位置？在中间呢？交 $D = 3$ 时的两个数。

# %% exercise=true
answer = ...  # your answer
check("3.2", answer)

# %% answer=true
long = np.random.normal(size=(1, 30, 8)).astype("float32")
_, weights = LocalAttention(half_width=3)(long, long, return_attention_scores=True)
counts = np.sum(np.asarray(weights)[0] > 0, axis=-1)
assert counts[0] == 3 + 1 and counts[15] == 2 * 3 + 1  # the window is cut at the sentence's end
assert check("3.2", [counts[0], counts[15]])

# %% [markdown] lang="en"
# **3.** Do the weights of `local-p` sum to 1? Compute their sum for $D = 2$, equal energies, and a place $p_t$ that is a
# whole number in the middle of the source.

# %% [markdown] lang="zh"
# **3.** `local-p` 的权重之和是 1 吗？设 $D = 2$，能量都相等，$p_t$ 是源句中部的一个整数，算出这个和。

# %% exercise=true
answer = ...  # your answer
check("3.3", answer)

# %% answer=true
_, weights = local(q, k, return_attention_scores=True)
assert np.all(
    np.sum(weights, axis=-1) < 1
)  # the bell curve takes some of it, and the paper gives none back
near = np.arange(-2, 3)  # D = 2: five places of 1/5 each, under a bell of sigma = 1
assert check("3.3", np.sum(np.exp(-(near**2) / 2) / 5))

# %% [markdown] lang="en"
# **4.** A location score was trained on sentences of 10 words. Which weights do the 11th and 12th word of a longer one
# get?

# %% [markdown] lang="zh"
# **4.** location 得分在 10 个词的句子上训练过。更长的句子里，第 11、12 个词得到多少权重？

# %% exercise=true
answer = ...  # your answer
check("3.4", answer)

# %% answer=true
_, weights = attentions["location"](q, np.ones((2, 12, 8), "float32"), return_attention_scores=True)
assert check("3.4", np.asarray(weights)[:, :, 10:])

# %% [markdown] lang="en"
# **Source.** Luong, Pham and Manning 2015, "Effective approaches to attention-based neural machine translation". The layers:
# [LuongAttention](../layers/luong.md), [LocalAttention](../layers/local.md), [AttentionDecoder](../layers/decoder.md).
# Next: [attention inside and outside](04_inside_outside.md).

# %% [markdown] lang="zh"
# **出处**：Luong, Pham and Manning 2015, “Effective approaches to attention-based neural machine translation”。层：
# [LuongAttention](../layers/luong.zh.md)、[LocalAttention](../layers/local.zh.md)、[AttentionDecoder](../layers/decoder.zh.md)。
# 下一讲：[内部与外部的注意力](04_inside_outside.zh.md)。
