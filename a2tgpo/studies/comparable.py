"""Only runs whose manifests agree in everything but algorithm and seed are summed up together."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from a2tgpo.errors import ConfigError
from a2tgpo.run_folder.manifest import differences
from a2tgpo.studies.study import Job

_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Departure:
    """An entry in which runs' manifests differ from the first run's."""

    field: str
    first: str
    """Name of the first run."""
    expected: Any
    runs: tuple[str, ...]
    """The runs that have `got`."""
    got: Any

    def __str__(self) -> str:
        more = f" and {len(self.runs) - 1} more" if len(self.runs) > 1 else ""
        return f"{self.field}: {_short(self.expected)} in {self.first}, {_short(self.got)} in {self.runs[0]}{more}"


def departures(jobs: Sequence[Job]) -> list[Departure]:
    """All entries in which the runs differ beyond what a study varies, compared with the first run.

    Raises:
        ConfigError: if a run has no readable manifest.
    """
    manifests = [(job.name, _manifest(job)) for job in jobs]
    found: dict[tuple[str, str], tuple[Any, Any, list[str]]] = {}
    for name, manifest in manifests[1:]:
        for field, (expected, got) in differences(manifests[0][1], manifest).items():
            found.setdefault((field, json.dumps(got)), (expected, got, []))[2].append(name)
    return [
        Departure(field, manifests[0][0], expected, tuple(names), got)
        for (field, _), (expected, got, names) in found.items()
    ]


def check_comparable(jobs: Sequence[Job], allowed: Sequence[str]) -> list[Departure]:
    """The departures that `allowed` covers, for the report.

    Raises:
        ConfigError: if there are others; lists them.
    """
    found = departures(jobs)
    refused = [departure for departure in found if not _covered(departure.field, allowed)]
    if refused:
        fields = list(dict.fromkeys(departure.field for departure in refused))
        lines = "\n".join(f"  {departure}" for departure in refused[:_SHOWN])
        more = f"\n  … and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
        raise ConfigError(
            "study: got runs that cannot be compared, expected manifests that differ in algorithm and seed"
            f" only:\n{lines}{more}\ntrain them anew (delete their folders and call compare again), or accept it with"
            f" --allow {' '.join(fields)}; the report will say so"
        )
    return found


def _covered(field: str, allowed: Sequence[str]) -> bool:
    return any(field == name or field.startswith(f"{name}.") for name in allowed)


def _manifest(job: Job) -> dict[str, Any]:
    path = job.folder / "manifest.json"
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"run {job.name}: got no readable {path}, expected the manifest that training writes; delete the folder and"
            " train it anew"
        ) from error
    if not isinstance(loaded, dict):
        raise ConfigError(
            f"run {job.name}: got a {type(loaded).__name__} in {path}, expected an object; delete the folder and train"
            " it anew"
        )
    return loaded


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "…"
