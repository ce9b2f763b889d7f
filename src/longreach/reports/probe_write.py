"""Write the report of probes: a page, figures, and all figures as numbers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from longreach.errors import BadInput
from longreach.probe.names import tell_apart
from longreach.probe.result import Probed
from longreach.probe.summary import SummaryRow, summarise, to_csv, to_json
from longreach.reports.figures import save_png
from longreach.reports.probe_figures import (
    faithfulness_figure,
    goes_with_figure,
    kinds_figure,
    sufficiency_figure,
    survival_figure,
    weights_figure,
)
from longreach.reports.probe_page import render_probe_page
from longreach.system.files import write_atomically


@dataclass(frozen=True)
class ProbeReport:
    rows: list[SummaryRow] = field(repr=False)
    html: Path
    csv: Path
    json: Path
    figures: list[Path]


def find_probes(paths: Sequence[Path]) -> list[Path]:
    """The folders at or below the paths that hold a probe, each once."""
    found = [record.parent for path in paths for record in sorted(path.rglob("probe.json"))]
    return list({folder.resolve(): folder for folder in reversed(found)}.values())[::-1]


def write_probe_report(folders: Sequence[Path], out: Path) -> ProbeReport:
    probes = tell_apart([Probed.load(folder) for folder in folders])
    if not any(len(probe.targets) for probe in probes):
        raise BadInput(f"{', '.join(map(str, folders))}: no prediction was probed")
    rows = summarise(probes)
    drawn = {
        "k": ("How many tokens a prediction needs", survival_figure(rows)),
        "kinds": ("By kind of token", kinds_figure(rows)),
        "goes_with": ("By position, loss and entropy", goes_with_figure(rows)),
        "sufficiency": ("How few are enough", sufficiency_figure(rows)),
        "faithfulness": ("How faithful the weights are", faithfulness_figure(probes, rows)),
        "weights": (f"Weights in the first tokens of {probes[0].title}", weights_figure(probes[0])),
    }
    out.mkdir(parents=True, exist_ok=True)
    report = ProbeReport(
        rows, out / "probe.html", out / "summary.csv", out / "summary.json", [out / f"{name}.png" for name in drawn]
    )
    for path, (_, figure) in zip(report.figures, drawn.values(), strict=True):
        save_png(figure, path)
    title = " / ".join(dict.fromkeys(probe.model for probe in probes))
    page = render_probe_page(probes, dict(drawn.values()), f"What predictions depend on: {title}")
    write_atomically(report.html, page.encode())
    write_atomically(report.csv, to_csv(rows).encode())
    write_atomically(report.json, to_json(rows).encode())
    return report
