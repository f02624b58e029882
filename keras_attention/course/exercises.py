"""The exercises of the lectures: the form of an answer, hints, and the solution in words."""

import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from keras_attention.course.answers import Choice, Formula, Numbers, Property, Text


class Expected(Protocol):
    """Compares an answer; it raises `WrongForm` where that is not possible."""

    def is_right(self, answer: object) -> bool: ...


@dataclass(frozen=True)
class Exercise:
    """An exercise. Its answer stands in no `repr`, so that nobody reads it by accident.

    Args:
        expects: The form of the answer, after "Expected:".
        expected: Compares an answer.
        hints: Hints, each more of a help than the one before.
        solution: Why the answer is what it is.
    """

    expects: Text
    expected: Expected = field(repr=False)
    hints: tuple[Text, ...] = field(repr=False)
    solution: Text = field(repr=False)


NEITHER = ("none", "both are the same", "都不", "都不是", "没有")
BOTH = ("两个", "两者", "都")


def _masked(weights: np.ndarray) -> bool:
    """Whether the last two of four weights are 0, and the others sum to 1."""
    sums = weights[..., :2].sum(axis=-1)
    return not weights[..., 2:].any() and bool(np.all(np.abs(sums - 1) < 1e-5))


EXERCISES = {
    "1.1": Exercise(
        {
            "en": "two lists of 20 numbers, the distances of the source as it is and reversed",
            "zh": "两个列表，各 20 个数：原序和倒序的距离",
        },
        Numbers([[20] * 20, list(range(0, 40, 2))], tolerance=0.1),
        (
            {
                "en": "Count the words that are still to be read after word s, and those that are "
                "written before its translation.",
                "zh": "数一数：第 s 个词之后还要读几个词，写出它的译文之前还要写几个词。",
            },
            {
                "en": "As it is: 20 - s words to read, s to write. Reversed: s to read.",
                "zh": "原序：还要读 20 - s 个，写 s 个。倒序：还要读 s 个。",
            },
        ),
        {
            "en": "Unchanged, each distance is 20. Reversed, it is 2s: 0 for the first word and 38 "
            "for the last. The mean is almost the same, but the beginning is near.",
            "zh": "原序时每个距离都是 20；倒序时是 2s：第一个词为 0，最后一个词为 38。"
            "平均几乎一样，但开头变近了。",
        },
    ),
    "1.2": Exercise(
        {
            "en": "three numbers of bits: for 2 words, for 20 words, and what c has",
            "zh": "三个比特数：2 个词、20 个词，以及 c 所具有的",
        },
        Numbers([2 * math.log2(30), 20 * math.log2(30), 128], tolerance=0.5),
        (
            {
                "en": "One of 30 words is log2(30) bits.",
                "zh": "三十个词中的一个是 log2(30) 比特。",
            },
            {
                "en": "c has 64 numbers of 2 bits.",
                "zh": "c 有 64 个数，每个 2 比特。",
            },
        ),
        {
            "en": "2 log2(30) = 9.8 and 20 log2(30) = 98 bits; c has 128. By counting that is "
            "enough: the limit is what training finds.",
            "zh": "2 log2(30) = 9.8，20 log2(30) = 98 比特；c 有 128。单看数量是够的："
            "限制在于训练能找到什么。",
        },
    ),
    "1.3": Exercise(
        {
            "en": '"single vector", "attention", "both" or "neither"',
            "zh": "“单个向量”、“注意力”、“两个”或“都不”",
        },
        Choice(
            ["neither"],
            [
                {
                    "single vector": ("单个向量", "单向量"),
                    "attention": ("注意力",),
                    "both": BOTH,
                    "neither": NEITHER,
                }
            ],
        ),
        (
            {
                "en": "Print the shapes of `model.weights`. Does one hold the length?",
                "zh": "打印 `model.weights` 的形状。其中有句子长度吗？",
            },
        ),
        {
            "en": "Neither: only what is looked at grows, the states.",
            "zh": "都不：增长的只是被看的东西，即状态。",
        },
    ),
    "2.1": Exercise(
        {
            "en": "a number, or the array of the first weights over four source states",
            "zh": "一个数，或四个源端状态上最初权重的数组",
        },
        Numbers(1 / 4, tolerance=1e-4, repeated=True),
        (
            {"en": "Which energies does v = 0 give?", "zh": "v = 0 给出怎样的能量？"},
            {
                "en": "All energies are 0. What is the softmax of four equal numbers?",
                "zh": "能量全为 0。四个相等的数，softmax 是多少？",
            },
        ),
        {
            "en": "Each of the four states gets 1/4: the context starts as the mean.",
            "zh": "四个状态各得 1/4：上下文向量从平均值开始。",
        },
    ),
    "2.2": Exercise(
        {
            "en": 'two words: what changes ("weights", "context", "both" or "neither"), and which '
            'part knows the order ("encoder", "attention" or "decoder")',
            "zh": "两个词：什么会变（“权重”、“上下文”、“两个”或“都不”），"
            "以及谁知道次序（“编码器”、“注意力”或“解码器”）",
        },
        Choice(
            ["weights", "encoder"],
            [
                {
                    "weights": ("权重",),
                    "context": ("上下文", "上下文向量"),
                    "both": BOTH,
                    "neither": NEITHER,
                },
                {"encoder": ("编码器",), "attention": ("注意力",), "decoder": ("解码器",)},
            ],
        ),
        (
            {
                "en": "The energy of a state depends on this state alone, not on its position.",
                "zh": "一个状态的能量只取决于它自己，与位置无关。",
            },
            {
                "en": "A sum does not change with the order of its terms.",
                "zh": "求和与各项的次序无关。",
            },
        ),
        {
            "en": "The weights move along with their states; their sum, the context, stays. So "
            "only the encoder can know the order of the words.",
            "zh": "权重跟着状态移动；加权和，即上下文向量，不变。所以只有编码器能知道词序。",
        },
    ),
    "2.3": Exercise(
        {
            "en": "a function of Dq, Dk and U, or the number for Dq = 5, Dk = 8, U = 6",
            "zh": "Dq、Dk、U 的函数，或 Dq = 5、Dk = 8、U = 6 时的数",
        },
        Formula(lambda Dq, Dk, U: Dq * U + Dk * U + U, [(5, 8, 6), (7, 3, 11), (1, 13, 2)]),
        (
            {"en": "There are three weights: W, U and v.", "zh": "有三个参数：W、U 和 v。"},
            {
                "en": "W is Dq x U, the matrix of the keys Dk x U, and v has U numbers.",
                "zh": "W 是 Dq x U，键的矩阵是 Dk x U，v 有 U 个数。",
            },
        ),
        {
            "en": "(Dq + Dk + 1) U. The length is in none of the shapes, so they do not grow.",
            "zh": "(Dq + Dk + 1) U。句子长度不在任何形状里，所以不增长。",
        },
    ),
    "2.4": Exercise(
        {
            "en": "the masked weights, an array (1, 3, 4)",
            "zh": "加了掩码的权重，形状为 (1, 3, 4) 的数组",
        },
        Property((1, 3, 4), _masked),
        (
            {
                "en": "`value_mask` is True where a state may be read.",
                "zh": "`value_mask` 在可以读的状态处为 True。",
            },
            {
                "en": "The other two weights of each row must sum to 1 again.",
                "zh": "每一行其余两个权重之和必须重新为 1。",
            },
        ),
        {
            "en": "The padding has weight 0 before the softmax divides, so the others sum to 1. "
            "Multiplied after it, they sum to less: the padding took its part.",
            "zh": "填充在 softmax 做除法之前就为 0，所以其余之和为 1。若在 softmax 之后再乘，"
            "其余之和小于 1：填充已经占去一份。",
        },
    ),
    "3.1": Exercise(
        {"en": "a matrix (8, 8)", "zh": "一个 (8, 8) 的矩阵"},
        Numbers(np.eye(8), tolerance=1e-4),
        ({"en": "For which W is q W k = q k?", "zh": "W 是什么时 q W k = q k？"},),
        {"en": "The identity.", "zh": "单位矩阵。"},
    ),
    "3.2": Exercise(
        {
            "en": "two numbers, for half_width = 3: at the first step and in the middle",
            "zh": "half_width = 3 时的两个数：第一步，以及中间",
        },
        Numbers([4, 7], tolerance=0.1),
        (
            {
                "en": "The window holds D positions on either side of its centre.",
                "zh": "窗口在中心两侧各有 D 个位置。",
            },
            {
                "en": "At the first step there is nothing to the left of the centre.",
                "zh": "第一步时，中心左边什么都没有。",
            },
        ),
        {
            "en": "D + 1 and 2D + 1: the window is cut at the end of the sentence.",
            "zh": "D + 1 和 2D + 1：窗口在句子两端被截断。",
        },
    ),
    "3.3": Exercise(
        {
            "en": "a number, the sum of the weights of one query",
            "zh": "一个数：一个查询的权重之和",
        },
        Numbers((1 + 2 * math.exp(-0.5) + 2 * math.exp(-2)) / 5, tolerance=2e-3),
        (
            {
                "en": "The softmax gives each of the five positions 1/5. What does the bell leave?",
                "zh": "softmax 给五个位置各 1/5。钟形曲线留下多少？",
            },
            {
                "en": "D = 2, so sigma = 1, and the bell is exp(-(s - p)^2 / 2).",
                "zh": "D = 2，所以 sigma = 1，钟形曲线是 exp(-(s - p)^2 / 2)。",
            },
        ),
        {
            "en": "(1 + 2 exp(-1/2) + 2 exp(-2)) / 5 = 0.497. The bell takes some of the weight, "
            "and the paper gives none back.",
            "zh": "(1 + 2 exp(-1/2) + 2 exp(-2)) / 5 = 0.497。钟形曲线拿走一部分权重，"
            "论文并不补回。",
        },
    ),
    "3.4": Exercise(
        {
            "en": "a number, or the array of these weights",
            "zh": "一个数，或这些权重的数组",
        },
        Numbers(0, tolerance=1e-6, repeated=True),
        (
            {
                "en": "How many columns has the matrix of a location score?",
                "zh": "location 得分的矩阵有多少列？",
            },
        ),
        {
            "en": "0: the score has no column for positions that it was not built for.",
            "zh": "0：对建层时没有的位置，得分没有对应的列。",
        },
    ),
    "4.1": Exercise(
        {"en": '"outside", "word", "both" or "neither"', "zh": "“外部”、“word”、“两个”或“都不”"},
        Choice(
            ["outside"],
            [{"outside": ("外部", "外部注意力"), "word": (), "both": BOTH, "neither": NEITHER}],
        ),
        (
            {
                "en": "What does each weight read: a word, or a state of the GRU?",
                "zh": "每个权重读的是什么：一个词，还是 GRU 的一个状态？",
            },
        ),
        {
            "en": "Outside: a state has read all words before it. With `word` the weight is made "
            "of the question and this one word.",
            "zh": "外部：一个状态读过前面所有的词。用 `word` 时，权重只由问题和这一个词算出。",
        },
    ),
    "4.2": Exercise(
        {"en": "a number, or the array of the weights", "zh": "一个数，或权重的数组"},
        Numbers(0.5, tolerance=1e-4, repeated=True),
        (
            {"en": "The energy is a product with the question.", "zh": "能量是与问题的乘积。"},
            {"en": "What is the sigmoid of 0?", "zh": "0 的 sigmoid 是多少？"},
        ),
        {
            "en": "The sigmoid of 0 is 0.5, for every word. `gate` becomes a plain GRU.",
            "zh": "0 的 sigmoid 是 0.5，每个词都一样。`gate` 变成普通的 GRU。",
        },
    ),
    "4.3": Exercise(
        {"en": "a number", "zh": "一个数"},
        Numbers((1 + 1 / 2 + 1 / 3 + 1 / 4 + 1 / 5) / 5, tolerance=2e-3),
        (
            {
                "en": "The right answer has each of the five ranks equally often.",
                "zh": "正确答案得到五个名次中每一个的机会相同。",
            },
        ),
        {
            "en": "(1 + 1/2 + 1/3 + 1/4 + 1/5) / 5 = 0.457.",
            "zh": "(1 + 1/2 + 1/3 + 1/4 + 1/5) / 5 = 0.457。",
        },
    ),
    "4.4": Exercise(
        {"en": "a number, the score", "zh": "一个数：得分"},
        Numbers(1, tolerance=1e-3),
        (
            {
                "en": "Without I-PER, the best sequence is O B-PER O. What is its score?",
                "zh": "不用 I-PER 时，最好的序列是 O B-PER O。它的得分是多少？",
            },
            {
                "en": "With a score of x at palmer, B-PER I-PER O has 1 + (1 + x) + 2: the 1 in "
                "front of x is the transition.",
                "zh": "palmer 处得分为 x 时，B-PER I-PER O 得 1 + (1 + x) + 2："
                "x 前面的 1 是转移的得分。",
            },
        ),
        {
            "en": "Below 1. O B-PER O has 2 + 1 + 2 = 5, and B-PER I-PER O has 4 + x. The other "
            "labels change with one word's score.",
            "zh": "低于 1 时。O B-PER O 得 2 + 1 + 2 = 5，B-PER I-PER O 得 4 + x。"
            "一个词的得分变了，别的词的标签也跟着变。",
        },
    ),
    "4.5": Exercise(
        {
            "en": "two numbers: of sequences, and of sums",
            "zh": "两个数：序列的个数与和的个数",
        },
        Numbers([5**20, 19 * 5 * 5], tolerance=0.5),
        (
            {
                "en": "Each word multiplies the number of sequences by 5.",
                "zh": "每多一个词，序列的个数乘以 5。",
            },
            {
                "en": "From the second word on, each of 5 labels looks at 5 labels before it.",
                "zh": "从第二个词起，5 个标签中的每一个都看前面的 5 个标签。",
            },
        ),
        {
            "en": "5 to the power of 20 is about 95 trillion sequences; 19 x 25 = 475 sums find "
            "the best of them. The time grows with the length, and not exponentially.",
            "zh": "5 的 20 次方，约 95 万亿个序列；而 19 x 25 = 475 个和就能找到其中最好的。"
            "时间随长度成正比，而不是指数增长。",
        },
    ),
    "4.6": Exercise(
        {"en": '"yes" or "no"', "zh": "“是”或“否”"},
        Choice(["no"], [{"yes": ("是", "会"), "no": ("否", "不是", "不")}]),
        (
            {
                "en": "What are the probabilities of the labels of sydney, and of palmer, in the "
                "table of the three readings?",
                "zh": "在三种读法的表里，sydney 和 palmer 各个标签的概率是多少？",
            },
            {
                "en": "A marginal is a sum over all sequences with this label, so it is that of "
                "the word alone.",
                "zh": "边缘概率是对含有该标签的所有序列求和，所以只说这一个词。",
            },
        ),
        {
            "en": "No: the likeliest labels are B-LOC and I-PER again. The CRF knows the whole "
            "distribution, and still the best labels one by one are not the best sequence. "
            "Viterbi's algorithm gives that.",
            "zh": "不：最可能的标签又是 B-LOC 和 I-PER。CRF 知道整个分布，"
            "但逐个最好的标签仍不是最好的序列；最好的序列要用 Viterbi 算法来求。",
        },
    ),
    "5.1": Exercise(
        {
            "en": "two numbers, for T = 5: always the same place, and never a place twice",
            "zh": "T = 5 时的两个数：总读同一处，以及从不重复",
        },
        Numbers([0.8, 0], tolerance=1e-3),
        (
            {
                "en": "At the first step nothing is covered. What is the minimum then?",
                "zh": "第一步时什么都没有覆盖。这时最小值是多少？",
            },
            {
                "en": "At each later step the minimum of a and c is 1. Take the mean of 5 steps.",
                "zh": "之后每一步，a 与 c 的最小值是 1。对 5 步取平均。",
            },
        ),
        {
            "en": "(T - 1) / T = 0.8, and 0.",
            "zh": "(T - 1) / T = 0.8，以及 0。",
        },
    ),
    "5.2": Exercise(
        {
            "en": "a number, or the array of weights over six positions from the second time on",
            "zh": "一个数，或从第二次起六个位置上权重的数组",
        },
        Numbers(1 / 6, tolerance=1e-3, repeated=True),
        (
            {
                "en": "The n-th time, the sum in the denominator holds exp(e) n - 1 times.",
                "zh": "第 n 次时，分母的和里有 n - 1 个 exp(e)。",
            },
        ),
        {
            "en": "exp(e) over (n - 1) exp(e) is the same for all positions: each of six gets 1/6.",
            "zh": "exp(e) 除以 (n - 1) exp(e)，所有位置都相同：六个位置各得 1/6。",
        },
    ),
    "5.3": Exercise(
        {"en": "a number, or an array of 7 numbers", "zh": "一个数，或 7 个数的数组"},
        Numbers(0, tolerance=1e-6, repeated=True),
        (
            {
                "en": "Which term of the score is new?",
                "zh": "得分里哪一项是新的？",
            },
        ),
        {"en": "Zeros: the new term is gone.", "zh": "全零：新的一项就没有了。"},
    ),
    "5.4": Exercise(
        {"en": "four numbers, the weights P", "zh": "四个数，即权重 P"},
        Numbers([0.1, 0.2, 0.3, 0.4], tolerance=1e-3),
        (
            {
                "en": "Multiply each weight of a word by that of its sentence.",
                "zh": "每个词的权重乘以它所在句子的权重。",
            },
            {"en": "Then divide by the sum of the four.", "zh": "然后除以四个数之和。"},
        ),
        {
            "en": "The weights of the words themselves: equal factors cancel, and word attention "
            "over the whole document is left.",
            "zh": "就是词的权重本身：相同的因子约去，剩下整篇文档上的词注意力。",
        },
    ),
    "6.1": Exercise(
        {
            "en": "two arrays (2, 2) of weights: with the keys times 10, and times 0",
            "zh": "两个 (2, 2) 的权重数组：键乘以 10，以及乘以 0",
        },
        Numbers([[[0, 1], [0, 1]], [[0.5, 0.5], [0.5, 0.5]]], tolerance=5e-3),
        (
            {
                "en": "The scores are multiplied, too. What does a softmax do to large gaps?",
                "zh": "得分也乘以同样的数。差距很大时，softmax 会怎样？",
            },
            {
                "en": "The scores are (1, 2) and (2, 4), times the factor, over sqrt(3).",
                "zh": "得分是 (1, 2) 和 (2, 4)，乘以因子，再除以 sqrt(3)。",
            },
        ),
        {
            "en": "Times 10, nearly all weight is on the greater score. Times 0, all weights are "
            "1/2, and the output is the mean of the values.",
            "zh": "乘以 10 时，权重几乎全在较大的得分上。乘以 0 时，权重全是 1/2，输出是值的平均。",
        },
    ),
    "6.2": Exercise(
        {
            "en": "two numbers of weights, without biases, for words of 64 features",
            "zh": "两个参数量（不含偏置，词为 64 维）",
        },
        Numbers([4 * 64 * 64] * 2, tolerance=0.5),
        (
            {
                "en": "Count the query's kernel first: features x heads x features of a head.",
                "zh": "先数查询的矩阵：特征数 x 头数 x 每头的维数。",
            },
            {
                "en": "There are four kernels: query, key, value and output.",
                "zh": "共有四个矩阵：查询、键、值和输出。",
            },
        ),
        {
            "en": "Both have 4 x 64 x 64 = 16,384: the heads share the width.",
            "zh": "两者都是 4 x 64 x 64 = 16384：各个头分享宽度。",
        },
    ),
    "6.3": Exercise(
        {
            "en": "a list of the positions whose output changes, counted from 0",
            "zh": "输出有变化的位置的列表，从 0 数起",
        },
        Numbers([4], tolerance=0.1),
        (
            {
                "en": "Word t reads the words up to t.",
                "zh": "第 t 个词只读到第 t 个词为止。",
            },
        ),
        {"en": "The last place alone, 4.", "zh": "只有最后一个位置，即 4。"},
    ),
    "6.4": Exercise(
        {
            "en": "a number: how far the logits change at most where the source is read backwards",
            "zh": "一个数：源端倒过来读时，logits 最多变化多少",
        },
        Numbers(0, tolerance=1e-2),
        (
            {
                "en": "Exercise 2 of lecture 2: what does attention know of the order?",
                "zh": "第 2 讲的练习 2：注意力对次序知道些什么？",
            },
        ),
        {
            "en": "0, but for rounding: to this encoder a word is a bag of letters, and sorting "
            "needs no more.",
            "zh": "除舍入误差外为 0：对这个编码器来说，单词就是一袋字母，排序也不需要更多。",
        },
    ),
    "7.1": Exercise(
        {
            "en": '"positions", "segments", "words" or "nothing"',
            "zh": "“位置”、“片段”、“词”或“没有”",
        },
        Choice(
            ["positions"],
            [
                {
                    "positions": ("position", "position embeddings", "位置", "位置编码"),
                    "segments": ("segment", "片段", "片段编号"),
                    "words": ("word", "词"),
                    "nothing": ("none", "没有"),
                }
            ],
        ),
        (
            {
                "en": "Which embeddings are added to those of the words?",
                "zh": "词向量上还加了哪些向量？",
            },
            {"en": "The exercise switches one of the two off.", "zh": "题目关掉了两者之一。"},
        ),
        {
            "en": "The outputs differ: the position embeddings tell the order.",
            "zh": "输出不同：位置向量告诉它次序。",
        },
    ),
    "7.2": Exercise(
        {
            "en": "a number: how far the output changes at most",
            "zh": "一个数：输出最多变化多少",
        },
        Numbers(0, tolerance=1e-3),
        (
            {
                "en": "Compare the `pooled_output` of a text with and without four padding ids.",
                "zh": "比较同一文本有、无四个填充位置时的 `pooled_output`。",
            },
        ),
        {
            "en": "0, but for rounding: the padding has weight 0.",
            "zh": "除舍入误差外为 0：填充的权重是 0。",
        },
    ),
    "7.3": Exercise(
        {"en": "a number, for a vocabulary of 54", "zh": "一个数（词表大小为 54）"},
        Numbers(math.log(54), tolerance=5e-3),
        (
            {
                "en": "The probability of the right word is one over the size of the vocabulary.",
                "zh": "正确词的概率是词表大小的倒数。",
            },
            {"en": "The loss is the negative natural logarithm.", "zh": "损失是负的自然对数。"},
        ),
        {
            "en": "log(54) = 3.99. Training began near it: the model knew nothing.",
            "zh": "log(54) = 3.99。训练从这附近开始：模型什么都不知道。",
        },
    ),
    "10.1": Exercise(
        {
            "en": "three numbers: KiB for a word, GiB for the text, and words",
            "zh": "三个数：每个词的 KiB，整个文本的 GiB，以及词数",
        },
        Numbers([128, 4, 65], tolerance=0.1),
        (
            {
                "en": "Each layer keeps a key and a value for each head: 2 x 8 x 128 numbers.",
                "zh": "每一层的每个头留下一个键和一个值：2 x 8 x 128 个数。",
            },
            {
                "en": "A head's sums have 128 x 129 numbers, and a word adds 2 x 128. A KiB is "
                "1,024 bytes.",
                "zh": "一个头的和有 128 x 129 个数，一个词增加 2 x 128 个。1 KiB 是 1024 字节。",
            },
        ),
        {
            "en": "32 x 2 x 8 x 128 x 2 bytes = 128 KiB a word, times 32,768 = 4 GiB. "
            "128 x 129 / (2 x 128) = 64.5, so from the 65th word on.",
            "zh": "32 x 2 x 8 x 128 x 2 字节，即每个词 128 KiB；乘以 32768，得 4 GiB。"
            "128 x 129 / (2 x 128) = 64.5，所以从第 65 个词起。",
        },
    ),
    "10.2": Exercise(
        {
            "en": "three numbers: linear attention for (1, 0), the delta rule for (1, 0), and "
            "for (0.6, 0.8)",
            "zh": "三个数：线性注意力对 (1, 0)，delta 规则对 (1, 0)，以及对 (0.6, 0.8)",
        },
        Numbers([3.5, 4.88, 6], tolerance=5e-3),
        (
            {
                "en": "Linear attention is a mean of 2 and 6. What are the weights, q k of each?",
                "zh": "线性注意力是 2 和 6 的加权平均。权重（各自的 q k）是多少？",
            },
            {
                "en": "For the second key the delta rule reads 0.6 x 2 = 1.2. It adds the rest, "
                "4.8, along that key.",
                "zh": "对第二个键，delta 规则读出 0.6 x 2 = 1.2，并沿这个键加上其余的 4.8。",
            },
        ),
        {
            "en": "(2 + 0.6 x 6) / 1.6 = 3.5, and 2 + 4.8 x 0.6 = 4.88, and 6. The last key is "
            "exact, and the one like it is disturbed.",
            "zh": "(2 + 0.6 x 6) / 1.6 = 3.5；2 + 4.8 x 0.6 = 4.88；6。最后写的键是准确的，"
            "与它相近的键被扰乱了。",
        },
    ),
    "10.3": Exercise(
        {
            "en": "two numbers: a share, and how many words back",
            "zh": "两个数：比例，以及往前多少个词",
        },
        Numbers([20 / 64, 762], tolerance=1e-3),
        (
            {
                "en": "A window of 128 goes 127 words back.",
                "zh": "窗口为 128 时，往前 127 个词。",
            },
            {
                "en": "From the furthest word in its window, the layer below goes as far again.",
                "zh": "从窗口里最远的词出发，下面一层又往前走同样远。",
            },
        ),
        {
            "en": "20 / 64 = 0.3125, and 6 x 127 = 762.",
            "zh": "20 / 64 = 0.3125；6 x 127 = 762。",
        },
    ),
}
"""By lecture and exercise; all but those of lectures 8 and 9, whose answers cannot be compared."""
