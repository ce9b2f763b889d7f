"""The committed results: every row complete, every seed of a series there."""

import json
from collections import defaultdict
from pathlib import Path

ROWS = json.loads((Path(__file__).parents[2] / "results" / "headline.json").read_text())
FIELDS = {
    "task",
    "scheme",
    "ids_from",
    "trained_to",
    "length",
    "seed",
    "metric",
    "exact_match",
    "samples",
    "command",
    "commit",
    "device",
    "date",
}


def test_every_row_is_complete():
    for row in ROWS:
        assert set(row) == FIELDS
        assert row["ids_from"] in ("rule", "model", "oracle")
        assert row["metric"] in ("token_em_tf", "token_id_em_tf", "token_em_free")
        hits = row["exact_match"] * row["samples"]
        assert abs(hits - round(hits)) < 1e-2  # a share of whole samples
        assert row["command"].startswith("longreach ")
        assert len(row["commit"]) >= 7


def test_every_seed_of_a_series_is_there_once():
    series = defaultdict(list)
    for row in ROWS:
        series[row["task"], row["scheme"], row["command"]].append(row)
    for rows in series.values():
        cells = defaultdict(list)
        for row in rows:
            cells[row["length"], row["metric"]].append(row["seed"])
        expected = sorted({row["seed"] for row in rows})
        assert len(expected) >= 3
        assert all(sorted(seeds) == expected for seeds in cells.values())
