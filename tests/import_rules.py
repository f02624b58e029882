"""The rules on who imports what, checked on the syntax tree: nothing is imported to check them."""

import ast
import graphlib
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "keras_attention"
APPLICATIONS = f"{PACKAGE}.applications"

# An area of the package -> the areas that it imports. An area that is not here is refused, so a
# new folder has to say what it needs.
LIBRARY = {
    "ops": {"ops"},
    "mods": {"ops", "mods"},
    "layers": {"ops", "mods", "layers"},
    "decoding": {"ops", "decoding"},
    "losses": {"ops", "losses"},
    "metrics": {"ops", "metrics", "paths"},
    "visualization": {"visualization", "paths"},
    "distribute": {"distribute"},
    "interop": {"layers", "interop"},
    "course": {"course"},
    "paths": set(),
    "version": set(),
}
# The rooms that the tasks share, from below to above: each imports only itself and those before it.
ROOMS = (
    "errors",
    "arguments",
    "store",
    "text",
    "schema",
    "data",
    "show",
    "training",
    "base",
)
TASKS = {"translation", "summarization", "answer_selection", "classification", "tagging"}

# Tensors are made with keras.ops alone in these, so that they run on every backend.
PORTABLE = {"ops", "mods", "layers", "decoding", "losses"}
# Modules that ask a backend for what Keras has no public way to get: a gradient, and float64.
BACKEND_ALLOWED = {"keras_attention.ops.vjp"}
BACKENDS = {"tensorflow", "tensorflow_text", "jax", "torch"}

# Parts of a dotted name that are not public, in packages that do not mark them by an underscore.
PRIVATE = ("keras.src", "keras_hub.src", "keras_nlp.src")
PRIVATE += ("tensorflow.python", "tf.python", "tensorflow.lite.python", "tf.lite.python")
# Modules that may use them, because no public way exists: the reason stands in the module.
PRIVATE_ALLOWED = {"keras_attention.applications.training.determinism"}


@dataclass(frozen=True)
class Import:
    """`import module` (name None) or `from module import name`."""

    line: int
    module: str
    name: str | None

    @property
    def dotted(self) -> str:
        return self.module if self.name is None else f"{self.module}.{self.name}"


def module_name(path: Path) -> str:
    """The installed name of a file, given relative to the repository."""
    parts = list(path.with_suffix("").parts)
    if parts[0] == "applications":
        parts.insert(0, PACKAGE)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def area_of(module: str) -> str:
    """`ops` of keras_attention.ops.masks; `applications.store` of ….applications.store.files."""
    parts = module.split(".")
    return ".".join(parts[1:3]) if parts[1:2] == ["applications"] else ".".join(parts[1:2])


def imports(tree: ast.AST, module: str, is_package: bool = False) -> list[Import]:
    """Every import of a module, wherever it stands, with relative ones made absolute."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [Import(node.lineno, alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                parents = module.split(".")
                kept = len(parents) - node.level + is_package
                source = ".".join(parents[:kept] + ([source] if source else []))
            found += [Import(node.lineno, source, alias.name) for alias in node.names]
    return found


def check_source(source: str, path: Path) -> list[str]:
    """All violations of one file, as `path:line: message`."""
    tree = ast.parse(source)
    module = module_name(path)
    found = imports(tree, module, path.name == "__init__.py")
    problems = _check_private(tree, found, module)
    if module.split(".")[0] == PACKAGE:
        if module == APPLICATIONS or module.startswith(APPLICATIONS + "."):
            problems += _check_application(found, module)
        else:
            problems += _check_library(found, module)
        if path.name == "__init__.py":
            problems += _check_reexports(tree)
    return [f"{path}:{line}: {message}" for line, message in sorted(problems)]


def _check_library(found: list[Import], module: str):
    area = area_of(module)
    if area and area not in LIBRARY:
        yield 1, f"area `{area}` has no entry in LIBRARY in tests/import_rules.py"
        return
    allowed = LIBRARY.get(area, set(LIBRARY))
    for item in found:
        portable = area in PORTABLE and module not in BACKEND_ALLOWED
        if portable and item.module.split(".")[0] in BACKENDS:
            yield item.line, f"`{area}` imports {item.module}: use keras.ops"
        if item.module.split(".")[0] != PACKAGE:
            continue
        target = area_of(item.dotted)
        if target not in allowed:
            yield item.line, f"`{area or PACKAGE}` must not import {item.dotted}"


def _check_application(found: list[Import], module: str):
    own = area_of(module).removeprefix("applications").removeprefix(".")
    if own and own not in {*ROOMS, *TASKS, "command"}:
        yield 1, f"`applications.{own}` has no entry in ROOMS or TASKS in tests/import_rules.py"
        return
    for item in found:
        if item.module.split(".")[0] != PACKAGE:
            continue
        target = area_of(item.dotted)
        if not target.startswith("applications"):
            if len(item.module.split(".")) > 2:
                yield item.line, f"{item.module} is inside an area: import its public name"
            continue
        room = target.removeprefix("applications").removeprefix(".")
        if room not in {own, *_below(own)}:
            yield item.line, f"`applications.{own}` must not import {item.dotted}"


def _below(room: str) -> set[str]:
    """The rooms that a room of the applications imports, but for itself."""
    if room == "command":
        return {*ROOMS, *TASKS}
    return set(ROOMS[: ROOMS.index(room)] if room in ROOMS else ROOMS)


def cycles(sources: dict[str, str]) -> list[list[str]]:
    """Modules that import one another in a circle; imports for type checkers do not count.

    Args:
        sources: the text of each module, by its name.
    """
    graph = {}
    for module, source in sources.items():
        tree = _WithoutTypes().visit(ast.parse(source))
        is_package = any(name.startswith(f"{module}.") for name in sources)
        found = imports(tree, module, is_package)
        targets = {item.dotted if item.dotted in sources else item.module for item in found}
        graph[module] = [name for name in targets if name in sources and name != module]
    sorter = graphlib.TopologicalSorter(graph)
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        return [error.args[1]]
    return []


class _WithoutTypes(ast.NodeTransformer):
    """Leaves out what only type checkers run."""

    def visit_If(self, node):
        return None if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)


def _check_private(tree: ast.AST, found: list[Import], module: str):
    if module in PRIVATE_ALLOWED:
        return []
    names = [(item.line, item.dotted) for item in found]
    names += [(node.lineno, ast.unparse(node)) for node in _attribute_chains(tree)]
    return [(line, f"{name} is private") for line, name in names if _is_private(name)]


def _is_private(dotted: str) -> bool:
    if any(dotted == name or dotted.startswith(name + ".") for name in PRIVATE):
        return True
    parts = dotted.split(".")
    foreign = parts[0] not in {PACKAGE, "self", "cls", "tests", "benchmarks", ""}
    hidden = [part for part in parts[:-1] if part.startswith("_") and not part.endswith("__")]
    return foreign and bool(hidden) and not parts[0].startswith("_")


def _attribute_chains(tree: ast.AST) -> list[ast.Attribute]:
    """Dotted names in the code whose first part is a module that the file imports."""
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
    chains = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            root = node
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name) and root.id in modules:
                chains.append(node)
    return chains


def _check_reexports(tree: ast.Module):
    """An `__init__` says what is public: a docstring, imports and `__all__`, nothing else."""
    imported, exported = set(), set()
    for position, node in enumerate(tree.body):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            imported |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            exported |= set(ast.literal_eval(node.value))
        elif not (position == 0 and ast.get_docstring(tree) is not None):
            yield node.lineno, "an __init__ holds re-exports and __all__ only"
    if imported != exported:
        names = ", ".join(sorted(imported ^ exported))
        yield 1, f"__all__ and the imports of an __init__ differ in: {names}"
