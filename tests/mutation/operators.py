"""What is changed in a line: each operator gives another text for one node of the syntax tree."""

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
OTHER_NAMES = {
    "min": "max",
    "minimum": "maximum",
    "argmin": "argmax",
    "mean": "median",
    "sum": "mean",
    "any": "all",
    "floor": "ceil",
    "zeros": "ones",
    "zeros_like": "ones_like",
    "logical_and": "logical_or",
    "append": "remove",
    "sorted": "list",
    "startswith": "endswith",
    "lstrip": "rstrip",
}
OTHER_NAMES |= {value: key for key, value in OTHER_NAMES.items() if key not in ("mean", "sum")}
OTHER_NAMES |= {"abs": "negative", "exp": "expm1", "log": "log1p", "sqrt": "square"}
EITHER_WAY = {"maximum", "minimum", "logical_and", "logical_or", "add", "multiply", "max", "min"}
EITHER_WAY |= {"combine_masks"}
"""Functions of which the order of the arguments says nothing."""
NOT_SWAPPED = EITHER_WAY | {"isinstance", "issubclass", "getattr", "setattr", "hasattr"}
NOT_SWAPPED |= {"suppress", "range", "zip", "map", "filter", "enumerate"}  # these fail at once
NOT_COMPUTED = {"strict", "autograph", "reduce_retracing", "name", "stacklevel", "repr"}
"""Arguments that guard or say, and compute nothing."""


@dataclass(frozen=True)
class Mutant:
    """A file with one line changed."""

    file: str
    line: int
    first: int  # of the lines that a test must run to see it; 0 if an import runs it
    last: int
    before: str
    after: str
    source: str

    def diff(self) -> str:
        before, after = self.before.splitlines(), self.after.splitlines()
        lines = list(difflib.unified_diff(before, after, lineterm="", n=0))[3:]
        return "\n".join([f"{self.file}:{self.line}", *lines])


def mutants(file: str, source: str) -> list[Mutant]:
    """Return every mutant of a source, in the order of its lines."""
    tree = ast.parse(source)
    found = []
    for node, new, body in changes(tree):
        mutant = changed(file, source, node, new, body)
        if mutant is not None:
            found.append(mutant)
    return sorted(found, key=lambda mutant: mutant.line)


def changed(file: str, source: str, node: ast.AST, new: str, body: list | None) -> Mutant | None:
    lines = source.encode().splitlines(keepends=True)
    first, last = node.lineno - 1, node.end_lineno
    start = lines[first][: node.col_offset]
    end = lines[last - 1][node.end_col_offset :]
    text = (start + new.encode() + end).decode()
    mutated = b"".join(lines[:first]).decode() + text + b"".join(lines[last:]).decode()
    try:
        compile(mutated, file, "exec")
    except SyntaxError:
        return None
    before = b"".join(lines[first:last]).decode()
    if text == before:  # of two arguments that are alike
        return None
    # A default is seen by the tests that run the function's body.
    runs = [node] if body is None else body
    seen = (runs[0].lineno, runs[-1].end_lineno) if runs else (0, 0)
    return Mutant(file, node.lineno, *seen, before, text, mutated)


def changes(tree: ast.Module) -> Iterator[tuple[ast.AST, str, list | None]]:
    """Give each node that is changed, its new text, and the body whose run shows the change."""
    waiting: list[tuple[ast.AST, list | None, bool]] = [(tree, [], False)]
    while waiting:
        node, body, is_argument = waiting.pop()
        if is_left_out(node):
            continue
        is_type = isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and body == []
        if not is_type:
            yield from ((place, new, body) for place, new in changes_of(node, is_argument))
        for name, child in children(node):
            inner = body
            if isinstance(node, (ast.FunctionDef, ast.Lambda)):
                inner = None if name == "body" else list(statements(node))
            waiting.append((child, inner, isinstance(node, ast.keyword)))


def statements(node: ast.FunctionDef | ast.Lambda) -> list[ast.AST]:
    body = node.body if isinstance(node.body, list) else [node.body]
    return [part for part in body if not is_left_out(part)] or body


def children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if is_negative(node):
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST):
                yield name, part


def is_left_out(node: ast.AST) -> bool:
    """Whether a node computes nothing: docstrings, imports, types, the words of an error."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return node.name == "__repr__"
    if isinstance(node, ast.If):
        return getattr(node.test, "id", None) == "TYPE_CHECKING"
    if isinstance(node, ast.keyword):
        return node.arg in NOT_COMPUTED
    return isinstance(node, (ast.Import, ast.ImportFrom, ast.JoinedStr, ast.Raise))


def is_negative(node: ast.AST) -> bool:
    """Whether a node is a number with a sign, which is changed as one."""
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    return negative and isinstance(node.operand, ast.Constant)


def changes_of(node: ast.AST, is_argument: bool) -> Iterator[tuple[ast.AST, str]]:
    if isinstance(node, ast.Compare):
        yield from comparison(node)
    elif isinstance(node, (ast.BinOp, ast.AugAssign)):
        yield from arithmetic(node)
    elif isinstance(node, ast.BoolOp):
        yield from conditions(node)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.Invert)):
        yield node, f"({ast.unparse(node.operand)})"
    elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
        yield node.test, f"(not ({ast.unparse(node.test)}))"
    elif isinstance(node, ast.Constant) or is_negative(node):
        yield from constants(node, is_argument)
    elif isinstance(node, ast.Call):
        yield from calls(node)
    elif isinstance(node, (ast.Attribute, ast.Name)):
        yield from names(node)
    if is_dropped(node):
        yield node, "pass"


def comparison(node: ast.Compare) -> Iterator[tuple[ast.AST, str]]:
    for place, operation in enumerate(node.ops):
        if type(operation) in COMPARISONS:
            operations = list(node.ops)
            operations[place] = COMPARISONS[type(operation)]()
            new = ast.Compare(node.left, operations, node.comparators)
            yield node, f"({ast.unparse(new)})"


def arithmetic(node: ast.BinOp | ast.AugAssign) -> Iterator[tuple[ast.AST, str]]:
    other = ARITHMETIC.get(type(node.op))
    sides = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.value,)
    if other is None or any(is_text(side) for side in sides):
        return
    if isinstance(node, ast.BinOp):
        yield node, f"({ast.unparse(ast.BinOp(node.left, other(), node.right))})"
    else:
        yield node, ast.unparse(ast.AugAssign(node.target, other(), node.value))


def is_text(node: ast.AST) -> bool:
    text = isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
    return text or isinstance(node, ast.JoinedStr)


def conditions(node: ast.BoolOp) -> Iterator[tuple[ast.AST, str]]:
    other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    yield node, f"({ast.unparse(ast.BoolOp(other, node.values))})"
    for place in range(len(node.values)):
        kept = node.values[:place] + node.values[place + 1 :]
        new = kept[0] if len(kept) == 1 else ast.BoolOp(node.op, kept)
        yield node, f"({ast.unparse(new)})"


def constants(node: ast.AST, is_argument: bool) -> Iterator[tuple[ast.AST, str]]:
    value = ast.literal_eval(node)
    if isinstance(value, bool):
        yield node, str(not value)
    elif isinstance(value, int):
        yield node, str(value + 1)
        if value == -1 and is_argument:  # another axis
            yield node, "-2"
    elif isinstance(value, float):
        yield node, str(2 * value or 1.0)


def calls(node: ast.Call) -> Iterator[tuple[ast.AST, str]]:
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    swapped = [*node.args[1::-1], *node.args[2:]]
    starred = any(isinstance(argument, ast.Starred) for argument in node.args[:2])
    texts = any(is_text(argument) for argument in node.args[:2])
    if len(node.args) > 1 and name not in NOT_SWAPPED and not starred and not texts:
        yield node, ast.unparse(ast.Call(node.func, swapped, node.keywords))


def names(node: ast.Attribute | ast.Name) -> Iterator[tuple[ast.AST, str]]:
    if not isinstance(node.ctx, ast.Load):
        return
    if isinstance(node, ast.Attribute) and node.attr in OTHER_NAMES:
        yield node, ast.unparse(ast.Attribute(node.value, OTHER_NAMES[node.attr], node.ctx))
    elif isinstance(node, ast.Name) and node.id in ("min", "max", "any", "all", "sorted"):
        yield node, OTHER_NAMES[node.id]


def is_dropped(node: ast.AST) -> bool:
    """Whether a statement can go: a call, a change in place, or a name that is bound again."""
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, (ast.Yield, ast.YieldFrom))
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        used = {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)}
        return node.targets[0].id in used
    return isinstance(node, ast.AugAssign)
