"""Small changes of a module's source, one at a time: what a slip of the hand would leave behind."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_COMPARED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_COMPUTED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
_CALLED: Final = {
    "any": "all", "all": "any", "min": "max", "max": "min", "amin": "amax", "amax": "amin", "cummin": "cummax",
    "cummax": "cummin", "sum": "mean", "mean": "sum", "zeros_like": "ones_like", "ones_like": "zeros_like",
    "new_zeros": "new_ones", "zeros": "ones", "ones": "zeros", "maximum": "minimum", "minimum": "maximum",
}  # fmt: skip
_LEFT_OUT: Final = ("detach", "clamp", "where", "abs", "square", "sqrt", "exp", "isfinite", "flip", "sort", "bool")
"""Methods that a change leaves out: `x.clamp(min=1)` becomes `x`."""


@dataclass(frozen=True)
class Change:
    """One change of one module."""

    module: str
    """Path of the file from the root of the repository."""
    function: str
    line: int
    before: str
    after: str
    source: str
    """The whole module with it."""

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {self.function}: {self.before} → {self.after}"

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What tells the change from others and does not move with the lines above it."""
        return self.module, self.function, self.before, self.after


def changes_of(module: str, source: str) -> Iterator[Change]:
    """All changes of a module, from top to bottom. Docstrings, annotations, error messages and log calls are left as
    they are.
    """
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for function, node, after in _Finder().found(ast.parse(source)):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        first, last = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        data = source.encode()
        changed = (data[:first] + after.encode() + data[last:]).decode()
        before = " ".join(data[first:last].decode().split())
        yield Change(module, function, node.lineno, before, after, changed)


class _Finder:
    """Walks a module; knows in which function it is."""

    def found(self, node: ast.AST, function: str = "module") -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
        for child in self._children(node):
            inside = child.name if isinstance(child, ast.FunctionDef | ast.ClassDef) else ""
            name = inside if function == "module" else f"{function}.{inside}" if inside else function
            if isinstance(child, ast.expr | ast.stmt):
                for after in _changed(child):
                    yield function, child, after
            yield from self.found(child, name or function)

    @staticmethod
    def _children(node: ast.AST) -> Iterator[ast.AST]:
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "bases"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not _is_left_alone(child):
                    yield child


def _is_left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Raise() | ast.JoinedStr() | ast.Import() | ast.ImportFrom() | ast.match_case() | ast.Assert():
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="log")))):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
    return False


def _changed(node: ast.expr | ast.stmt) -> Iterator[str]:
    """The texts that may stand in the node's place."""
    match node:
        case ast.Compare(ops=[operator], left=left, comparators=[right]):
            yield _text(ast.Compare(left, [_COMPARED[type(operator)]()], [right]))
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _COMPUTED:
            yield _text(ast.BinOp(left, _COMPUTED[type(operator)](), right))
        case ast.UnaryOp(operand=operand) if not isinstance(operand, ast.Constant):
            yield _text(operand)
        case ast.BoolOp(op=operator, values=values):
            yield _text(ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values))
        case ast.Constant(value=bool() as value):
            yield str(not value)
        case ast.Constant(value=int() as value):
            yield str(value + 1)
        case ast.Constant(value=float() as value):
            yield repr(value * 2 if value else 1.0)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield _text(ast.IfExp(test, orelse, body))
        case ast.AugAssign(target=target, value=value):
            yield f"{ast.unparse(target)} = {ast.unparse(value)}"
        case ast.Call(func=ast.Attribute(value=value, attr=name), args=args, keywords=keywords):
            if name in _LEFT_OUT:
                yield _text(value)
            if name in _CALLED:
                yield _text(ast.Call(ast.Attribute(value, _CALLED[name], ast.Load()), args, keywords))
        case ast.Call(func=ast.Name(id="min" | "max" | "any" | "all" as name), args=args, keywords=keywords):
            yield _text(ast.Call(ast.Name(_CALLED[name], ast.Load()), args, keywords))
        case ast.Expr(value=ast.Call()):
            yield "pass"
        case ast.Continue():
            yield "break"
        case ast.Break():
            yield "continue"


def _text(node: ast.expr) -> str:
    return f"({ast.unparse(ast.fix_missing_locations(node))})"
