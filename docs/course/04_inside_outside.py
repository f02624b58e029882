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
#
# The lecture ends with the other side of a network, its outputs: [labels for words](#labels-for-words), each chosen alone
# or all together.

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
#
# 最后看网络的另一头，即输出：[词的标签](#labels-for-words)，是一个一个单独选，还是一起选。

# %%
# %matplotlib inline
from keras_attention_command import quiet

quiet()

import itertools

import keras
import matplotlib.pyplot as plt
import numpy as np
from keras import layers, ops

from keras_attention import CRF, BahdanauAttention, InnerAttentionGRU
from keras_attention.course import check
from keras_attention.losses import CRFLoss
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

# %% [markdown] lang="zh"
# ### 问：什么能阻止所有 sigmoid 都变成 1？
#
# 没有什么能阻止。论文的 Occam 惩罚给每个权重定了价：$J + n_p \sum_t \alpha_t$。在层里写 `occam=True`，这个和就加进模型的损失。

# %% [markdown] lang="en"
# ## Labels for words
#
# `word` misses answers because it decides on each word alone. The same fault is possible at the output. To find names,
# chunks or roles, a *tagger* gives each word a label: `B-PER` where the name of a person begins, `I-PER` inside it, `O` where
# there is no name. The usual output is a softmax for each word. It has read all the words, but it does not know the other
# **labels**, and they have to go together.
#
# Take "sydney palmer was late". Sydney is a first name and a city, Palmer is a family name and a hotel:
#
# | how often | | sydney | palmer |
# | --- | --- | --- | --- |
# | 4 in 10 | a person called Sydney Palmer | `B-PER` | `I-PER` |
# | 3 in 10 | the hotel Palmer in Sydney | `B-LOC` | `B-ORG` |
# | 3 in 10 | in Sydney, someone called Palmer | `B-LOC` | `B-PER` |
#
# Read down the columns. The likeliest label of "sydney" is `B-LOC`, 6 in 10, and that of "palmer" is `I-PER`, 4 in 10.
# Together they are no reading at all: a person cannot begin with a place.
#
# A **conditional random field** (Lafferty et al. 2001) gives a score to the whole sequence $y$. To the scores $e_{t,k}$ of the
# labels of each word it adds a table $A$: how well one label follows another.
#
# $$
# s(y) = \sum_t e_{t,y_t} + \sum_{t>1} A_{y_{t-1},y_t}, \qquad p(y) = \frac{\exp s(y)}{\sum_{y'} \exp s(y')}
# $$
#
# The loss is $-\log p(y)$ of the right labels. The layer also learns a score for the label at the start and at the end.

# %% [markdown] lang="zh"
# ## 词的标签 {: #labels-for-words }
#
# `word` 找不全答案，因为它对每个词单独作决定。输出端也会犯同样的错。要找出名字、语块或语义角色，*标注器*给每个词一个标签：人名从 `B-PER` 开始，
# 内部是 `I-PER`，不是名字的词是 `O`。通常的输出是每个词一个 softmax。它读过所有的词，却不知道别的词得到什么**标签**，而标签之间必须相配。
#
# 以 “sydney palmer was late” 为例。Sydney 既是名字又是城市，Palmer 既是姓又是旅馆：
#
# | 比例 | | sydney | palmer |
# | --- | --- | --- | --- |
# | 十分之四 | 一个叫 Sydney Palmer 的人 | `B-PER` | `I-PER` |
# | 十分之三 | 悉尼的 Palmer 旅馆 | `B-LOC` | `B-ORG` |
# | 十分之三 | 在悉尼，一个姓 Palmer 的人 | `B-LOC` | `B-PER` |
#
# 一列一列地看：“sydney” 最可能的标签是 `B-LOC`，占十分之六；“palmer” 最可能的是 `I-PER`，占十分之四。合在一起却不是任何一种读法：人名不能从地名开始。
#
# **条件随机场**（CRF，Lafferty 等 2001）给整个标签序列 $y$ 打分：除了每个词各标签的得分 $e_{t,k}$，还加上一张表 $A$，即一个标签后面接另一个标签有多合适。
#
# $$
# s(y) = \sum_t e_{t,y_t} + \sum_{t>1} A_{y_{t-1},y_t}, \qquad p(y) = \frac{\exp s(y)}{\sum_{y'} \exp s(y')}
# $$
#
# 损失是正确标签的 $-\log p(y)$。这个层还学习开头和结尾的标签各得多少分。

# %% [markdown] lang="en"
# ### Viterbi's algorithm by hand
#
# Which sequence is the best? Three words with three labels have 27. Viterbi's algorithm goes from left to right, and keeps for each
# label only the best way to it:
#
# $$
# \delta_1(k) = e_{1,k}, \qquad \delta_t(k) = e_{t,k} + \max_j \big(\delta_{t-1}(j) + A_{j,k}\big)
# $$
#
# Take a pencil. The words are "sydney palmer slept", a row of $e$ for each; the columns are `O`, `B-PER` and `I-PER`. $A$ goes from a row
# to a column. `I-PER` must not come first or follow an `O`, so its score there is -9:
#
# $$
# e = \begin{pmatrix} 2 & 1 & -9 \\ 0 & 1 & 3 \\ 2 & 0 & 0 \end{pmatrix}, \qquad
# A = \begin{pmatrix} 0 & 0 & -9 \\ 0 & 0 & 1 \\ 0 & 0 & 0 \end{pmatrix}
# $$
#
# Fill in three numbers for each word, and note for each where its maximum came from. Then go back from the best label of the last word.

# %% [markdown] lang="zh"
# ### 手算 Viterbi 算法
#
# 哪个序列最好？三个词、三种标签，共有 27 个。Viterbi 算法从左往右走，对每个标签只留下到它的最好的一条路：
#
# $$
# \delta_1(k) = e_{1,k}, \qquad \delta_t(k) = e_{t,k} + \max_j \big(\delta_{t-1}(j) + A_{j,k}\big)
# $$
#
# 拿支铅笔。三个词是 “sydney palmer slept”，$e$ 每个词一行；各列是 `O`、`B-PER` 和 `I-PER`。$A$ 从行到列。`I-PER` 不能在句首，也不能跟在 `O` 后面，
# 所以那里它的得分是 -9：
#
# $$
# e = \begin{pmatrix} 2 & 1 & -9 \\ 0 & 1 & 3 \\ 2 & 0 & 0 \end{pmatrix}, \qquad
# A = \begin{pmatrix} 0 & 0 & -9 \\ 0 & 0 & 1 \\ 0 & 0 & 0 \end{pmatrix}
# $$
#
# 每个词填三个数，并记下每个最大值来自哪里；然后从最后一个词的最好标签往回走。

# %%
three, NAMES = ["sydney", "palmer", "slept"], ["O", "B-PER", "I-PER"]
e = np.array([[2, 1, -9], [0, 1, 3], [2, 0, 0]], "float32")  # a row a word
A = np.array([[0, 0, -9], [0, 0, 1], [0, 0, 0]], "float32")  # from a row to a column
delta, came_from = [e[0]], []
for scores in e[1:]:
    ways = delta[-1][:, None] + A
    came_from.append(ways.argmax(axis=0))
    delta.append(scores + ways.max(axis=0))
best = [int(delta[-1].argmax())]
for back in reversed(came_from):
    best.insert(0, int(back[best[0]]))

print(" " * 8, *(f"{name:>6}" for name in NAMES))
for each, row in zip(three, delta, strict=True):
    print(f"{each:8}", *(f"{score:6.0f}" for score in row))
print("each alone:", *(NAMES[k] for k in e.argmax(axis=1)))
print("together:  ", *(NAMES[k] for k in best), "with", delta[-1].max())

crf = CRF(3)
crf.build((None, None, 3))
crf.transitions.assign(A)
np.testing.assert_array_equal(crf.decode(e[None]), [best])
np.testing.assert_allclose(crf.score(e[None], np.array([best])), [delta[-1].max()])

# %% [markdown] lang="en"
# ### The same network, two outputs
#
# The data are 48 sentences, which do not tell how to read them: each stands there ten times, in the readings of the table.
# A bidirectional GRU reads them. Its scores go to a softmax for each word, or to a CRF.

# %% [markdown] lang="zh"
# ### 同一个网络，两种输出
#
# 数据是 48 个句子，句子本身看不出该怎么读：每句出现十次，按表里的比例用三种读法。双向 GRU 读句子，它的得分交给每个词一个的 softmax，或者交给 CRF。

# %% tiny="ROUNDS = 1"
ROUNDS = 40
FIRST, LAST = "sydney florence paris austin".split(), "palmer carlton drake warwick".split()
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "B-ORG"]
READINGS = [["B-PER", "I-PER"], ["B-LOC", "B-ORG"], ["B-LOC", "B-PER"]]
FRAMES = ["{} {} was late", "yesterday {} {} called", "we saw {} {}"]
KNOWN = sorted({w for frame in FRAMES for w in frame.replace("{}", "").split()} | {*FIRST, *LAST})


def labelled(frame, first, last, reading):
    text, names = frame.format(first, last).split(), iter(reading)
    tags = [next(names) if slot == "{}" else "O" for slot in frame.split()]
    return [KNOWN.index(w) for w in text], [TAGS.index(tag) for tag in tags]


each_ten_times = [READINGS[0]] * 4 + [READINGS[1]] * 3 + [READINGS[2]] * 3
data = [labelled(*given) for given in itertools.product(FRAMES, FIRST, LAST, each_ten_times)]
x_words, y_tags = (np.array(column) for column in zip(*data, strict=True))


def tagger(together):
    text = keras.Input((4,), dtype="int32")
    gru = layers.GRU(16, return_sequences=True)
    states = layers.Bidirectional(gru)(layers.Embedding(len(KNOWN), 16)(text))
    scores = layers.Dense(len(TAGS))(states)
    crf = CRF(len(TAGS))
    output = crf(scores) if together else layers.Softmax()(scores)
    model = keras.Model(text, output)
    loss = CRFLoss() if together else keras.losses.SparseCategoricalCrossentropy()
    model.compile(keras.optimizers.Adam(1e-2), loss)
    model.fit(x_words, y_tags, batch_size=48, epochs=ROUNDS, verbose=0)
    emissions = keras.Model(text, scores).predict(x_words, verbose=0)
    return crf, emissions


_, alone = tagger(together=False)
crf, emissions = tagger(together=True)
answers_of = {
    "each alone": alone.argmax(axis=-1),
    "together": np.asarray(crf.decode(emissions)),
}
is_name = y_tags != 0
readings = [[TAGS.index(tag) for tag in reading] for reading in READINGS]
known, counted = {}, {}
for name, tags in answers_of.items():
    pairs = tags[is_name].reshape(-1, 2).tolist()
    known[name] = np.mean([pair in readings for pair in pairs])
    right = tags == y_tags
    counted[name] = right[is_name].mean(), right.all(axis=1).mean()
    print(f"{name:10} ", *(TAGS[k] for k in pairs[0]))

# %% [markdown] lang="en"
# > **Predict first.** Nobody told the CRF which labels can follow each other. What has it written at `B-PER` → `I-PER`, and
# > what at `B-LOC` → `I-PER`?

# %% [markdown] lang="zh"
# > **先猜一猜。** 没有人告诉 CRF 哪些标签可以前后相接。在 `B-PER` → `I-PER` 处它写了什么？在 `B-LOC` → `I-PER` 处呢？

# %% predict=true en="Left: the transition table that the CRF has learnt, from a row to a column. Right: how many answers are one of the three readings, how many words are right, and how many sentences." zh="左：CRF 学到的转移表，从行到列。右：属于三种读法之一的答案、答对的词和答对的句子各占多少。"
table = np.asarray(crf.transitions)
figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.4), layout="constrained")
limit = np.abs(table).max()
axes[0].imshow(table, cmap="RdBu", vmin=-limit, vmax=limit)
for row, column in np.ndindex(table.shape):
    colour = "white" if abs(table[row, column]) > 0.6 * limit else "black"
    axes[0].text(column, row, f"{table[row, column]:.1f}", ha="center", va="center", color=colour)
axes[0].set_xticks(range(len(TAGS)), TAGS)
axes[0].set_yticks(range(len(TAGS)), TAGS)
axes[0].set(xlabel="next label", ylabel="label")
measures = ["a reading", "words right", "sentences right"]
for offset, colour, name in ((-0.2, "#d55e00", "each alone"), (0.2, "#0072b2", "together")):
    bars = axes[1].bar(np.arange(3) + offset, [known[name], *counted[name]], 0.4, color=colour)
    axes[1].bar_label(bars, fmt="{:.0%}")
    bars.set_label(name)
axes[1].set_xticks(range(3), measures)
axes[1].set(ylim=(0, 1.1), ylabel="part of all")
axes[1].legend()
plt.show()

# %% trained=true
assert known["together"] > 0.95 and known["each alone"] < 0.2
assert table[1, 2] > table[3, 2] + 1

# %% [markdown] lang="en"
# The table says what the columns could not: `I-PER` follows `B-PER`, and not `B-LOC`. The softmax gets more **words** right, since
# each word takes its own likeliest label, and not one **sentence**. Names are used whole, so the sentences count. Some transitions are
# impossible, such as from `O` to `I-PER`: `CRF.from_tags(TAGS)` forbids these from the start.

# %% [markdown] lang="zh"
# 表里写着列里看不出的事：`I-PER` 跟在 `B-PER` 后面，而不跟在 `B-LOC` 后面。softmax 答对的**词**更多，因为每个词都选自己最可能的标签；但整个**句子**一个也不对。
# 名字是整个使用的，所以要看句子。有些转移不可能出现，例如从 `O` 到 `I-PER`：`CRF.from_tags(TAGS)` 一开始就禁止它们。

# %% [markdown] lang="en"
# ## Exercises
#
# **1.** With which attention on a GRU can the weight of a word depend on the words before it: `"outside"`, `"word"`,
# `"both"` or `"neither"`? Show it with the layers.

# %% [markdown] lang="zh"
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
# **4.** In the table by hand, `I-PER` at "palmer" has the score 3. Lower it. Below which score is `B-PER I-PER O` no longer the best
# sequence?

# %% [markdown] lang="zh"
# **4.** 在手算的例子里，“palmer” 处 `I-PER` 的得分是 3。把它降低：低于多少时，`B-PER I-PER O` 不再是最好的序列？

# %% exercise=true
answer = ...  # your answer
check("4.4", answer)

# %% answer=true
by_hand = CRF(3)
by_hand.build((None, None, 3))
by_hand.transitions.assign(A)
for score, expected in ((1.1, [1, 2, 0]), (0.9, [0, 1, 0])):
    lower = e.copy()
    lower[1, 2] = score
    np.testing.assert_array_equal(by_hand.decode(lower[None]), [expected])
assert check("4.4", 1)  # 1 + score + 1 + 2 against 2 + 1 + 2

# %% [markdown] lang="en"
# **5.** A sentence has 20 words, and there are 5 labels. How many sequences of labels are there, and how many sums
# $\delta_{t-1}(j) + A_{j,k}$ does Viterbi's algorithm need?

# %% [markdown] lang="zh"
# **5.** 一个句子有 20 个词，共有 5 种标签。标签序列有多少个？Viterbi 算法要算多少个和 $\delta_{t-1}(j) + A_{j,k}$？

# %% exercise=true
answer = ...  # your answer
check("4.5", answer)

# %% answer=true
assert check("4.5", [5**20, 19 * 5 * 5])

# %% [markdown] lang="en"
# **6.** `crf.marginals` gives the probability of each label of each word. Take the likeliest label of each word from the trained CRF. Are
# these labels one of the three readings: `"yes"` or `"no"`?

# %% [markdown] lang="zh"
# **6.** `crf.marginals` 给出每个词各个标签的概率。用训练好的 CRF，给每个词取最可能的标签。这些标签是三种读法之一吗：“是”还是“否”？

# %% exercise=true
answer = ...  # your answer
check("4.6", answer)

# %% answer=true
likeliest = np.asarray(crf.marginals(emissions)).argmax(axis=-1)
print(*(TAGS[k] for k in likeliest[0]))
assert check("4.6", "no")

# %% [markdown] lang="en"
# **Source.** Wang, Liu and Zhao 2016, "Inner attention based recurrent neural networks for answer selection"; Lafferty, McCallum and
# Pereira 2001, "Conditional random fields". The layers: [InnerAttentionGRU](../layers/inner_attention.md),
# [CRF](../layers/crf.md); real data: [Select answers](../tutorials/answer_selection.md), [Tag your own text](../tutorials/tag.md).
# Next: [attention for summaries](05_summaries.md).

# %% [markdown] lang="zh"
# **出处**：Wang, Liu and Zhao 2016, “Inner attention based recurrent neural networks for answer selection”；Lafferty, McCallum and
# Pereira 2001, “Conditional random fields”。层：[InnerAttentionGRU](../layers/inner_attention.zh.md)、[CRF](../layers/crf.zh.md)；真实数据：
# [选择答案](../tutorials/answer_selection.md)、[给自己的文本做标注](../tutorials/tag.md)。
# 下一讲：[摘要中的注意力](05_summaries.zh.md)。
