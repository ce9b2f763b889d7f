"""Commands in words, and the actions that they ask for."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.functional import pad

from longreach.config.registry import register
from longreach.errors import BadInput
from longreach.seeding import Draws
from longreach.tasks.base import Level, Part, Sample, Worksheet, build_sample, join

_AND, _AFTER, _END, _EQUALS, _STOP = 1, 2, 3, 4, 5
_WALK, _TURN, _OPPOSITE, _AROUND, _LEFT, _RIGHT, _TWICE, _THRICE = 6, 10, 11, 12, 13, 14, 15, 16
_ACT, _TURN_LEFT = 17, 21
_PHRASES, _MOST_ACTIONS = 102, 24
_PHRASE = re.compile(
    r"(?:(walk|look|run|jump)|(walk|look|run|jump|turn) (?:(opposite|around) )?(left|right))(?: (twice|thrice))?"
)


class _Phrases(NamedTuple):
    """Facts of each phrase of a prompt; 0 where there is none."""

    verb: Int[Tensor, "b w"]
    direction: Int[Tensor, "b w"]
    manner: Int[Tensor, "b w"]
    """1 for opposite, 2 for around."""
    once: Int[Tensor, "b w"]
    """Actions to do it once."""
    whole: Int[Tensor, "b w"]
    """Actions in all."""
    first: Int[Tensor, "b w"]
    """Number of its first action in the answer, from 0."""
    begin: Int[Tensor, "b w"]
    """Place of its first word."""
    end: Int[Tensor, "b w"]
    """Place of the joining word or mark behind it."""
    order: Int[Tensor, "b w"]
    """The phrase that is done when its own turn would be."""


@register("task", "scan")
@dataclass(frozen=True, kw_only=True)
class Scan(Worksheet):
    """Do what is said.  walk left twice and jump after run ; =  ->  LTURN WALK LTURN WALK RUN JUMP .

    `length` counts the phrases.  The 102 phrases and what they mean are those of SCAN: walk, look, run and jump
    alone or with a direction, turn with a direction; a direction may have `opposite` (turn twice) or `around` (do it
    four times) before it; and all that may be done twice or thrice.  SCAN joins at most two phrases, by `and` or by
    `after`; here `and` joins any number of parts, each of them one phrase or two with `after` between them, which are
    done in the opposite order.  SCAN goes through all its commands and splits them into training and test; here phrases
    are drawn with equal probability, and so are `and` and `after` where both may stand.  The mark `;` is ours.

    An action needs the words of its phrase, four at most, and the two joining words beside it: 6-sparse.  *Which*
    phrase it belongs to depends on all before it, by the number of their actions; they are not counted, since the
    phrase's ID tells it.

    Coupling, ours, on two levels: the phrase, the same for its words and its actions, and the number of the action in
    the phrase.  Joining words are reserved.  The rule that gives the IDs has to count the actions of each phrase.
    """

    paper = "Lake and Baroni, ICML 2018"

    vocabulary = (
        *("_", "and", "after", ";", "=", "."),
        *("walk", "look", "run", "jump", "turn", "opposite", "around", "left", "right", "twice", "thrice"),
        *("WALK", "LOOK", "RUN", "JUMP", "LTURN", "RTURN"),
    )
    stop_token = _STOP
    coupling_levels = (Level("phrase"), Level("action", size=_MOST_ACTIONS))

    @property
    def ending(self) -> tuple[str, ...]:
        return (";", "=")

    def max_tokens(self, length: int) -> int:
        return 5 * length + 1 + self.max_answer(length)

    def max_answer(self, length: int) -> int:
        return _MOST_ACTIONS * length + 1

    def sample(self, length: Int[Tensor, "b"], draws: Draws, max_length: int) -> Sample:
        index = torch.arange(max_length, device=length.device)
        last = index == length[:, None] - 1
        # of wishes for `after` in a row every other one is granted
        wish = draws.below("after", 2, max_length)
        before = index.masked_fill(wish > 0, -1).cummax(1).values
        joins = torch.where((wish > 0) & ((index - before) % 2 == 1), _AFTER, _AND).masked_fill(last, _END)

        phrase = draws.below("phrases", _PHRASES, max_length)
        times, kind = phrase % 3, phrase // 3  # the first four kinds are verbs alone
        turned = (kind - 4).clamp(min=0)
        alone, manner = kind < 4, turned // 10
        verb = torch.where(alone, kind, turned % 5)
        direction = (_LEFT + turned // 5 % 2).masked_fill(alone, 0)
        words = [_WALK + verb, (_OPPOSITE - 1 + manner).masked_fill(alone | (manner == 0), 0), direction]
        words += [(_TWICE - 1 + times).masked_fill(times == 0, 0), joins]
        slots = torch.stack(words, dim=2).masked_fill((index >= length[:, None])[:, :, None], 0).flatten(1)
        prompt = slots.gather(1, (slots == 0).to(torch.uint8).argsort(dim=1, stable=True))  # words stand close together
        size = (slots > 0).sum(1)

        facts = _Phrases(*(fact[:, :max_length, None] for fact in self._phrases(prompt)))
        action = torch.arange(_MOST_ACTIONS, device=length.device)
        place = action % facts.once.clamp(min=1)
        turns = torch.where(facts.manner == 2, place % 2 == 0, place < facts.manner + (facts.direction > 0))
        turns |= facts.verb == _TURN
        acts = torch.where(turns, _TURN_LEFT - _LEFT + facts.direction, _ACT - _WALK + facts.verb)
        width = _MOST_ACTIONS * max_length
        at = torch.where(action < facts.whole, facts.first + action, width)
        answer = torch.zeros(len(length), width + 1, dtype=torch.long, device=length.device)
        answer.scatter_(1, at.flatten(1), acts.flatten(1))
        actions = facts.whole.sum(1)[:, 0]
        parts: list[Part] = [(prompt, size), (_EQUALS, 1), (answer, actions), (_STOP, 1)]
        return build_sample(join(parts, self.max_tokens(max_length)), length, size + 1, size + actions + 2)

    @staticmethod
    def _phrases(prompt: Int[Tensor, "b w"]) -> _Phrases:
        joins = (prompt >= _AND) & (prompt <= _END)
        number = joins.cumsum(1) - joins.long()
        index = torch.arange(prompt.shape[1], device=prompt.device).expand_as(prompt)

        def word(first: int, last: int) -> Int[Tensor, "b w"]:
            """The one of these words that each phrase has, or 0."""
            inside = (prompt >= first) & (prompt <= last)
            return torch.zeros_like(prompt).scatter_add_(1, number, prompt * inside)

        verb, direction, times = word(_WALK, _TURN), word(_LEFT, _RIGHT), word(_TWICE, _THRICE)
        manner = (word(_OPPOSITE, _AROUND) - _OPPOSITE + 1).clamp(min=0)
        acts = ((verb > 0) & (verb < _TURN)).long()
        once = torch.where(manner == 2, 4 * (1 + acts), manner + (direction > 0) + acts)
        whole = once * (times - _TWICE + 2).clamp(min=1)
        end = torch.zeros_like(prompt).scatter_add_(1, number, index * joins)
        begin = pad(end + 1, (1, -1))

        # two phrases with `after` between them change places
        swapped = (word(_AFTER, _AFTER) > 0).long()
        order = index + swapped - pad(swapped, (1, -1))
        sizes = whole.gather(1, order)
        first = (sizes.cumsum(1) - sizes).gather(1, order)
        return _Phrases(verb, direction, manner, once, whole, first, begin, end, order)

    def work_out(self, prompt: Sequence[str]) -> list[str]:
        text, _, rest = " ".join(prompt).partition(" ; ")  # nobody looks further
        actions: list[str] = []
        for part in text.split(" and "):
            phrases = part.split(" after ")
            if not rest.endswith("=") or len(phrases) > 2:
                raise self._no_prompt()
            for phrase in reversed(phrases):
                actions += self._actions(phrase)
        return actions

    def parse(self, text: str) -> list[int]:
        tokens = super().parse(text)
        if tokens.index(_END) != len(tokens) - 2:
            raise self._no_prompt()
        return tokens

    def _actions(self, phrase: str) -> list[str]:
        found = _PHRASE.fullmatch(phrase)
        if not found:
            raise self._no_prompt()
        alone, verb, manner, direction, times = found.groups()
        if alone:
            once = [alone.upper()]
        else:
            turn = ["LTURN" if direction == "left" else "RTURN"]
            act = [] if verb == "turn" else [verb.upper()]
            once = {None: turn + act, "opposite": turn * 2 + act, "around": (turn + act) * 4}[manner]
        return once * {None: 1, "twice": 2, "thrice": 3}[times]

    @staticmethod
    def _no_prompt() -> BadInput:
        return BadInput("scan: a prompt is phrases that are joined, as in walk left twice and jump after run ; =")

    def sparsity(self, length: int) -> int:
        return 4 + min(length, 2)

    def reads(self, sample: Sample) -> Int[Tensor, "b t k"]:
        phrase, facts = self._done(sample)
        begin, end = facts.begin.gather(1, phrase), facts.end.gather(1, phrase)
        words = [torch.where(begin + place < end, begin + place, -1) for place in range(4)]
        reads = torch.stack([*words, begin - 1, end], dim=2)
        stops = self.step(sample) == (sample.num_tokens - sample.prompt_tokens)[:, None] - 1
        mark = (sample.prompt_tokens - 2)[:, None, None]
        only_mark = torch.where(torch.arange(6, device=reads.device) == 5, mark, -1)
        return torch.where(stops[:, :, None], only_mark, reads).masked_fill(~sample.answer[:, :, None], -1)

    def places(self, sample: Sample) -> Int[Tensor, "b g t"]:
        phrase, facts = self._done(sample)
        step, tokens = self.step(sample), sample.tokens
        joins = (tokens == _AND) | (tokens == _AFTER)
        of_word = (joins.cumsum(1) + 1 + (tokens == _END).long()).masked_fill(joins | (step == -1), 0)
        stops = step >= facts.whole.sum(1, keepdim=True)
        action = step - facts.first.gather(1, phrase) + 1
        of_action = torch.where(stops, sample.length[:, None] + 1, phrase + 1)
        number = torch.where(step < 0, of_word, of_action)
        return torch.stack([number, action.masked_fill((step < 0) | stops, 0)], dim=1)

    def _done(self, sample: Sample) -> tuple[Int[Tensor, "b t"], _Phrases]:
        """The phrase that every answer token does, and the facts of all phrases, from the prompt alone."""
        step = self.step(sample)
        facts = self._phrases(sample.tokens.masked_fill(step >= 0, 0))
        turn = torch.searchsorted(facts.whole.gather(1, facts.order).cumsum(1), step.clamp(min=0), right=True)
        return facts.order.gather(1, turn.minimum(sample.length[:, None] - 1)), facts

    def prompt_length(self, tokens: Sequence[int]) -> int:
        return 1 + sum(token in (_AND, _AFTER) for token in tokens)
