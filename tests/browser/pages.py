"""Pages of made-up results, without training."""

from pathlib import Path

from longreach.evaluation import Card, Score
from longreach.reports.load import Result
from longreach.reports.page import render_page

CARD = Card(
    task="copy",
    trained_lengths="1..20",
    trained_tokens="4..44",
    trained_ids="0..44",
    trained_id_distance=44,
    ids_supplied_by="counting tokens",
    length_known="no",
    stops="at the model's own stop token",
    decoding="greedy",
    selection="the last checkpoint",
    id_coverage=[3, 2, 0, 1],
    chance=0.125,
)


def result(variant: str, seed: int, hits: dict[int, int], **settings: object) -> Result:
    """Return a result with these free-running hits of 100, and errors of two kinds."""
    overrides = {name: str(value) for name, value in settings.items()}
    scores = [Score(seed, length, "token_em_free", right, 100, overrides) for length, right in hits.items()]
    for length, right in hits.items():
        wrong = 100 - right
        scores += [
            Score(seed, length, "token_accuracy", 900 + right, 1000, overrides),
            Score(seed, length, "error_token_first", wrong // 2, 100, overrides),
            Score(seed, length, "error_id_first", wrong - wrong // 2, 100, overrides),
            Score(seed, length, "first_error_tenth_3", wrong, 100, overrides),
        ]
    return Result(
        source=f"runs/{variant}/seed-{seed}",
        variant=variant,
        seed=seed,
        scores=scores,
        card=CARD,
        trained_lengths=(1, 20),
        title="Copying",
        command=f"longreach run copy --only {variant}",
        variants=("plain", "coupled", "spare"),
    )


def page_of(results: list[Result], path: Path, problems: tuple[str, ...] = ()) -> Path:
    path.write_text(render_page(results, results[0].title, problems), encoding="utf-8")
    return path
