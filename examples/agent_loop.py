"""An agent of your own in plain Gymnasium: it reads text, writes text, and needs nothing else of this package.

`python examples/agent_loop.py` plays 20 questions of the embedded world with an agent of two rules: search for the
subject with the next relation, answer with what the last passage says.
"""

import re

import gymnasium


def act(question: str, shown: str, turn: int) -> str:
    """The text of the next turn, in the protocol that the prompt describes."""
    subject, *relations = re.findall(r"is (.+?)\?", question)[0].split("'s ")
    found = re.findall(r"is ([^.]+)\.", shown)
    entity = subject if turn == 0 else found[0] if found else "unknown"
    if turn == len(relations):
        return f"<think> Every relation is followed. </think><answer> {entity} </answer>"
    return f"<think> Next: {relations[turn]}. </think><search> {entity} {relations[turn]} </search>"


def main(episodes: int = 20) -> float:
    """Play, print every turn, and return the share of right answers."""
    env = gymnasium.make("a2tgpo.envs:a2tgpo/Almanac-v0", split="test", max_turns=6)
    right = 0.0
    for episode in range(episodes):
        text, info = env.reset(seed=episode)
        question, terminated, truncated = text.split("Question: ")[1], False, False
        while not (terminated or truncated):
            text, _, terminated, truncated, info = env.step(act(question, text, info["turn"]))
            print(f"{info['question_id']:<60} {info['action']:<8}{info['query'] or info['answer']}")
        right += info["em"]
    print(f"exact match over {episodes} questions: {right / episodes:.2f}")
    return right / episodes


if __name__ == "__main__":
    main()
