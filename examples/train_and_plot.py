"""Train and plot with the public API only: two algorithms from one warm start, learning curves side by side.

`python examples/train_and_plot.py` takes minutes on two cores; in a notebook run it cell by cell, with other settings
of the recipe.
"""

# %% what is trained
from dataclasses import replace
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from rich.console import Console

from a2tgpo.config import Recipe, load_recipe
from a2tgpo.run_folder.log import read_metrics
from a2tgpo.start.prepare import prepare_model
from a2tgpo.training.loop import train

ALGORITHMS = ("a2tgpo", "grpo")


# %% train: every algorithm starts from the same weights and sees the same questions
def run(recipe: Recipe, runs: Path) -> dict[str, Path]:
    """Train each algorithm; the folders of the runs."""
    model, folders = prepare_model(recipe, runs, Console()), {}
    for algorithm in ALGORITHMS:
        folders[algorithm] = runs / f"{algorithm}-s{recipe.seed}"

        def show(kind: str, step: int, metrics: dict[str, float], name: str = algorithm) -> None:
            if kind == "evaluation":
                print(f"{name:<8} step {step:>3}: EM {metrics['em']:.3f}, {metrics['searches']:.2f} searches")

        train(replace(recipe, algorithm=algorithm), folders[algorithm], model, show)
    return folders


# %% plot: a run's metrics, one dictionary per step or evaluation
def plot(folders: dict[str, Path], path: Path) -> None:
    """Held-out exact match over training steps."""
    figure, axis = plt.subplots(constrained_layout=True)
    for algorithm, folder in folders.items():
        points = [(row["step"], row["em"]) for row in read_metrics(folder, "evaluation")]
        axis.plot(*zip(*points, strict=True), marker="o", label=algorithm)
    axis.set(xlabel="training step", ylabel="exact match (held out, greedy)", ylim=(0, 1))
    axis.legend()
    figure.savefig(path)


def main(recipe: Recipe, runs: Path) -> Path:
    """Train and plot; the picture's path."""
    plot(run(recipe, runs), runs / "curves.png")
    return runs / "curves.png"


if __name__ == "__main__":
    main(load_recipe("quickstart"), Path("runs/example"))
