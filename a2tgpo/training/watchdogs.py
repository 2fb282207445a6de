"""Watchdogs: what a person would want to be told about a run while it lasts.

They warn, and stop a run in one case only: a policy that has forgotten how actions are written learns nothing any more.
What else must not continue (a non-finite number, an engine with other weights) is an error where it happens.
"""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from a2tgpo.errors import NumericalError

log = logging.getLogger(__name__)

MAX_UNFINISHED = 0.5
"""Share of episodes without an answer above which something is wrong with limits or format."""
MAX_INVALID = 0.5
"""Share of turns whose action could not be read."""
MAX_FAILED = 0.2
"""Share of episodes that something around the agent broke."""
BARREN_STEPS = 5
"""Steps in a row without a group that taught anything."""
MIN_ENTROPY_SHARE = 0.05
"""Entropy, as a share of its highest value so far, below which the policy has stopped exploring."""
MAX_KL = 0.5
"""Estimated divergence of the policy from itself within one step, in nats per token."""
MAX_LIKELIHOOD_FALL = 1.0
"""Nats per token by which the log-probability of well-credited tokens may lie below its highest value so far: an early
sign of collapse.
"""


COLLAPSED, COLLAPSED_STEPS = 0.99, 5
"""Share of invalid turns, and steps in a row with it, after which a policy that once wrote mostly valid ones has
collapsed.
"""


@dataclass
class Watchdog:
    """Looks at every step's metrics. Each warning is given once until its cause is gone."""

    barren: int = 0
    collapsed: int = 0
    knew_the_format: bool = False
    highest_entropy: float = 0.0
    highest_likelihood: float = -math.inf
    active: set[str] = field(default_factory=set)

    def __call__(self, metrics: Mapping[str, float]) -> list[str]:
        """New warnings of this step.

        Raises:
            NumericalError: if the policy has collapsed.
        """
        self.barren = self.barren + 1 if metrics["informative_groups"] == 0 else 0
        likelihood = metrics["credited_logprob"]  # NaN in a step without credit, which changes nothing
        self.highest_entropy = max(self.highest_entropy, metrics["entropy"])
        self.highest_likelihood = (
            max(self.highest_likelihood, likelihood) if not math.isnan(likelihood) else self.highest_likelihood
        )
        found = self._found(metrics, likelihood)
        new = [text for name, text in found.items() if name not in self.active]
        self.active = set(found)
        self._check_collapse(metrics["invalid_turns"])
        for text in new:
            log.warning(text)
        return new

    def _check_collapse(self, invalid: float) -> None:
        self.knew_the_format |= invalid < MAX_INVALID
        self.collapsed = self.collapsed + 1 if invalid >= COLLAPSED else 0
        if self.knew_the_format and self.collapsed >= COLLAPSED_STEPS:
            raise NumericalError(
                f"watchdog: for {self.collapsed} steps {invalid:.0%} of the turns held no valid action, after most had"
                " held one: the policy has collapsed; lower update.learning_rate and begin anew, or take the best"
                " checkpoint with a2tgpo export"
            )

    def _found(self, metrics: Mapping[str, float], likelihood: float) -> dict[str, str]:
        unfinished = 1 - metrics["answered"]
        share = metrics["entropy"] / self.highest_entropy if self.highest_entropy else 1.0
        checks = {
            "unfinished": (
                unfinished > MAX_UNFINISHED,
                f"{unfinished:.0%} of the episodes end without an answer; raise the limits or look at the format",
            ),
            "invalid": (
                metrics["invalid_turns"] > MAX_INVALID,
                f"{metrics['invalid_turns']:.0%} of the turns hold no valid action; look at the episodes",
            ),
            "format": (
                metrics["valid_format"] == 0,
                "100% of the episodes are invalid in their format; if the outcome asks for it, nothing is learned: look"
                " at the prompt and the protocol's rules",
            ),
            "failed": (
                metrics["failed"] > MAX_FAILED,
                f"{metrics['failed']:.0%} of the episodes failed; look at the retriever",
            ),
            "barren": (
                self.barren >= BARREN_STEPS,
                f"no group has taught anything for {self.barren} steps; questions are all too hard or all too easy",
            ),
            "entropy": (
                share < MIN_ENTROPY_SHARE,
                (
                    f"entropy is down to {share:.0%} of its highest value; the policy has stopped exploring, lower the"
                    " rate"
                ),
            ),
            "kl": (
                metrics["kl_to_old"] > MAX_KL,
                f"the policy moved {metrics['kl_to_old']:.2f} nats a token within one step; lower the learning rate",
            ),
            "likelihood": (
                self.highest_likelihood - likelihood > MAX_LIKELIHOOD_FALL,
                (
                    f"well-credited tokens became {self.highest_likelihood - likelihood:.1f} nats less likely; often"
                    " the first sign of collapse, lower the rate"
                ),
            ),
        }
        return {name: f"watchdog: {text}" for name, (wrong, text) in checks.items() if wrong}
