"""Retrieval by likelihood: sentences that are hidden in a text, and a question at its end.

A *needle* is the sentence `The code of NAME is VALUE.` on a line of its own.  The text ends with a line
`The code of NAME is`, and each of the 16 values is scored as its continuation.  The answer is right if the true value
has the highest log-likelihood; guessing is right in one of 16 cases.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from longreach.errors import BadInput
from longreach.evaluation import choose_targets, wilson
from longreach.evaluation.context import BLOCK
from longreach.extension.likelihood import Scorer
from longreach.extension.texts import ReachTexts
from longreach.probe import HuggingFace
from longreach.seeding import generator

NAMES = (
    *("Anna", "Boris", "Clara", "David", "Emma", "Frank", "Grace", "Henry"),
    *("Irene", "Jacob", "Karen", "Louis", "Maria", "Nora", "Oscar", "Peter"),
)
VALUES = (
    *("army", "bird", "corn", "door", "fish", "gold", "hand", "iron"),
    *("king", "lake", "moon", "nest", "rain", "salt", "tree", "wind"),
)
"""Common words of four lower-case letters, each with another first letter."""
RETRIEVED = 0.8
"""Share of right answers from which a context counts as retrieved."""
_SNAP = 32
"""Tokens by which a needle may move towards the beginning of the text, to stand in front of a word."""


@dataclass(frozen=True)
class RetrievalScore:
    """Right answers at one size of context, with so many needles, the asked one at one depth."""

    context: int
    needles: int
    """0 is the baseline: the same text and question without needles."""
    depth: float | None
    """Share of the text in front of the asked needle; None in the baseline."""
    right: int
    questions: int

    def interval(self) -> tuple[float, float]:
        """Return Wilson's interval of the share of right answers (95%)."""
        return wilson(self.right, self.questions)


@dataclass(frozen=True)
class _Question:
    """A text of exactly the size of the context, and what is asked at its end."""

    prefix: list[int]
    values: list[list[int]]
    """Tokens of each value as the continuation of the text."""
    true: int


class NeedleTexts:
    """Builds questions from texts of a model."""

    def __init__(self, model: HuggingFace, texts: ReachTexts, longest: int, seed: int) -> None:
        """`longest` is the largest context."""
        self.opening, self.texts, self.longest, self.seed = model.opening, texts, longest, seed
        self.split = texts.cut(longest)
        self.name = model.name
        self._asked = {name: self._ask(name) for name in NAMES}
        self.largest_needle = max(len(self._needle(name, VALUES[0])) for name in NAMES)

    def _needle(self, name: str, value: str) -> list[int]:
        return self.texts.encode(f"\nThe code of {name} is {value}.\n")

    def _ask(self, name: str) -> tuple[list[int], list[list[int]]]:
        """Return the tokens of the question, and those that each value adds to them."""
        whole = [self.texts.encode(f"\nThe code of {name} is {value}") for value in VALUES]
        shared = 0
        while all(len(row) > shared and row[shared] == whole[0][shared] for row in whole):
            shared += 1
        values = [row[shared:] for row in whole]
        if not all(values) or len({tuple(value) for value in values}) < len(VALUES):
            raise BadInput(
                f"the tokenizer of {self.name} cannot tell the words {', '.join(VALUES)} apart, which retrieval needs:"
                " leave retrieval out"
            )
        return whole[0][:shared], values

    @property
    def most_long_values(self) -> int:
        """Return how many of the values have several tokens, in the question with the most of them."""
        return max(sum(len(value) > 1 for value in values) for _, values in self._asked.values())

    def smallest_context(self, needles: int) -> int:
        """Return the smallest context of which needles and question take at most half."""
        question = max(len(prompt) for prompt, _ in self._asked.values())
        return 2 * (len(self.opening) + question + needles * self.largest_needle)

    def cells(self, contexts: Iterable[int], needles: Sequence[int]) -> list[tuple[int, int]]:
        """Return context and number of needles of all that is asked; 0 needles are the baseline.

        A context has no room for needles if they and the question take more than half of it.
        """
        pairs = [(context, number) for context in contexts for number in (0, *needles)]
        return [(size, number) for size, number in pairs if size >= self.smallest_context(number or min(needles))]

    def questions(self, context: int, needles: int, depths: Sequence[float], count: int) -> Iterator[_Question]:
        """Yield `count` questions for each depth of the asked needle.

        Names, values and places in the texts are the same for every context and number of needles.
        """
        targets = choose_targets(self.split, BLOCK * count * len(depths), self.longest, self.seed)
        for number, start in enumerate(targets.start.tolist()):
            draws = generator(self.seed, f"needles/{number}")
            names = torch.randperm(len(NAMES), generator=draws).tolist()
            others = torch.randint(len(VALUES), (len(NAMES),), generator=draws).tolist()
            places = torch.rand(len(NAMES), generator=draws).tolist()
            order = torch.randperm(len(VALUES), generator=generator(self.seed, f"values/{number // len(VALUES)}"))
            true = int(order[number % len(VALUES)])
            prompt, values = self._asked[NAMES[names[0]]]
            hidden = [(depths[number // count], self._needle(NAMES[names[0]], VALUES[true]))] if needles else []
            hidden += [(places[one], self._needle(NAMES[names[one]], VALUES[others[one]])) for one in range(1, needles)]
            room = context - len(self.opening) - len(prompt) - sum(len(tokens) for _, tokens in hidden)
            text = self.split.tokens[start - room : start].tolist()
            yield _Question(self.opening + self._hide(text, hidden) + prompt, values, true)

    def _hide(self, text: list[int], hidden: Sequence[tuple[float, list[int]]]) -> list[int]:
        """Return the text with each needle at its depth, in front of a word where one begins nearby."""
        at = sorted((self._place(text, depth), tokens) for depth, tokens in hidden)
        found, before = [], 0
        for place, tokens in at:
            found += text[before:place] + tokens
            before = place
        return found + text[before:]

    def _place(self, text: list[int], depth: float) -> int:
        place = round(depth * len(text))
        if place == len(text):
            return place
        nearby = range(place, max(0, place - _SNAP), -1)
        return next((one for one in nearby if self.texts.piece(text[one])[:1].isspace()), place)


def measure_retrieval(
    score: Scorer,
    needle_texts: NeedleTexts,
    cells: Sequence[tuple[int, int]],
    depths: Sequence[float],
    count: int,
    rows: Callable[[int], int],
    device: torch.device,
    progress: Callable[[int, str], None] = lambda done, note: None,
) -> list[RetrievalScore]:
    """Return the right answers by context, number of needles and depth; `cells` are those of `NeedleTexts`.

    `rows` returns how many texts of a size are computed at once.
    """
    found, done = [], 0
    for context, number in cells:
        asked = list(needle_texts.questions(context, number, depths, count))
        right: list[bool] = []
        for start in range(0, len(asked), rows(context)):
            some = asked[start : start + rows(context)]
            prefix = torch.tensor([one.prefix for one in some], device=device)
            best = score(prefix, [one.values for one in some]).argmax(1).tolist()
            right += [guess == one.true for guess, one in zip(best, some, strict=True)]
            done += len(some)
            progress(done, f"{number or 'no'} needle{'s' * (number != 1)}, context {context}")
        if number == 0:
            found.append(RetrievalScore(context, 0, None, sum(right), len(right)))
            continue
        for place, depth in enumerate(depths):
            part = right[place * count : (place + 1) * count]
            found.append(RetrievalScore(context, number, depth, sum(part), len(part)))
    return found
