"""What is particular to machines, mazes, assignments and commands."""

from collections import Counter
from itertools import pairwise

import pytest
import torch
from helpers import answer_of, draw

from longreach.api import Span, Task
from longreach.config import build_part
from longreach.errors import BadInput
from longreach.tasks import AssignmentTree, Maze, Scan, Turing


def solved(task: Task, text: str) -> str:
    """The answer to a prompt typed by a person."""
    return " ".join(task.words(task.solve(task.prompt_batch(task.parse(text), 1), 0)))


def ids_of(task: Task, sample, form: str) -> list[str]:
    return [" ".join(map(str, level)) for level in task.coupling(sample, form)[0].tolist()]


FLIP = "A a > b A  A b > a A  A [ > [ A  A ] < ] A"


def test_a_turing_machine_step_by_step():
    task = Turing(states=1)
    sample = draw(task, [3], seed=1)
    words = "A [ > [ A A ] < ] A A a < b A A b > a A [ b b A b ] # # # ; =  A b > a A ] < ] A a < b A ."
    assert task.words(sample.tokens[0].tolist()) == words.split()
    rules = "1 1 1 1 1 2 2 2 2 2 3 3 3 3 3 4 4 4 4 4"
    fields = "1 2 3 4 5 1 2 3 4 5 1 2 3 4 5 1 2 3 4 5"
    nothing = "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
    assert ids_of(task, sample, "published") == [
        f"{nothing} 1 2 3 4 4 5 0 0 0 0 0 4 4 4 4 4 5 5 5 5 4 4 4 4 0",
        f"{rules} 0 0 0 0 0 0 0 0 0 0 0 0 0 4 4 4 0 2 2 2 0 3 3 3 0",
        f"{fields} 4 4 4 1 4 4 0 0 0 0 0 1 4 3 4 5 4 3 4 5 4 3 4 5 0",
        f"{nothing} 0 0 0 0 0 0 1 2 3 4 0 0 1 1 1 1 2 2 2 2 3 3 3 3 0",
    ]
    assert ids_of(task, sample, "aligned") == [
        f"{nothing} 1 2 3 4 4 5 0 0 0 0 4 4 4 4 4 5 5 5 5 4 4 4 4 3 0",
        f"{rules} 0 0 0 0 0 0 0 0 0 0 0 0 4 4 4 0 2 2 2 0 3 3 3 0 0",
        f"{fields} 5 5 5 1 5 5 0 0 0 0 1 5 3 4 5 5 3 4 5 5 3 4 5 5 0",
        f"{nothing} 0 0 0 0 0 0 1 2 3 4 0 1 1 1 1 2 2 2 2 3 3 3 3 4 0",
    ]


def test_a_typed_turing_machine_writes_on_its_tape():
    task = Turing(states=1)
    # at the end it turns, reads what it wrote a moment ago, and finds the end again
    answer = "A a > b A b > a A ] < ] A a > b A ] < ] A ."
    assert solved(task, f"{FLIP} [ A a b ] # # # # # ;") == answer
    assert task.prompt_batch(task.parse(f"{FLIP} [ A a b ] # # ; ="), 1).length.tolist() == [2]


@pytest.mark.parametrize("task", [Turing(states=3, symbols=4), Turing(steps=Span(1, 40))])
def test_a_turing_machine_copies_what_it_reads(task):
    """A symbol read is the one written last at that place, all else stands in the rule."""
    sample = draw(task, [6, 9, 15] * 20)
    reads, step = task.reads(sample), task.step(sample)
    inside = sample.answer & (torch.arange(step.shape[1]) < sample.num_tokens[:, None] - 1)
    for field, column in ((1, 1), (2, 4), (3, 4)):
        chosen = inside & (step % 4 == field)
        source = sample.tokens.gather(1, reads[:, :, column].clamp(min=0))
        assert torch.equal(source[chosen], sample.tokens[chosen])
    ids = task.coupling(sample, "aligned")
    for row, at in (inside & (step % 4 == 1)).nonzero().tolist():
        # among the tokens before it that have its cell and its field and are no states, the latest is the one read
        same = (ids[row, :, :at] == ids[row, :, at - 1 : at])[[0, 2]].all(0) & (
            sample.tokens[row, :at] < 9 + task.symbols
        )
        assert int(same.nonzero().max()) == int(reads[row, at, 1])
        assert int(ids[row, 3, :at][same].max()) == int(ids[row, 3, reads[row, at, 1]])  # and so the latest by its time


def test_turing_tables_are_complete_and_uniform_without_sweeps():
    task = Turing(states=3, symbols=2, sweep=0.0)
    sample = draw(task, [6] * 2000)
    rules = sample.tokens[:, :60].view(-1, 12, 5)
    pairs = (rules[:, :, 0] * 100 + rules[:, :, 1]).sort(1).values
    assert (pairs == pairs[0]).all()
    assert len(pairs[0].unique()) == 12
    assert (torch.bincount(rules[:, 0, 0])[-3:] / 2000 - 1 / 3).abs().max() < 0.05  # in any order
    inner = rules[rules[:, :, 1] < 9]  # 12,000 rules that read no end
    for field, first, count in ((2, 5, 2), (3, 7, 2), (4, 11, 3)):
        shares = torch.bincount(inner[:, field] - first, minlength=count) / len(inner)
        assert (shares - 1 / count).abs().max() < 0.02
    start = sample.hidden["head"][:, 0]
    assert (torch.bincount(start, minlength=8)[1:7] / 2000 - 1 / 6).abs().max() < 0.04


def test_a_sweeping_head_turns_at_the_ends_only():
    sample = draw(Turing(sweep=1.0, steps=Span(60, 60)), [9] * 200)
    head = sample.hidden["head"]
    move = head.diff(dim=1)
    turns = move[:, 1:] != move[:, :-1]
    assert turns.any()
    assert set(head[:, 1:-1][turns].tolist()) == {0, 10}
    assert {*head.flatten().tolist()} == set(range(11))


def test_a_long_turing_machine_is_as_right_as_a_short_one():
    task = Turing(steps=Span(900, 900))
    sample = draw(task, [300])
    assert task.solve(sample, 0) == answer_of(sample, 0)


@pytest.mark.parametrize(
    "bad",
    [
        "[ A a b ] # ;",  # no rules
        f"{FLIP} [ a b ] # ;",  # no head
        f"{FLIP} [ A a A b ] # ;",
        f"{FLIP} [ a b A ] # ;",
        f"{FLIP} [ A a b # ;",
        f"{FLIP} A a b ] # ;",
        f"{FLIP} [ A a b ] ;",
        f"{FLIP} [ A a b ] # < ;",
        FLIP.replace("A b > a", "A a > a") + " [ A a b ] # ;",  # a rule twice
        FLIP.replace("[ > [", "[ < [") + " [ A a b ] # ;",  # falls off the tape
        FLIP.replace("[ > [", "[ > a") + " [ A a b ] # ;",
        FLIP.replace("a > b", "a > ]") + " [ A a b ] # ;",
    ],
)
def test_what_is_no_turing_machine_is_refused(bad):
    with pytest.raises(BadInput, match="turing: a prompt is 4 rules"):
        Turing(states=1).parse(bad)


def test_a_maze_step_by_step():
    pairs, lists = Maze(num_names=6), Maze(num_names=6, layout="lists")
    sample = draw(pairs, [5], seed=3)
    assert pairs.words(sample.tokens[0].tolist())[:21] == [
        "d",
        "f",
        "e",
        "d",
        "a",
        "f",
        "e",
        "c",
        "?",
        "e",
        "c",
        "=",
        "e",
        "d",
        "f",
        "a",
        "f",
        "d",
        "e",
        "c",
        ".",
    ]
    assert ids_of(pairs, sample, "published") == [
        "1 1 2 2 3 3 4 4 0 0 0 0 0 2 1 3 3 1 2 4 0",
        "1 2 1 2 1 2 1 2 0 0 0 0 0 2 2 1 2 1 1 2 0",
    ]
    assert ids_of(pairs, sample, "aligned") == [
        "1 1 2 2 3 3 4 4 0 0 0 0 2 1 3 3 1 2 4 0 0",
        "1 2 1 2 1 2 1 2 0 0 0 0 2 2 1 2 1 1 2 0 0",
    ]
    sample = draw(lists, [5], seed=3)
    words = "e d c ; a f ; d f e ; f d a ; c e ; ? e c =  e d f a f d e c ."
    assert lists.words(sample.tokens[0].tolist()) == words.split()
    graph = "1 1 1 1 2 2 2 3 3 3 3 4 4 4 4 5 5 5", "1 2 3 4 1 2 3 1 2 3 4 1 2 3 4 1 2 3"
    assert ids_of(lists, sample, "published") == [
        f"{graph[0]} 0 0 0 0 0 1 3 4 2 4 3 1 0",
        f"{graph[1]} 0 0 0 0 0 2 2 3 2 2 3 3 0",
    ]
    assert ids_of(lists, sample, "aligned") == [
        f"{graph[0]} 0 0 0 0 1 3 4 2 4 3 1 0 0",
        f"{graph[1]} 0 0 0 0 2 2 3 2 2 3 3 0 0",
    ]


def test_mazes_typed_by_people():
    task = Maze(num_names=9)
    assert solved(task, "a b c b b d ? a d") == "a b c b d ."
    assert solved(task, "b d c b a b ? a d =") == "a b d ."  # behind the last edge comes the first
    assert solved(task, "a b ? b a") == "b a ."
    assert solved(Maze(num_names=9, layout="lists"), "b a c d ; a b ; c b ; d b ; ? a d") == "a b c b d ."
    for bad in (
        "a b c ? a b",
        "a b ? a c",
        "a b a b",
        "? a b",
        "a b b c c a a d ? b d",
        "a b c d ? a d",
        "a b ; ? a b",
    ):
        with pytest.raises(BadInput, match="maze: a prompt is the edges of a tree"):
            task.parse(bad)
    for bad in ("a b ; b a ? a b", "a b ; ? a b", "a b ; b a ; b a ; ? a b", "a b ; b ; ? a b", "; a b ; ? a b"):
        with pytest.raises(BadInput, match="maze: a prompt is the edges of a tree"):
            Maze(num_names=9, layout="lists").parse(bad)


def test_a_maze_is_searched_depth_first():
    """Every edge is walked at most once each way, and a node that was left by the way it came is never seen again."""
    task = Maze(num_names=40)
    sample = draw(task, [2, 3, 7, 20, 40] * 40)
    listed = draw(Maze(num_names=40, layout="lists"), [2, 3, 7, 20, 40] * 40)
    for row, length in enumerate(sample.length.tolist()):
        *trace, stop = task.words(answer_of(sample, row))
        assert answer_of(listed, row) == answer_of(sample, row)
        words = task.words(sample.tokens[row].tolist())
        pairs = [*zip(words[: 2 * length - 2 : 2], words[1 : 2 * length - 2 : 2], strict=True)]
        assert len({name for pair in pairs for name in pair}) == length == len(pairs) + 1
        moves = [*pairwise(trace)]
        assert len(set(moves)) == len(moves)
        assert all(move in pairs or move[::-1] in pairs for move in moves)
        assert (trace[0], trace[-1]) == (words[2 * length - 1], words[2 * length])
        assert trace.count(trace[-1]) == 1
        for number, (node, to) in enumerate(moves):
            if (to, node) in moves[:number]:  # the way back: all other edges of the node have been tried
                tried = [other for other, _ in moves[:number] if other == node]
                assert len(tried) == sum(node in pair for pair in pairs) - 1
                assert node not in trace[number + 1 :]
        assert stop == "."


def test_mazes_are_drawn_by_their_law():
    sample = draw(Maze(num_names=4), [4] * 12_000)
    ends = sample.tokens[:, :6]
    most = torch.stack([(ends == name).sum(1) for name in range(5, 9)], dim=1).amax(1)
    assert abs((most == 3).double().mean() - 1 / 3) < 0.02  # a star: of the 6 choices of parents, 2
    pair = sample.tokens[:, 7] * 10 + sample.tokens[:, 8]
    shares = torch.bincount(pair)
    shares = shares[shares > 0] / len(pair)
    assert len(shares) == 12
    assert (shares - 1 / 12).abs().max() < 0.015


def test_a_long_maze_is_as_right_as_a_short_one():
    for layout in ("pairs", "lists"):
        task = Maze(num_names=3000, layout=layout)
        sample = draw(task, [2000])
        assert task.solve(sample, 0) == answer_of(sample, 0)
    with pytest.raises(BadInput, match=r"in 2..9 .num_names., got 10"):
        Maze(num_names=9).check_length(10)


def test_assignments_step_by_step():
    tree, chain = AssignmentTree(num_names=7), AssignmentTree(num_names=7, shape="chain")
    sample = draw(tree, [3], seed=1)
    words = "f = d - g ; d = 5 ; a = b - f ; g = 1 ; b = 3 ; ? a =  a b 3 f d 5 g 1 ; f 4 ; a 9 ."
    assert tree.words(sample.tokens[0].tolist()) == words.split()
    given = "1 1 1 1 1 1 2 2 2 2 3 3 3 3 3 3 4 4 4 4 5 5 5 5", "1 2 3 4 5 6 1 2 3 6 1 2 3 4 5 6 1 2 3 6 1 2 3 6"
    assert ids_of(tree, sample, "published") == [
        f"{given[0]} 0 0 0 0 3 5 3 1 2 1 4 1 1 1 3 3 3 0",
        f"{given[1]} 0 0 0 0 3 3 5 3 3 5 3 6 1 4 6 1 4 0",
    ]
    assert ids_of(tree, sample, "aligned") == [
        f"{given[0]} 0 0 0 3 5 3 1 2 1 4 1 1 1 3 3 3 0 0",
        f"{given[1]} 0 0 0 3 3 5 3 3 5 3 6 1 4 6 1 4 0 0",
    ]
    sample = draw(chain, [3], seed=1)
    words = "f = 7 ; a = b - 8 ; b = f - 3 ; ? a =  a b f 7 ; b 4 ; a 6 ."
    assert chain.words(sample.tokens[0].tolist()) == words.split()
    given = "1 1 1 1 2 2 2 2 2 2 3 3 3 3 3 3", "1 2 3 6 1 2 3 4 5 6 1 2 3 4 5 6"
    assert ids_of(chain, sample, "published") == [
        f"{given[0]} 0 0 0 0 2 3 1 3 3 3 2 2 2 0",
        f"{given[1]} 0 0 0 0 3 3 3 6 1 4 6 1 4 0",
    ]
    assert ids_of(chain, sample, "aligned") == [
        f"{given[0]} 0 0 0 2 3 1 3 3 3 2 2 2 0 0",
        f"{given[1]} 0 0 0 3 3 3 6 1 4 6 1 4 0 0",
    ]
    short = AssignmentTree(num_names=7, scratchpad=False)
    for form in ("published", "aligned"):  # nothing is said of an answer of one token
        assert ids_of(short, draw(short, [3], seed=1), form)[0].endswith("5 5 5 5 0 0 0 0")


def spelled_out(statements: dict[str, str], name: str) -> str:
    words = (f"({spelled_out(statements, word)})" if word in statements else word for word in statements[name].split())
    return " ".join(words)


@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_assignments_have_the_value_of_the_spelled_out_sum(shape):
    task = AssignmentTree(num_names=60, shape=shape, products=True, modulus=7)
    short = AssignmentTree(num_names=60, shape=shape, products=True, modulus=7, scratchpad=False)
    lengths = [2, 3, 8, 20] * 30
    sample, last = draw(task, lengths), draw(short, lengths)
    for row, size in enumerate(sample.prompt_tokens.tolist()):
        *statements, question = " ".join(task.words(sample.tokens[row, :size].tolist())).split(" ; ")
        stands_for = dict(statement.split(" = ") for statement in statements)
        names, expected = question.split()[1], {name: eval(spelled_out(stands_for, name)) % 7 for name in stands_for}
        answer = task.words(answer_of(sample, row))
        said = {name: int(value) for name, value in pairwise(answer) if value.isdigit()}
        assert said == expected
        assert answer[0] == answer[-3] == names
        assert short.words(answer_of(last, row)) == [str(expected[names])]


def test_assignments_typed_by_people():
    task = AssignmentTree(num_names=9)
    assert solved(task, "c=a-b; b=5; a=2; ? c") == "c a 2 b 5 ; c 7 ."
    assert solved(AssignmentTree(num_names=9, shape="chain"), "b = a + 3 ; a = 2 ; ? b =") == "b a 2 ; b 5 ."
    assert task.prompt_batch(task.parse("c=a-b; b=5; a=2; ? c"), 1).length.tolist() == [2]
    for bad in (
        "c = a - b ; b = 5 ; ? c",  # a is not said
        "c = a - a ; a = 5 ; ? c",  # used twice
        "c = a - b ; b = 5 ; a = 1 ; a = 2 ; ? c",  # said twice
        "c = a - 1 ; a = 5 ; ? c",  # for a chain
        "a = b - c ; b = 1 ; c = 2 ; ? d",
        "a = b + c ; b = 1 ; c = a + d ; d = 2 ; ? a",  # in a circle
        "a = 1 ? a",
        "a = 1 ;",
        "a - 1 ; ? a",
        "? a",
    ):
        with pytest.raises(BadInput, match="assignment_tree: a prompt is statements"):
            task.parse(bad)
    with pytest.raises(BadInput, match="is not a token"):
        task.parse("c = a * b ; a = 1 ; b = 2 ; ? c")  # no products here
    with pytest.raises(BadInput, match=r"in 2..5 .by num_names., got 6"):
        task.check_length(6)


def test_every_tree_of_assignments_is_equally_likely():
    task = AssignmentTree(num_names=7, modulus=2)
    sample = draw(task, [4] * 10_000)
    shapes: Counter[str] = Counter()
    for row in sample.tokens.tolist():
        *statements, question = " ".join(task.words(row[:37])).split(" ; ")
        stands_for = dict(statement.split(" = ") for statement in statements)
        whole = spelled_out(stands_for, question.split()[1])
        shapes["".join("1" if character in "01" else character for character in whole if character not in "+- ")] += 1
    assert len(shapes) == 5  # Catalan
    assert max(abs(count - 2000) for count in shapes.values()) < 170  # 4.25 standard deviations


def test_long_assignments_are_as_right_as_short_ones():
    for shape in ("chain", "tree"):
        task = AssignmentTree(num_names=3000, shape=shape)
        sample = draw(task, [1500])
        assert task.solve(sample, 0) == answer_of(sample, 0)


@pytest.mark.parametrize(
    ("command", "actions"),
    [
        # the examples of Lake and Baroni
        ("jump", "JUMP"),
        ("jump left", "LTURN JUMP"),
        ("jump around right", "RTURN JUMP RTURN JUMP RTURN JUMP RTURN JUMP"),
        ("turn left twice", "LTURN LTURN"),
        ("jump thrice", "JUMP JUMP JUMP"),
        ("jump opposite left and walk thrice", "LTURN LTURN JUMP WALK WALK WALK"),
        (
            "jump opposite left after walk around left",
            "LTURN WALK LTURN WALK LTURN WALK LTURN WALK LTURN LTURN JUMP",
        ),
        # and longer ones
        ("walk left twice and jump after run", "LTURN WALK LTURN WALK RUN JUMP"),
        ("look after run and walk and jump after turn around right", "RUN LOOK WALK RTURN RTURN RTURN RTURN JUMP"),
        ("turn opposite right twice and look", "RTURN RTURN RTURN RTURN LOOK"),
    ],
)
def test_commands_mean_what_they_mean_in_scan(command, actions):
    assert solved(Scan(), command) == f"{actions} ."


def test_coupled_ids_of_a_command_lead_to_its_phrase():
    task = Scan()
    prompt = task.prompt_batch(task.parse("look left twice after jump and run"), 7)
    assert ids_of(task, prompt, "published") == ["1 1 1 0 2 0 3 4 0 2 1 1 1 1 3 0", "0 0 0 0 0 0 0 0 0 1 1 2 3 4 1 0"]
    assert ids_of(task, prompt, "aligned") == ["1 1 1 0 2 0 3 4 2 1 1 1 1 3 4 0", "0 0 0 0 0 0 0 0 1 1 2 3 4 1 0 0"]


def test_phrases_are_uniform_and_no_phrase_is_joined_by_after_twice():
    task = Scan()
    sample = draw(task, [5] * 8000)
    phrases: Counter[str] = Counter()
    joined: Counter[str] = Counter()
    for row, size in zip(sample.tokens.tolist(), sample.prompt_tokens.tolist(), strict=True):
        text = " ".join(task.words(row[: size - 2]))
        parts = [part.split(" after ") for part in text.split(" and ")]
        phrases.update(phrase for part in parts for phrase in part)
        joined[" ".join(str(len(part)) for part in parts)] += 1
    assert len(phrases) == 102
    assert sum((count - 40_000 / 102) ** 2 / (40_000 / 102) for count in phrases.values()) < 165  # p = 6e-5
    # wherever both may stand they are equally likely: 1/2 for each join that does not follow `after`
    assert len(joined) == 8
    for parts, count in joined.items():
        pairs = parts.split().count("2")
        after_at_end = parts.endswith("2")
        free = 4 - (pairs - after_at_end)
        assert abs(count / 8000 - 0.5**free) < 0.02


def test_what_is_no_command_is_refused():
    for bad in (
        "turn",
        "walk opposite",
        "walk twice left",
        "left walk",
        "walk and",
        "walk run",
        "walk after run after jump",
        "walk ; run",
        "around left",
        "left left",
        "WALK",
    ):
        with pytest.raises(BadInput, match="scan: a prompt is phrases that are joined"):
            Scan().parse(bad)
    with pytest.raises(BadInput, match="'fly' is not a token"):
        Scan().parse("fly left")


def test_a_long_command_is_as_right_as_a_short_one():
    sample = draw(Scan(), [800])
    assert Scan().solve(sample, 0) == answer_of(sample, 0)


def test_settings_that_make_no_sense_are_refused():
    for bad, complaint in (
        ({"name": "turing", "states": 0}, "turing.states must be at least 1, got 0"),
        ({"name": "turing", "symbols": 1}, "turing.symbols must be at least 2, got 1"),
        ({"name": "turing", "steps": "0..3"}, "turing.steps must be at least 1, got 0..3"),
        ({"name": "maze", "num_names": 1}, "maze.num_names must be at least 2, got 1"),
        ({"name": "assignment_tree", "modulus": 1}, "assignment_tree.modulus must be at least 2, got 1"),
        ({"name": "assignment_tree", "num_names": 2}, "assignment_tree.num_names must be at least 3, got 2"),
        ({"name": "assignment_tree", "shape": "bush"}, "unknown value 'bush'"),
        ({"name": "turing", "sweep": 1.5}, "turing.sweep must be in 0..1, got 1.5"),
    ):
        with pytest.raises(BadInput, match=complaint):
            build_part(Task, bad, "task")
