# %% [markdown] lang="en"
# # 4. Attention inside and outside
#
# In answer selection a model finds the candidate sentence that answers a question. A recurrent net reads the candidate,
# and attention weighs its **states** by the question. This is attention *outside* the net:
#
# $$
# h_t = \mathrm{GRU}(x_t, h_{t-1}), \qquad e_t = v^\top \tanh(W r_q + U h_t), \qquad r_a = \sum_t \mathrm{softmax}(e)_t\, h_t
# $$
#
# Wang, Liu and Zhao (2016) saw a flaw in it. A late state has read more than an early one, so it looks more like an
# answer, whatever the question: attention outside leans to the end of the sentence. They move attention *inside*, to the
# words before the net reads them:
#
# $$
# \text{word:}\quad \alpha_t = \sigma(r_q^\top M x_t), \qquad
# \text{context:}\quad \alpha_t = \sigma\big((M_h h_{t-1} + M_q r_q)^\top x_t\big), \qquad
# h_t = \mathrm{GRU}(\alpha_t x_t, h_{t-1})
# $$
#
# or into the **gates** of the GRU, without word weights:
#
# $$
# z_t = \sigma(W_z x_t + H_z h_{t-1} + M_z r_q), \quad f_t = \sigma(W_f x_t + H_f h_{t-1} + M_f r_q), \quad
# h_t = (1 - z_t) \circ h_{t-1} + z_t \circ \tanh\big(W_h x_t + H_h (f_t \circ h_{t-1})\big)
# $$

# %% [markdown] lang="zh"
# # 4. 内部与外部的注意力
#
# 答案选择：给一个问题和若干候选句，哪一句回答了它？循环网络读答案，注意力按问题给各个**状态**加权。这是网络**外部**的注意力：
#
# $$
# h_t = \mathrm{GRU}(x_t, h_{t-1}), \qquad e_t = v^\top \tanh(W r_q + U h_t), \qquad r_a = \sum_t \mathrm{softmax}(e)_t\, h_t
# $$
#
# Wang、Liu 和 Zhao（2016）指出它的毛病：靠后的状态读过的内容比靠前的多，所以无论问什么，它都更像答案；外部注意力偏向句尾。他们把注意力移到**内部**，
# 在读词的时候就用上：
#
# $$
# \text{word:}\quad \alpha_t = \sigma(r_q^\top M x_t), \qquad
# \text{context:}\quad \alpha_t = \sigma\big((M_h h_{t-1} + M_q r_q)^\top x_t\big), \qquad
# h_t = \mathrm{GRU}(\alpha_t x_t, h_{t-1})
# $$
#
# 或者放进 GRU 的**门**里，这时词根本没有权重：
#
# $$
# z_t = \sigma(W_z x_t + H_z h_{t-1} + M_z r_q), \quad f_t = \sigma(W_f x_t + H_f h_{t-1} + M_f r_q), \quad
# h_t = (1 - z_t) \circ h_{t-1} + z_t \circ \tanh\big(W_h x_t + H_h (f_t \circ h_{t-1})\big)
# $$

# %%
# %matplotlib inline
from keras_attention_command import quiet

quiet()

import keras
import matplotlib.pyplot as plt
import numpy as np
from keras import layers, ops

from keras_attention import BahdanauAttention, InnerAttentionGRU
from keras_attention.course import check
from keras_attention.visualization import plot_alignment

keras.utils.set_random_seed(4)

# %% [markdown] lang="en"
# ## The formulas in a few lines
#
# With `"word"` the weights do not depend on the state. So the layer must equal a plain GRU over weighed words, and the
# code shows that it does. The weights are **sigmoids**: each is between 0 and 1. They do not compete, and do not sum to 1.

# %% [markdown] lang="zh"
# ## 几行代码写出公式
#
# `"word"` 的权重与状态无关，所以这个层应当就是普通 GRU 读加了权的词，事实如此。这些权重是 **sigmoid**：每个词各自在 0 与 1 之间，互不竞争，
# 总和也不是 1。

# %%
x = np.random.normal(size=(2, 6, 4)).astype("float32")  # six words of an answer
r = np.random.normal(size=(2, 3)).astype("float32")  # a question

word = InnerAttentionGRU(5, attention="word")
output, weights = word(x, r, return_attention_scores=True)
alpha = ops.sigmoid(ops.einsum("bq,qd,btd->bt", r, word.cell.attention_kernel, x))
np.testing.assert_allclose(weights, alpha, atol=1e-5)

gru = layers.GRU(5)
gru.build(x.shape)
gru.set_weights([word.cell.kernel, word.cell.recurrent_kernel, word.cell.bias])
np.testing.assert_allclose(output, gru(x * np.asarray(alpha)[:, :, None]), atol=1e-5)
print("weights", np.round(weights[0], 2), "sum", round(float(ops.sum(weights[0])), 2))

# %% [markdown] lang="en"
# `"context"` needs the state for the next weight, so it runs step by step. `"gate"` is a GRU with one more input in two
# of its three places:

# %% [markdown] lang="zh"
# `"context"` 要用状态算下一个权重，只能一步一步来；`"gate"` 是在三处中的两处多一个输入的 GRU：

# %%
context = InnerAttentionGRU(5, attention="context", reset_after=False)
output, weights = context(x, r, return_attention_scores=True)
h, cell = ops.zeros((2, 5)), context.cell
plain = layers.GRUCell(5, reset_after=False)
plain.build((2, 4))
plain.set_weights([cell.kernel, cell.recurrent_kernel, cell.bias])
for t in range(6):
    w = h @ cell.recurrent_attention_kernel + r @ cell.attention_kernel
    a = ops.sigmoid(ops.sum(w * x[:, t], axis=-1))
    np.testing.assert_allclose(weights[:, t], a, atol=1e-5)
    h, _ = plain(x[:, t] * a[:, None], h)
np.testing.assert_allclose(output, h, atol=1e-5)

gate = InnerAttentionGRU(5, attention="gate")
output = gate(x, r)
h, cell = ops.zeros((2, 5)), gate.cell
H_zf, H_h = cell.recurrent_kernel[:, :10], cell.recurrent_kernel[:, 10:]
for t in range(6):
    read = x[:, t] @ cell.kernel + cell.bias
    z, f = ops.split(ops.sigmoid(read[:, :10] + h @ H_zf + r @ cell.query_kernel), 2, axis=-1)
    h = (1 - z) * h + z * ops.tanh(read[:, 10:] + (f * h) @ H_h)
np.testing.assert_allclose(output, h, atol=1e-5)

# %% [markdown] lang="en"
# ## Data: who did what, where
#
# Answers are four clauses of person, verb and place, in any order. A question names a person and a verb. The right answer has both in
# **one** clause, and four wrong answers are drawn at random. We know where the answering clause is, so we can measure a lean to the end.

# %% [markdown] lang="zh"
# ## 数据：谁在哪里做了什么
#
# 答案由四个分句组成，每个分句是人、动词和地点，次序任意。问题给出人和动词；正确答案把两者放在**同一个**分句里，四个错误答案随机产生。
# 我们知道答案分句的位置，所以能测出有没有偏向句尾。

# %% tiny="QUESTIONS, EPOCHS, TESTS = 32, 1, 40"
QUESTIONS, EPOCHS, TESTS = 4000, 8, 400
PEOPLE = "anna bob carla dan eva frank gita hugo".split()
VERBS = "born lives works studied married".split()
PLACES = "oslo rome lima cairo kyoto paris delhi quito perth malmo".split()
WORDS = ["<pad>", *PEOPLE, *VERBS, *PLACES]
random = np.random.default_rng(4)


def clauses():
    return [[random.choice(kind) for kind in (PEOPLE, VERBS, PLACES)] for _ in range(4)]


def example():
    person, verb = random.choice(PEOPLE), random.choice(VERBS)
    place = random.integers(4)
    right = clauses()
    right[place][:2] = person, verb
    wrong = []
    while len(wrong) < 4:
        candidate = clauses()
        if not any(clause[:2] == [person, verb] for clause in candidate):
            wrong.append(candidate)
    return [person, verb], [sum(candidate, []) for candidate in (right, *wrong)], place


def ids(words):
    return [WORDS.index(word) for word in words]


examples = [example() for _ in range(QUESTIONS + TESTS)]
questions = np.array([[ids(question)] * 5 for question, _, _ in examples])  # (N, 5, 2)
answers = np.array([[ids(answer) for answer in candidates] for _, candidates, _ in examples])
places = np.array([place for *_, place in examples])
labels = np.tile([1, 0, 0, 0, 0], (len(examples), 1))
print(*examples[0][0], "?", " ".join(examples[0][1][0]))

# %% [markdown] lang="en"
# ## Four models
#
# A GRU reads the question to a state. The models read the answer with attention outside, or inside in one of three
# places, and learn the score from the product of both vectors. The inner models average their states, as in the paper.

# %% [markdown] lang="zh"
# ## 四个模型
#
# 问题是一个 GRU 的状态；答案用外部注意力来读，或者用三种内部注意力之一；得分从两个向量的乘积学来。用内部注意力读出的状态取平均，与论文一致。


# %%
def ranker(kind, units=48):
    asked, text = keras.Input((2,), dtype="int32"), keras.Input((12,), dtype="int32")
    embed = layers.Embedding(len(WORDS), units)
    question = layers.GRU(units)(embed(asked))
    if kind == "outside":
        states = layers.GRU(units, return_sequences=True)(embed(text))
        query = layers.Reshape((1, units))(question)
        answer, weights = BahdanauAttention(units)(query, states, return_attention_scores=True)
        answer, weights = layers.Reshape((units,))(answer), layers.Reshape((12,))(weights)
    else:
        layer, weights = InnerAttentionGRU(units, kind, return_sequences=True), None
        if kind == "gate":  # nothing is weighed
            states = layer(embed(text), question)
        else:
            states, weights = layer(embed(text), question, return_attention_scores=True)
        answer = layers.GlobalAveragePooling1D()(states)
    match = layers.Dense(units, activation="relu")(layers.Multiply()([question, answer]))
    model = keras.Model([asked, text], layers.Dense(1)(match))
    model.compile(keras.optimizers.Adam(4e-3), keras.losses.BinaryCrossentropy(from_logits=True))
    return model, weights is not None and keras.Model([asked, text], weights)


def rows(array, part):
    return array[part].reshape(-1, *array.shape[2:])


train, test = slice(0, QUESTIONS), slice(QUESTIONS, None)
models, by_place = {}, {}
for kind in ("outside", "word", "context", "gate"):
    models[kind] = model, _ = ranker(kind)
    model.fit(
        [rows(questions, train), rows(answers, train)],
        rows(labels, train)[:, None],
        batch_size=128,
        epochs=EPOCHS,
        class_weight={0: 1.0, 1: 4.0},
        verbose=0,
    )
    scores = model.predict([rows(questions, test), rows(answers, test)], verbose=0).reshape(-1, 5)
    reciprocal = 1 / (1 + np.sum(scores[:, 1:] >= scores[:, :1], axis=1))
    by_place[kind] = [np.mean(reciprocal[places[test] == place]) for place in range(4)]
    print(
        f"{kind:8} MRR {np.mean(reciprocal):.3f}  by place of the clause:",
        np.round(by_place[kind], 3),
    )
print(f"{'chance':8} MRR {np.mean(1 / np.arange(1, 6)):.3f}")

# %% [markdown] lang="en"
# MRR is the mean of $1 / \text{rank}$ of the right answer. The measurement below has one seed and one small task, so read it
# as an example of the method, and not as a ranking.

# %% [markdown] lang="zh"
# MRR 是正确答案名次倒数的平均值。以下是一个随机种子、一个小任务上的测量结果：请把它看作怎样观察的示例，而不是方法的排名。

# %% [markdown] lang="en"
# > **Predict first.** The answering clause can stand first, second, third or last. Will attention outside find the last one
# > best, as the paper says? Will `word`, which weighs each word alone, find any place as well as the others do?

# %% [markdown] lang="zh"
# > **先猜一猜。** 回答问题的分句可以在第一、第二、第三或最后。外部注意力会像论文说的那样，最善于找到最后一个吗？`word` 给每个词单独加权，它能找得和别的一样好吗？

# %% predict=true en="Left: MRR by the place of the clause that answers. Right: mean weight of each place of the answer, whatever was asked." zh="左：MRR 随答案分句位置的变化。右：答案中每个位置的平均权重，不论问的是什么。"
figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.2), layout="constrained")
for kind, line in by_place.items():
    axes[0].plot(range(1, 5), line, marker="o", label=kind)
axes[0].set(xlabel="clause that answers", ylabel="MRR", xticks=range(1, 5))
axes[0].legend()
for kind in ("outside", "word", "context"):
    weights = models[kind][1].predict([rows(questions, test), rows(answers, test)], verbose=0)
    share = weights / weights.sum(axis=1, keepdims=True)  # sigmoids, too, as shares of their sum
    axes[1].plot(range(1, 13), share.mean(axis=0), marker=".", label=kind)
axes[1].set(
    xlabel="word of the answer", ylabel="share of the weight", ylim=(0, None), xticks=range(1, 13)
)
axes[1].legend()
plt.show()

# %% trained=true
assert all(np.mean(line) > 0.55 for line in by_place.values())  # chance is 0.457

# %% [markdown] lang="en"
# Outside attention and the gates find the answers here. `word` cannot find all of them, and the formula says why: each
# word gets its weight by itself, but a clause answers by two words *together*. `context` knows the earlier words, and does a
# little better. Answers of twelve words hardly show the lean to the end, since a GRU forgets little in them; the paper
# reports it for long ones. Do not assume that a paper's finding holds for your data.

# %% [markdown] lang="zh"
# 在这里，外部注意力和门都能找到答案。`word` 找不全，公式就说明了原因：每个词单独得到权重，而一个分句要靠两个词**一起**才算回答。`context` 看得到前文，好一点。
# 答案只有十二个词，GRU 忘得不多，偏向句尾的现象几乎看不到。论文报告的是长答案：不要把论文的一句话当成自己数据的结论。

# %% [markdown] lang="en"
# Here three models read the same answer. Outside attention weighs states, which hold all earlier words, and inner attention
# weighs words.

# %% [markdown] lang="zh"
# 同一个答案，三个模型各读一遍：外部注意力给状态加权，而状态里有前面的一切；内部注意力给词加权。

# %% en="Weights of one right answer by three models, each divided by its largest." zh="三个模型对同一个正确答案的权重，各除以其最大值。"
question, candidates, _ = examples[-1]
read = [
    models[kind][1].predict([questions[-1][:1], answers[-1][:1]], verbose=0)[0]
    for kind in ("outside", "word", "context")
]
plot_alignment(
    np.stack([weights / weights.max() for weights in read]),
    candidates[0],
    ["outside", "word", "context"],
    title=" ".join(question) + " ?",
)

# %% [markdown] lang="en"
# ### Question: what keeps all sigmoids from being 1?
#
# Nothing keeps them from it. The paper's Occam penalty therefore adds a price for each: $J + n_p \sum_t \alpha_t$. With
# `occam=True` the layer adds this sum to the model's loss.
#
# ## Exercises
#
# **1.** With which attention on a GRU can the weight of a word depend on the words before it: `"outside"`, `"word"`,
# `"both"` or `"neither"`? Show it with the layers.

# %% [markdown] lang="zh"
# ### 问：什么能阻止所有 sigmoid 都变成 1？
#
# 没有什么能阻止。论文的 Occam 惩罚给每个权重定了价：$J + n_p \sum_t \alpha_t$。在层里写 `occam=True`，这个和就加进模型的损失。
#
# ## 练习
#
# **1.** 在 GRU 上用哪种注意力时，一个词的权重可以依赖它前面的词：“外部”、“word”、“两个”还是“都不”？用层验证。

# %% exercise=true
answer = ...  # your answer
check("4.1", answer)

# %% answer=true
other = x.copy()
other[:, 0] += 1  # another first word
_, before = word(x, r, return_attention_scores=True)
_, after = word(other, r, return_attention_scores=True)
np.testing.assert_allclose(before[:, 1:], after[:, 1:], atol=1e-6)
reader, outside = layers.GRU(5, return_sequences=True), BahdanauAttention(5)
energies = [
    ops.log(outside(r[:, None], reader(each), return_attention_scores=True)[1])
    for each in (x, other)
]
ratios = [
    np.asarray(e[:, 0, 2] - e[:, 0, 1]) for e in energies
]  # of two later words, free of the sum
assert np.all(np.abs(ratios[0] - ratios[1]) > 1e-5)
assert check("4.1", "outside")

# %% [markdown] lang="en"
# **2.** Give `"word"` a question of zeros. What are the weights? And what does `"gate"` become?

# %% [markdown] lang="zh"
# **2.** 给 `"word"` 一个全零的问题，权重是多少？`"gate"` 又变成什么？

# %% exercise=true
answer = ...  # your answer
check("4.2", answer)

# %% answer=true
_, weights = word(x, np.zeros_like(r), return_attention_scores=True)
assert check("4.2", weights)  # sigmoid of 0
zero = gate(x, np.zeros_like(r))
stock = layers.GRU(5, reset_after=False)
stock.build(x.shape)
kernels = [
    np.array(gate.cell.kernel),
    np.array(gate.cell.recurrent_kernel),
    np.array(gate.cell.bias),
]
for kernel in kernels:
    kernel[..., :5] *= -1  # Keras' z is 1 - z of the paper
stock.set_weights(kernels)
np.testing.assert_allclose(zero, stock(x), atol=1e-5)  # a plain GRU

# %% [markdown] lang="en"
# **3.** A model guesses among five candidates. Which MRR do you expect?

# %% [markdown] lang="zh"
# **3.** 五个候选，模型瞎猜，MRR 的期望是多少？

# %% exercise=true
answer = ...  # your answer
check("4.3", answer)

# %% answer=true
assert check("4.3", sum(1 / rank for rank in range(1, 6)) / 5)  # 0.457

# %% [markdown] lang="en"
# **Source.** Wang, Liu and Zhao 2016, "Inner attention based recurrent neural networks for answer selection". The layer:
# [InnerAttentionGRU](../layers/inner_attention.md); real data: [Select answers](../tutorials/answer_selection.md).
# Next: [attention for summaries](05_summaries.md).

# %% [markdown] lang="zh"
# **出处**：Wang, Liu and Zhao 2016, “Inner attention based recurrent neural networks for answer selection”。层：
# [InnerAttentionGRU](../layers/inner_attention.zh.md)；真实数据：[选择答案](../tutorials/answer_selection.md)。
# 下一讲：[摘要中的注意力](05_summaries.zh.md)。
