"""Runs the tests on one change after another.

The tests of a module are collected once. Each change then gets a process forked from there, in which the functions that
it touches are given their new code, and the tests run until one fails. A change outside of functions (a default, a
constant) is read by whoever imports the module, so for those a fork imports everything anew, from a tree of its own.
"""

import gc
import importlib
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
BROKEN = 70
"""Exit code of a process that ended without a verdict."""
OPTIONS = (
    "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0", "--timeout=0",
    "-W", "ignore::pytest.PytestAssertRewriteWarning",
)  # fmt: skip
"""Of pytest; equal changes meet equal tests."""
LIBRARIES = ("torch", "transformers", "gymnasium", "bm25s", "scipy.stats", "safetensors.torch")
"""What takes long to import, and is not changed."""
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
        RuntimeError: if a test fails without any change, so that a failure would tell nothing, or a process ended
            without a verdict.
    """
    within = [change for change in changes if _is_within(tree, change)]
    yield from _in_collected(tree, tests, within, workers)
    for name in LIBRARIES:
        importlib.import_module(name)
    apart = [change for change in changes if change not in within]
    yield from _each(apart, workers, partial(_run_apart, tree, tests))


def _each(changes: Sequence[Change], workers: int, run: Callable[[Change], int]) -> Iterator[tuple[Change, bool]]:
    """Each change in a process of its own, as they end."""
    flying, waiting = dict[int, Change](), list(reversed(changes))
    while waiting or flying:
        while waiting and len(flying) < workers:
            change = waiting.pop()
            flying[_forked(partial(run, change))] = change
        child, status = os.wait()
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == BROKEN:
            raise RuntimeError(f"ended without a verdict: {flying[child]}")
        yield flying.pop(child), status != 0


def _run_apart(tree: Path, tests: Sequence[str], change: Change) -> int:
    """The tests in a tree of the change's own, where everything is imported anew."""
    own = copied(tree, tree.with_name(f"{tree.name}-{os.getpid()}"))
    (own / change.module).write_text(change.source, encoding="utf-8")
    try:
        return _pytest(own, ["-x", *tests])
    finally:
        shutil.rmtree(own)


def _in_collected(
    tree: Path, tests: Sequence[str], changes: Sequence[Change], workers: int
) -> Iterator[tuple[Change, bool]]:
    inward, outward = os.pipe()

    def collect_and_loop() -> int:
        os.close(inward)
        return _pytest(tree, tests, _Loop(tree, changes, workers, lambda line: os.write(outward, line.encode())))

    child = _forked(collect_and_loop)
    os.close(outward)
    with os.fdopen(inward) as report:
        for line in report:
            number, found = json.loads(line)
            yield changes[number], found
    if os.waitpid(child, 0)[1]:
        raise RuntimeError(f"fails without any change, or ends without a verdict: python -m pytest {' '.join(tests)}")


class _Loop:
    """Takes the place of pytest's own loop over the tests."""

    def __init__(self, tree: Path, changes: Sequence[Change], workers: int, report: Callable[[str], object]) -> None:
        self.tree, self.changes, self.workers, self.report = tree, changes, workers, report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        unchanged = _forked(partial(_run, session))
        if session.testsfailed or os.waitpid(unchanged, 0)[1]:
            os._exit(1)
        for change, found in _each(self.changes, self.workers, partial(self._try, session)):
            self.report(json.dumps([self.changes.index(change), found]) + "\n")
        os._exit(0)

    def _try(self, session: pytest.Session, change: Change) -> int:
        _exchange(self.tree / change.module, compile(change.source, change.module, "exec"))
        return _run(session)


def _forked(work: Callable[[], int]) -> int:
    """A process that does the work, silently, and ends with its result."""
    child = os.fork()
    if child:
        return child
    code = BROKEN
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


def _is_within(tree: Path, change: Change) -> bool:
    """Does the change touch the code of functions only, and not the variables that they hold on to?"""
    source = (tree / change.module).read_text(encoding="utf-8")
    before, after = (compile(text, change.module, "exec") for text in (source, change.source))
    held, holding = ({code.co_qualname: code.co_freevars for code in _functions(side)} for side in (before, after))
    return held == holding and _outside(before) == _outside(after)


def _exchange(path: Path, module: CodeType) -> None:
    """Give the functions of a module, wherever they are held, the code of another version of it."""
    codes, file = {code.co_qualname: code for code in _functions(module)}, os.path.realpath(path)
    for value in gc.get_objects():
        if type(value) is not FunctionType or value.__code__.co_qualname not in codes:
            continue
        if os.path.realpath(value.__code__.co_filename) == file:
            value.__code__ = codes[value.__code__.co_qualname]
