# %% [markdown] lang="en"
# # 2. Bahdanau's alignment
#
# [Lecture 1](01_single_vector.md) pressed a whole sentence into one vector, which failed. Bahdanau, Cho and Bengio (2015)
# keep all states of the encoder, $h_1 \dots h_S$, and let the decoder look them up. Before it writes word $t$, it
# compares its state $s_{t-1}$ with each of them:
#
# $$
# e_{ts} = v^\top \tanh(W s_{t-1} + U h_s), \qquad
# a_{ts} = \frac{\exp e_{ts}}{\sum_{s'} \exp e_{ts'}}, \qquad
# c_t = \sum_s a_{ts} h_s
# $$
#
# $e_{ts}$ is the **energy** of a pair, $a_{ts}$ its **weight**, and $c_t$ the **context vector**, a new one for each
# word. The weights of a row sum to 1. A table of them, target words down and source words across, is the **alignment**:
# it shows the source words of each target word. Nobody labels it. The model learns it from translations alone.

# %% [markdown] lang="zh"
# # 2. Bahdanau 的对齐
#
# [第 1 讲](01_single_vector.zh.md)把整个句子压进一个向量，结果失败了。Bahdanau、Cho 和 Bengio（2015）保留编码器的全部状态
# $h_1 \dots h_S$，让解码器自己去查。写第 $t$ 个词之前，解码器拿自己的状态 $s_{t-1}$ 与每个 $h_s$ 比较：
#
# $$
# e_{ts} = v^\top \tanh(W s_{t-1} + U h_s), \qquad
# a_{ts} = \frac{\exp e_{ts}}{\sum_{s'} \exp e_{ts'}}, \qquad
# c_t = \sum_s a_{ts} h_s
# $$
#
# $e_{ts}$ 是一对状态的**能量**（未归一化的得分），$a_{ts}$ 是**注意力权重**，$c_t$ 是**上下文向量**：每写一个词都重新算一个。每一行权重
# 之和为 1。把权重排成一张表，目标词为行、源词为列，就是**对齐**：一个词是从哪些词译来的。没有人标注它，它完全是从译文中学出来的。

# %%
# %matplotlib inline
from keras_attention_command import quiet

quiet()

import keras
import matplotlib.pyplot as plt
import numpy as np
from keras import layers, ops

from keras_attention import AttentionDecoder, BahdanauAttention, LuongAttention
from keras_attention.course import check
from keras_attention.visualization import plot_alignment

keras.utils.set_random_seed(2)

# %% [markdown] lang="en"
# ## The formula in five lines
#
# There are `B` sentences, `T` target steps and `S` source steps. The sum inside the tanh is taken for every pair, which is
# why the code adds two axes.

# %% [markdown] lang="zh"
# ## 五行代码写出公式
#
# `B` 个句子，目标 `T` 步，源 `S` 步。tanh 里面的和要对每一对 $(t, s)$ 计算，所以各加一个新轴。


# %%
def attend(query, memory, W, U, v):
    pairs = ops.expand_dims(query @ W, 2) + ops.expand_dims(memory @ U, 1)  # (B, T, S, units)
    energy = ops.sum(v * ops.tanh(pairs), axis=-1)  # (B, T, S)
    weights = ops.softmax(energy, axis=-1)
    return weights @ memory, weights


query = np.random.normal(size=(2, 3, 5)).astype("float32")  # decoder states, 5 wide
memory = np.random.normal(size=(2, 4, 8)).astype("float32")  # encoder states, 8 wide

layer = BahdanauAttention(units=6)
context, weights = layer(query, memory, return_attention_scores=True)
by_hand = attend(query, memory, layer.query_kernel, layer.key_kernel, layer.score_vector)

np.testing.assert_allclose(context, by_hand[0], atol=1e-5)
np.testing.assert_allclose(weights, by_hand[1], atol=1e-5)
print("context", context.shape, "weights", weights.shape)
print(np.round(weights[0], 2))

# %% [markdown] lang="en"
# The layer gives the same numbers. It also handles masks and precision, and never holds the whole hidden layer of
# `B T S U` numbers in memory.
#
# ### Question: what is v?
#
# For each pair, tanh gives a *vector* with one number for each hidden unit, but a softmax needs *one number*. $v$ is
# the output layer of that small network: it says how much each hidden unit counts, and in which direction. $v$ is a
# learned weight, the same for all pairs and all steps. Without it, nothing would sum the units. It is not the "value" of
# later papers: here the values are the states $h_s$.

# %% [markdown] lang="zh"
# 层给出的数字与手写的相同。公式没写的事，层也做了：掩码、数值精度，以及不把 `B T S U` 个数的隐藏层整个放进内存。
#
# ### 问：v 是什么？ {: #bahdanau-v }
#
# 对每一对状态，tanh 给出一个**向量**，每个隐藏单元一个数；而 softmax 要的是**一个数**。$v$ 就是这个小网络的输出层：它规定每个隐藏单元
# 算多少、朝哪个方向算。它是与其他参数一起学习的权重，所有词对、所有时间步共用一个。没有它，就没法把各单元合成一个得分。它也不是后来
# 论文里的“值”（value）：这里的值是状态 $h_s$。

# %%
units = np.tanh(
    query[0, 0] @ layer.query_kernel + memory[0] @ layer.key_kernel
)  # (4 places, 6 units)
v = np.asarray(layer.score_vector)
print("units of the first place:", np.round(units[0], 2))
print("v:                       ", np.round(v, 2))
print("energy, their product:   ", np.round(units[0] @ v, 2))

# %% [markdown] lang="en"
# ### Question: must s and h be of one width?
#
# No. $W$ and $U$ bring both to the width of the hidden layer. Above, $s$ has 5 features, $h$ has 8 and the hidden layer
# has 6. A dot product does need one width, and its error says so:

# %% [markdown] lang="zh"
# ### 问：s 和 h 的宽度必须一样吗？ {: #bahdanau-width }
#
# 不必。$W$ 和 $U$ 把两者都变到隐藏层的宽度。上面 $s$ 宽 5，$h$ 宽 8，隐藏层宽 6。点积才要求同宽，否则会报错：

# %%
try:
    LuongAttention("dot")(query, memory)
except ValueError as error:
    print(str(error).split("Received")[0])

# %% [markdown] lang="en"
# ### Question: where does y(t-1) enter?
#
# It enters the cell, and not the score. A step of the paper's decoder is
#
# $$
# c_t = \mathrm{attend}(s_{t-1}), \qquad s_t = \mathrm{GRU}([y_{t-1}; c_t],\; s_{t-1})
# $$
#
# The cell reads $y_{t-1}$ *together with* the context of this step. So the weights of step $t$ know the words up to
# $y_{t-2}$, which are in $s_{t-1}$, but not $y_{t-1}$. We change the third input word and see at which step the weights
# change. With `query="current"`, Luong's order, the cell goes first, and the weights of the same step know the word:

# %% [markdown] lang="zh"
# ### 问：y(t-1) 从哪里进来？ {: #bahdanau-y }
#
# 进循环单元，不进得分。论文中解码器的一步是
#
# $$
# c_t = \mathrm{attend}(s_{t-1}), \qquad s_t = \mathrm{GRU}([y_{t-1}; c_t],\; s_{t-1})
# $$
#
# $y_{t-1}$ 是**和**这一步取来的上下文向量**一起**读进去的。所以第 $t$ 步的权重知道 $y_{t-2}$ 及以前的词（它们在 $s_{t-1}$ 里），却不知道
# $y_{t-1}$。我们改动第三个输入词，看权重从哪一步开始变。若用 `query="current"`（Luong 的次序），单元先走一步，同一步的权重就已经知道它了：

# %%
words = np.random.normal(size=(1, 5, 7)).astype("float32")  # the words before: y(0) ... y(4)
other = words.copy()
other[0, 2] += 1  # another third word
for order in ("previous", "current"):
    decoder = AttentionDecoder(layers.GRUCell(5), BahdanauAttention(6), query=order)
    _, before = decoder(words, memory[:1], return_attention_scores=True)
    _, after = decoder(other, memory[:1], return_attention_scores=True)
    moved = np.max(np.abs(np.asarray(after - before)), axis=(0, 2)) > 1e-6
    print(f"{order:8} weights of steps 1-5 changed:", moved)
    assert list(moved) == [False, False, order == "current", True, True]

# %% [markdown] lang="en"
# ## A language pair of our own
#
# The pair is English noun phrases and a French with six nouns. A dictionary alone cannot translate it: adjectives follow
# the noun in reverse order ("european economic area", "zone économique européenne"), and articles and adjectives agree
# with a noun that comes after the English article ("the" is "le" or "la").

# %% [markdown] lang="zh"
# ## 自己造一个语言对
#
# 英语名词短语，以及一种只有六个名词的法语。翻译之所以不只是查词典，它都具备：形容词放在名词之后且次序颠倒（“european economic area”
# 译为“zone économique européenne”）；冠词和形容词要与名词的性一致，而英语冠词出现时名词还没到（“the”译为“le”还是“la”）。

# %% tiny="SENTENCES, EPOCHS = 64, 1"
SENTENCES, EPOCHS = 6000, 4
NOUNS = {
    "area": ("zone", 1), "house": ("maison", 1), "car": ("voiture", 1),
    "garden": ("jardin", 0), "dog": ("chien", 0), "book": ("livre", 0),
}  # fmt: skip
ADJECTIVES = {
    "red": ("rouge", "rouge"), "green": ("vert", "verte"), "black": ("noir", "noire"),
    "european": ("européen", "européenne"), "economic": ("économique", "économique"),
}  # fmt: skip
VERBS = {"sees": "voit", "leaves": "quitte", "follows": "suit", "shows": "montre"}
random = np.random.default_rng(2)


def phrase():
    noun = random.choice(list(NOUNS))
    french, feminine = NOUNS[noun]
    chosen = random.choice(list(ADJECTIVES), size=random.integers(0, 3), replace=False)
    agreed = [ADJECTIVES[word][feminine] for word in chosen]
    return ["the", *chosen, noun], [["le", "la"][feminine], french, *agreed[::-1]]


def sentence():
    (subject, sujet), (object_, objet), verb = phrase(), phrase(), random.choice(list(VERBS))
    return subject + [str(verb)] + object_, sujet + [VERBS[verb]] + objet


pairs = [sentence() for _ in range(SENTENCES + 500)]
for english, french in pairs[:3]:
    print(" ".join(english), "->", " ".join(french))

# %% [markdown] lang="en"
# Words become ids: 0 is padding, 1 starts a sentence, and 2 ends it. The decoder's input is the answer moved by one place,
# so that at each step it gets the right last word, $y_{t-1}$.

# %% [markdown] lang="zh"
# 把词变成编号：0 是填充，1 表示句首，2 表示句尾。解码器的输入是答案右移一位：每一步都得到正确的前一个词 $y_{t-1}$。

# %%
START, END, LONGEST = 1, 2, 10
english_words = ["<pad>", "<s>", "</s>", *sorted({word for pair in pairs for word in pair[0]})]
french_words = ["<pad>", "<s>", "</s>", *sorted({word for pair in pairs for word in pair[1]})]


def ids(sentences, vocabulary):
    rows = [[vocabulary.index(word) for word in words] + [END] for words in sentences]
    return np.array([row + [0] * (LONGEST - len(row)) for row in rows])


source = ids([pair[0] for pair in pairs], english_words)
target = ids([pair[1] for pair in pairs], french_words)
previous = np.pad(target, [(0, 0), (1, 0)], constant_values=START)[:, :-1]

# %% [markdown] lang="en"
# ## The model
#
# A bidirectional GRU reads the source: $h_s$ knows the words before *and* after word $s$. The decoder's first state is
# $s_0 = \tanh(W_s \overleftarrow{h}_1)$, from the end of the backward reading. State and context predict each word.

# %% [markdown] lang="zh"
# ## 模型
#
# 双向 GRU 读源句：$h_s$ 既知道第 $s$ 个词前面的内容，**也**知道后面的。解码器的初始状态是 $s_0 = \tanh(W_s \overleftarrow{h}_1)$，
# 取自反向阅读的终点。每个词由状态和上下文向量一起预测。

# %%
UNITS = 48
english_ids, french_ids = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
embedded = layers.Embedding(len(english_words), UNITS, mask_zero=True)(english_ids)
states, _, backward = layers.Bidirectional(
    layers.GRU(UNITS, return_sequences=True, return_state=True)
)(embedded)
decoder = AttentionDecoder(layers.GRUCell(UNITS), BahdanauAttention(UNITS), query="previous")
outputs, contexts, weights = decoder(
    layers.Embedding(len(french_words), UNITS)(french_ids),
    states,  # the mask of the padding comes along
    initial_state=[layers.Dense(UNITS, activation="tanh")(backward)],
    return_context=True,
    return_attention_scores=True,
)
logits = layers.Dense(len(french_words))(layers.Concatenate()([outputs, contexts]))
model = keras.Model([english_ids, french_ids], logits)
reader = keras.Model([english_ids, french_ids], [logits, weights])  # the same weights

loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
model.compile(keras.optimizers.Adam(3e-3), loss)
history = model.fit(
    [source[:SENTENCES], previous[:SENTENCES]],
    target[:SENTENCES],
    batch_size=64,
    epochs=EPOCHS,
    verbose=0,
)
print("loss:", *(f"{value:.3f}" for value in history.history["loss"]))

# %% [markdown] lang="en"
# In translation each predicted word is the next input. The model did not train on the 500 sentences at the end:

# %% [markdown] lang="zh"
# 翻译时，把每一步预测的词喂回去。最后 500 个句子没有参加训练：


# %%
def translate(source):
    written = np.zeros((len(source), LONGEST), int)
    written[:, 0] = START
    for step in range(LONGEST):
        logits, weights = reader.predict([source, written], verbose=0)
        if step + 1 < LONGEST:
            written[:, step + 1] = np.argmax(logits[:, step], axis=-1)
    return np.argmax(logits, axis=-1), weights


answers, weights = translate(source[SENTENCES:])
real = target[SENTENCES:] != 0
right = np.mean(np.all((answers == target[SENTENCES:]) | ~real, axis=1))
print(f"sentences translated without an error: {right:.1%}")

# %% trained=true
assert right > 0.9

# %% [markdown] lang="en"
# ## The alignment
#
# ### Question: how do I plot the weights?
#
# Ask the layer for them (`return_attention_scores=True`), in a second `keras.Model` that shares the layers, and draw one
# sentence with `plot_alignment`. Cut off the padding; its weights are exactly 0.

# %% [markdown] lang="zh"
# ## 对齐图
#
# ### 问：怎样画出注意力权重？ {: #bahdanau-plot }
#
# 让层把权重交出来（`return_attention_scores=True`），放进另一个共享同样层的 `keras.Model`，再用 `plot_alignment` 画一个句子。填充部分切掉，
# 它的权重恰好是 0。

# %% en="Each French word, down, looks at English words, across: the phrase 'european economic area' is read backwards." zh="每个法语词（行）看哪些英语词（列）：“european economic area”是倒着读的。"
text = "the european economic area follows the black dog".split()
answer, alignment = translate(ids([text], english_words))
answer = [french_words[word] for word in answer[0]]
answer = answer[: answer.index("</s>") + 1] if "</s>" in answer else answer
shown = alignment[0, : len(answer), : len(text) + 1]
plot_alignment(shown, [*text, "</s>"], answer)

# %% [markdown] lang="en"
# Read the rows. The adjectives cross, as in the paper's figure 3. And look at "la": it translates "the", but only the
# noun decides between "le" and "la".

# %% [markdown] lang="zh"
# 一行一行地看。形容词的对齐是交叉的，与论文图 3 一样。再看“la”：它译的是“the”，但“the”不说明该用“le”还是“la”，名词才说明。

# %% [markdown] lang="en"
# > **Predict first.** Does a French article attend to "the", or to the noun of its phrase? And an adjective, which also
# > agrees with the noun? Guess the two weights, and then look at the means over all 500 sentences.

# %% [markdown] lang="zh"
# > **先猜一猜。** 法语冠词看的是“the”，还是所在短语的名词？形容词也要与名词一致，它呢？先猜两个权重，再看全部 500 个句子上的平均。

# %% predict=true en="Mean weight of each kind of French word on the English word that it stands for, and on the noun of its phrase." zh="各类法语词放在对应英语词上、以及放在所在短语的名词上的平均权重。"
kinds = {"article": ["le", "la"], "noun": [french for french, _ in NOUNS.values()]}
kinds["adjective"] = [word for both in ADJECTIVES.values() for word in both]
kinds["verb"] = list(VERBS.values())
english_of = {french: word for word, (french, _) in NOUNS.items()}
english_of |= {french: word for word, both in ADJECTIVES.items() for french in both}
english_of |= {french: word for word, french in VERBS.items()} | {"le": "the", "la": "the"}

own, nouns = {kind: [] for kind in kinds}, {kind: [] for kind in kinds}
for (english, french), table in zip(pairs[SENTENCES:], weights, strict=True):
    border = next(place for place, word in enumerate(english) if word in VERBS)  # subject | object
    verb = next(row for row, word in enumerate(french) if word in kinds["verb"])
    for row, word in enumerate(french):
        kind = next(name for name, words in kinds.items() if word in words)
        span = range(border) if row < verb else range(border + 1, len(english))
        span = [border] if row == verb else span
        own[kind].append(sum(table[row, s] for s in span if english[s] == english_of[word]))
        nouns[kind].append(sum(table[row, s] for s in span if english[s] in NOUNS))
figure, axis = plt.subplots(figsize=(6, 2.8), layout="constrained")
rows = np.arange(len(kinds))
for shift, (label, values) in zip(
    (-0.2, 0.2), {"its own word": own, "the noun": nouns}.items(), strict=True
):
    axis.barh(rows + shift, [np.mean(each) for each in values.values()], 0.38, label=label)
axis.set(yticks=rows, yticklabels=list(kinds), xlim=(0, 1), xlabel="mean weight on")
axis.invert_yaxis()
figure.legend(loc="outside upper center", ncols=2)
plt.show()

# %% [markdown] lang="en"
# The article attends to the noun, which it needs to know, and not to the word that a dictionary would give. So attention is
# not a linguist's word alignment. It does not show everything that the decoder *knows*, either: the encoder's state at one
# word has read its neighbours, too.

# %% [markdown] lang="zh"
# 冠词读的是名词：它看的是它需要知道的，而不是词典会与它相连的那个词。注意力的对齐不是语言学家的词对齐。它也不是解码器**知道的全部**：编码器在一个词处的状态，
# 也读过这个词的邻居。

# %% [markdown] lang="en"
# ## Move the attention yourself
#
# A model of this kind runs in your browser: the preset `dates`, which writes dates as year, month and day. "Step" and
# "Play" go through the formulas of one written character after the other.
#
# <div class="live-translator" data-examples="4 juin 1999|den 3. Mai 1984">Run <code>keras-attention export dates --format web --output dates-page</code> and open <code>dates-page/index.html</code>: the model runs there, and on this lecture's page of the documentation.</div>
#
# - Click "juin", so that no step can attend to it: its energies count as $-\infty$. Which part of the date becomes wrong,
#   and why do the others stay right? Now hide "4" in its place.
# - Raise the temperature $\tau$, by which the energies are divided before the softmax. The rows become pale. From where on
#   does the model write a wrong date? And what changes as $\tau$ goes towards 0?
# - The two "-" stand in no input. Where do their rows look, and what does the decoder's state gain by it?

# %% [markdown] lang="zh"
# ## 亲手移动注意力
#
# 这样的一个模型就在您的浏览器里运行：预设 `dates`，它把日期写成年、月、日。“单步”和“播放”逐个字符走过每一步的公式。
#
# <div class="live-translator" data-examples="4 juin 1999|den 3. Mai 1984">运行 <code>keras-attention export dates --format web --output dates-page</code>，打开 <code>dates-page/index.html</code>：模型就在那一页里运行；文档网站上本讲的网页里也有。</div>
#
# - 点一下“juin”，任何一步都读不到它：它的能量算作 $-\infty$。日期的哪一部分错了？其余部分为什么仍然对？再改为藏起“4”。
# - 调高温度 $\tau$：能量在 softmax 之前除以它，各行随之变淡。从哪里开始，模型写错日期？$\tau$ 趋近 0 时又会怎样？
# - 两个“-”不在输入里。它们那两行看哪里？解码器的状态由此得到了什么？

# %% [markdown] lang="en"
# ## Exercises
#
# **1.** The paper starts with $v = 0$. What are the first weights then, whatever the four states of `memory`? Show it with
# the layer.

# %% [markdown] lang="zh"
# ## 练习
#
# **1.** 论文的初始值是 $v = 0$。那么无论 `memory` 的四个状态是什么，最初的权重是多少？用层验证。

# %% exercise=true
answer = ...  # your answer
check("2.1", answer)

# %% answer=true
zero = BahdanauAttention(units=6, score_initializer="zeros")
_, first = zero(query, memory, return_attention_scores=True)
np.testing.assert_allclose(first, 1 / 4, atol=1e-6)  # four places, all alike: the mean
assert check("2.1", first)

# %% [markdown] lang="en"
# **2.** Shuffle the source states. What changes with them: the `"weights"`, the `"context"`, `"both"` or `"neither"`?
# So which part of the model has to know the order of the words: `"encoder"`, `"attention"` or `"decoder"`? Hand in two
# words.

# %% [markdown] lang="zh"
# **2.** 打乱源端状态的次序。跟着变的是“权重”、“上下文”、“两个”还是“都不”？所以词序应由谁来知道：“编码器”、“注意力”还是“解码器”？
# 交两个词。

# %% exercise=true
answer = ...  # your answer
check("2.2", answer)

# %% answer=true
shuffled = [2, 0, 3, 1]
context, weights = layer(query, memory, return_attention_scores=True)
again, moved = layer(query, memory[:, shuffled], return_attention_scores=True)
np.testing.assert_allclose(moved, np.asarray(weights)[:, :, shuffled], atol=1e-6)  # they go along
np.testing.assert_allclose(again, context, atol=1e-5)  # the same: only the encoder knows the order
assert check("2.2", ["weights", "encoder"])

# %% [markdown] lang="en"
# **3.** How many weights has `BahdanauAttention(units=U)` for states of `Dq` and `Dk` features? How do they grow with
# the length of the sentence? Hand in a function of `Dq`, `Dk` and `U`.

# %% [markdown] lang="zh"
# **3.** 状态宽度为 `Dq` 和 `Dk` 时，`BahdanauAttention(units=U)` 有多少个参数？它们随句子长度怎样增长？交一个 `Dq`、`Dk`、`U` 的函数。

# %% exercise=true
answer = ...  # your answer
check("2.3", answer)

# %% answer=true
Dq, Dk, U = 5, 8, 6
assert (
    layer.count_params() == Dq * U + Dk * U + U
)  # not at all: the length is in none of the shapes
assert check("2.3", lambda Dq, Dk, U: Dq * U + Dk * U + U)

# %% [markdown] lang="en"
# **4.** The last two states of the first sentence are padding. Give the layer a mask and show that the other weights are
# those of a sentence two words shorter. Why is multiplying the weights by the mask *after* the softmax not the
# same? Hand in the weights.

# %% [markdown] lang="zh"
# **4.** 设第一个句子的最后两个状态是填充。给层一个掩码，并说明其余权重与短两个词的句子相同。为什么在 softmax **之后**再乘掩码就不一样了？
# 交这些权重。

# %% exercise=true
answer = ...  # your answer
check("2.4", answer)

# %% answer=true
mask = np.array([[True, True, False, False]])
_, masked = layer(query[:1], memory[:1], value_mask=mask, return_attention_scores=True)
_, shorter = layer(query[:1], memory[:1, :2], return_attention_scores=True)
np.testing.assert_allclose(masked[:, :, :2], shorter, atol=1e-6)
assert np.all(np.asarray(masked)[:, :, 2:] == 0)
late = np.asarray(weights)[:1] * mask  # the padding took its part of the sum before it was removed
assert np.all(late.sum(axis=-1) < 1)
assert check("2.4", masked) and not check("2.4", late)

# %% [markdown] lang="en"
# **Source.** Bahdanau, Cho and Bengio 2015, "Neural machine translation by jointly learning to align and translate".
# The layer: [BahdanauAttention](../layers/bahdanau.md), the decoder: [AttentionDecoder](../layers/decoder.md).
# Next: [other scores, windows and input feeding](03_luong.md).

# %% [markdown] lang="zh"
# **出处**：Bahdanau, Cho and Bengio 2015, “Neural machine translation by jointly learning to align and translate”。
# 层：[BahdanauAttention](../layers/bahdanau.zh.md)；解码器：[AttentionDecoder](../layers/decoder.zh.md)。
# 下一讲：[其他得分、窗口与输入馈送](03_luong.zh.md)。
