"""Runs the tests on one change after another.

The tests of a module are collected once. Each change then gets a process forked from there, in which the functions that
it touches are given their new code, and the tests run until one fails. A change outside of functions (a default, a
constant) is read by whoever imports the module, so for those the fork imports everything anew, from a tree of its own.
"""

import gc
import json
import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from tests.mutation.changes import Change

CPU_SECONDS = 90
"""A change that makes the tests compute longer than this was noticed."""
OPTIONS = (
    "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0", "--timeout=0",
    "-W", "ignore::pytest.PytestAssertRewriteWarning",
)  # fmt: skip
"""Of pytest; equal changes meet equal tests."""
NEEDED = ("a2tgpo", "algorithms", "baselines", "docs", "envs", "examples", "tests", "pyproject.toml", "README.md")
_OPTIMIZED = 1
"""Flag of the code of functions, which modules and class bodies do not have."""


def copied(root: Path, tree: Path) -> Path:
    """A copy of what the tests need, with no data folder beside it."""
    tree.mkdir(parents=True)
    for name in NEEDED:
        if (root / name).is_dir():
            shutil.copytree(root / name, tree / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(root / name, tree / name)
    return tree


def noticed(tree: Path, tests: Sequence[str], changes: Sequence[Change], workers: int) -> Iterator[tuple[Change, bool]]:
    """Whether a test failed for each change, as they end.

    Args:
        tree: copy of the repository, unchanged.
        tests: files to run, in this order.
        changes: what is tried.
        workers: processes at a time.

    Raises:
        RuntimeError: if a test fails without any change, so that a failure would tell nothing.
    """
    inward, outward = os.pipe()

    def collect_and_loop() -> int:
        os.close(inward)
        return _pytest(tree, tests, _Loop(tree, tests, changes, workers, lambda line: os.write(outward, line.encode())))

    child = _forked(collect_and_loop)
    os.close(outward)
    with os.fdopen(inward) as report:
        for line in report:
            number, found = json.loads(line)
            yield changes[number], found
    if os.waitpid(child, 0)[1]:
        raise RuntimeError(f"fails without any change: python -m pytest {' '.join(tests)}")


class _Loop:
    """Takes the place of pytest's own loop over the tests."""

    def __init__(
        self,
        tree: Path,
        tests: Sequence[str],
        changes: Sequence[Change],
        workers: int,
        report: Callable[[str], object],
    ) -> None:
        self.tree, self.tests, self.changes, self.workers, self.report = tree, tests, changes, workers, report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        unchanged = _forked(lambda: _run(session))
        if session.testsfailed or os.waitpid(unchanged, 0)[1]:
            os._exit(1)
        flying = dict[int, int]()
        for number, change in enumerate(self.changes):
            if len(flying) == self.workers:
                self._wait(flying)
            flying[_forked(partial(self._try, session, change))] = number
        while flying:
            self._wait(flying)
        os._exit(0)

    def _wait(self, flying: dict[int, int]) -> None:
        child, status = os.wait()
        self.report(json.dumps([flying.pop(child), status != 0]) + "\n")

    def _try(self, session: pytest.Session, change: Change) -> int:
        original = (self.tree / change.module).read_text(encoding="utf-8")
        before, after = (compile(text, change.module, "exec") for text in (original, change.source))
        if _outside(before) == _outside(after) and _exchange(self.tree / change.module, after):
            return _run(session)
        tree = copied(self.tree, self.tree.with_name(f"{self.tree.name}-{os.getpid()}"))
        (tree / change.module).write_text(change.source, encoding="utf-8")
        try:
            return _pytest(tree, ["-x", *self.tests])
        finally:
            shutil.rmtree(tree)


def _forked(work: Callable[[], int]) -> int:
    """A process that does the work, silently, and ends with its result."""
    child = os.fork()
    if child:
        return child
    code = 2
    try:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        code = work()
    finally:
        os._exit(code)


def _run(session: pytest.Session) -> int:
    """The collected tests, until one fails."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    for place, item in enumerate(session.items):
        following = session.items[place + 1] if place + 1 < len(session.items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return 1
    return 0


def _pytest(tree: Path, arguments: Sequence[str], *plugins: object) -> int:
    """pytest in this process, of which no module of the repository is left."""
    here = str(Path(__file__).resolve().parents[2])
    os.chdir(tree)
    sys.path[:] = [str(tree), *(entry for entry in sys.path if os.path.realpath(entry or ".") not in (here, str(tree)))]
    sys.dont_write_bytecode = True
    for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "a2tgpo")]:
        del sys.modules[name]
    return int(pytest.main([*OPTIONS, *arguments], plugins=list(plugins)))


def _outside(code: CodeType) -> list[object]:
    """What a module does outside of functions, class bodies included."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    plain = [repr(constant) for constant in code.co_consts if not isinstance(constant, CodeType)]
    bodies = [_outside(body) for body in inner if not body.co_flags & _OPTIMIZED]
    return [code.co_code, code.co_names, plain, bodies]


def _functions(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & _OPTIMIZED:
                yield constant
            yield from _functions(constant)


def _exchange(path: Path, module: CodeType) -> bool:
    """Give the functions of a module, wherever they are held, the code of another version of it. False where one of
    them cannot take it, since it holds on to other variables.
    """
    codes, file = {code.co_qualname: code for code in _functions(module)}, os.path.realpath(path)
    for value in gc.get_objects():
        if isinstance(value, FunctionType) and value.__code__.co_qualname in codes:
            if os.path.realpath(value.__code__.co_filename) != file:
                continue
            code = codes[value.__code__.co_qualname]
            if code.co_freevars != value.__code__.co_freevars:
                return False
            value.__code__ = code
    return True
