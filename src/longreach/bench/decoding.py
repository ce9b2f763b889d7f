"""Greedy generation of so many tokens with the same weights, ours and theirs, in fp32."""

from collections.abc import Callable

from jaxtyping import Int
from torch import Tensor

from longreach.bench import rivals
from longreach.bench.comparison import SpeedComparison
from longreach.bench.flops import forward_flops
from longreach.bench.machine import Peak, wait_for
from longreach.bench.scribble import Scribble, scribbled
from longreach.bench.timing import Effort, Side, take_turns
from longreach.bench.train import new_model
from longreach.bench.workload import Workload
from longreach.decoding import generate
from longreach.engine.plan import choose
from longreach.execution import ExecutionConfig
from longreach.positions.ids import Sequential


def time_decoding(
    workload: Workload, prompt_tokens: int, device: str, against: str, effort: Effort, peak: Peak
) -> SpeedComparison:
    """The workload's length is the number of new tokens."""
    forms = rivals.choose_rivals(against, rivals.DECODING, device)
    task = Scribble(prompt_tokens=prompt_tokens)
    sample = scribbled(task, workload.batch, workload.length, device)
    model = new_model(workload, task, device).eval()
    tokens = workload.batch * workload.length
    plan = choose(model, ExecutionConfig(), device)

    def write() -> Int[Tensor, "b t"]:
        return generate(model, task, Sequential(), sample, write=plan.write).tokens

    writers: list[tuple[str, Callable[[], Tensor]]] = [("longreach", write)]
    for form in forms:
        their_writing = rivals.writing(form, model, sample.tokens[:, :prompt_tokens], workload.length)
        writers.append((rivals.DECODING[form], their_writing))
    written = {name: call() for name, call in writers}  # a warm-up more
    needed = forward_flops(
        model.config, len(task.vocabulary), workload.batch, prompt_tokens + workload.length - 1, predicted=tokens
    )
    return SpeedComparison(
        name=f"decode {workload}",
        timings=tuple(
            take_turns([Side(name, call, tokens) for name, call in writers], effort, lambda: wait_for(device))
        ),
        flops_per_token=needed / tokens,
        peak=peak,
        notes=(
            f"prompts of {prompt_tokens} tokens, fp32, no stop token",
            *(_agreement(name, written["longreach"], written[name]) for name in written if name != "longreach"),
        ),
    )


def _agreement(name: str, ours: Int[Tensor, "b t"], theirs: Int[Tensor, "b t"]) -> str:
    """How many answers are equal, token for token: both compute the same function."""
    if ours.shape != theirs.shape:
        return f"{name} wrote {theirs.shape[1]} columns, longreach {ours.shape[1]}"
    equal = int((ours == theirs).all(1).sum())
    return f"{name} writes the same as longreach in {equal} of {len(ours)} rows"
