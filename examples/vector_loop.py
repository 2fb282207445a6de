"""Many episodes at once: Gymnasium's asynchronous vector environment, one process per environment.

`python examples/vector_loop.py` plays 24 episodes on 4 processes with one idea: search with the question, answer with
the last word of the best passage. Unless a retriever waits for a network, `gymnasium.make_vec(ID, num_envs=4)` is
faster: it answers all searches of a step in one call.
"""

import gymnasium
import numpy as np

ID = "a2tgpo.envs:a2tgpo/Almanac-v0"


def act(text: str) -> str:
    """The turn's text for one environment."""
    if "Question: " in text:
        question = text.split("Question: ")[1].strip()
        return f"<think> I search. </think><search> {question} </search>"
    best = text.split("\n")[3] if text.count("\n") > 3 else "unknown"
    return f"<think> I have read. </think><answer> {best.split()[-1].strip('.')} </answer>"


def main(episodes: int = 24, num_envs: int = 4) -> float:
    """Play until so many episodes are over; the share of right answers."""
    envs = gymnasium.make_vec(ID, num_envs=num_envs, vectorization_mode="async", split="test", max_turns=3)
    texts, _ = envs.reset(seed=0)
    finished: list[float] = []
    over = np.zeros(num_envs, dtype=bool)
    while len(finished) < episodes:
        texts, _, terminated, truncated, infos = envs.step(tuple(act(text) for text in texts))
        # the step after an episode's end starts the next one, whatever the action
        over = (terminated | truncated) & ~over
        finished.extend(infos["em"][over].tolist())
    envs.close()
    print(f"exact match over {len(finished)} episodes on {num_envs} processes: {np.mean(finished):.2f}")
    return float(np.mean(finished))


if __name__ == "__main__":
    main()
