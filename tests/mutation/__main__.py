"""Does the suite notice small changes of the core? Each is made in a copy of the repository, and the tests of its
module are run on it until one fails; what no test noticed is printed.

    python -m tests.mutation                       # a sample, drawn with a seed
    python -m tests.mutation --all a2tgpo/batch.py # every change of some modules

Known tools start a new interpreter per change, of which importing torch alone takes seconds. Here a process that has
collected the tests is forked per change, so that most changes cost as much as the first test that fails.
"""

import argparse
import random
import sys
import tempfile
import tomllib
from collections import Counter
from pathlib import Path

from tests.mutation.changes import Change, changes_of
from tests.mutation.workers import copied, noticed

ROOT = Path(__file__).resolve().parents[2]
LEAST = 0.95
"""Share of the changes of behaviour that must be noticed."""
_ORDER = ("golden", "algorithms", "credit", "bad_input", "losses", "docs", "explain", "propositions", "properties")
_CREDIT = ["tests/test_batch.py", *(f"tests/algorithms/test_{name}.py" for name in _ORDER)]
_LOSS = ["tests/algorithms/test_losses.py", "tests/training/test_update_gradient.py", *_CREDIT]
_EXPLAIN = ["tests/algorithms/test_explain.py"]
_GAIN = [f"tests/information_gain/test_{name}.py" for name in ("cuts", "score", "metrics", "bad_input", "live")]
_UPDATE = [f"tests/training/test_{name}.py" for name in ("update_gradient", "update", "faults", "reference")]
_ROLLOUT = [f"tests/training/test_{name}.py" for name in ("rollout_script", "failed_searches", "rollout", "faults")]
_SCORE = [f"tests/training/test_{name}.py" for name in ("failed_searches", "reference", "loop")]
FOLDERS = {
    "algorithms": _CREDIT,
    "a2tgpo/information_gain": _GAIN,
}
"""Folders of which every module is changed, and the tests to run."""
MODULES = {
    "algorithms/aggregation.py": _LOSS,
    "algorithms/explain.py": _EXPLAIN,
    "algorithms/losses.py": _LOSS,
    "algorithms/ratios.py": _LOSS,
    "algorithms/loader.py": ["tests/algorithms/test_examples.py"],
    "a2tgpo/batch.py": ["tests/test_batch.py", "tests/training/test_rollout_script.py", *_CREDIT],
    "a2tgpo/training/update.py": _UPDATE,
    "a2tgpo/training/rollout.py": _ROLLOUT,
    "a2tgpo/training/score.py": _SCORE,
}
"""Other modules, or other tests."""


def tests_of() -> dict[str, list[str]]:
    """Every module that is changed, with the tests that must notice."""
    inside = {
        path.relative_to(ROOT).as_posix(): tests
        for folder, tests in FOLDERS.items()
        for path in sorted((ROOT / folder).glob("*.py"))
    }
    return inside | MODULES


def explained() -> dict[tuple[str, str, str, str], str]:
    """Changes that change no behaviour, and why."""
    rows = tomllib.loads((Path(__file__).parent / "equivalent.toml").read_text(encoding="utf-8")).get("change", [])
    return {(row["module"], row["function"], row["before"], row["after"]): row["why"] for row in rows}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("modules", nargs="*", help="paths of modules; all of the core if left out")
    parser.add_argument("--all", action="store_true", help="every change, not a sample")
    parser.add_argument("--count", type=int, default=300, help="changes in a sample")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    tests = {name: rows for name, rows in tests_of().items() if not options.modules or name in options.modules}
    every = [change for name in tests for change in changes_of(name, (ROOT / name).read_text(encoding="utf-8"))]
    known = explained()
    chosen = [change for change in every if change.key not in known]
    stale = known.keys() - {change.key for change in every} if not options.modules else set()
    if not options.all and len(chosen) > options.count:
        chosen = random.Random(options.seed).sample(chosen, options.count)
    print(f"{len(chosen)} of {len(every)} changes; {len(every)} less {len(known)} that are known to change nothing")
    survivors, seen = list[Change](), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        tree = copied(ROOT, Path(folder).resolve() / "tree")
        for names in sorted({tuple(names) for names in tests.values()}):
            group = [change for change in chosen if tuple(tests[change.module]) == names]
            for change, failed in noticed(tree, names, group, options.workers) if group else ():
                seen[change.module] += 1
                if not failed:
                    survivors.append(change)
                    print(f"not noticed: {change}", flush=True)
                if seen.total() % 25 == 0:
                    print(f"[{seen.total()} of {len(chosen)}]", flush=True)
    share = 1 - len(survivors) / max(len(chosen), 1)
    print(f"\nnoticed: {share:.1%} of {len(chosen)} (at least {LEAST:.0%} wanted)")
    for name, count in sorted(seen.items()):
        print(f"  {name}: {count - sum(change.module == name for change in survivors)} of {count}")
    for key in sorted(stale):
        print(f"equivalent.toml names a change that is none any more: {' · '.join(key)}")
    return 0 if share >= LEAST and not stale else 1


if __name__ == "__main__":
    sys.exit(main())
