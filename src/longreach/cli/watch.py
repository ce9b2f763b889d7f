"""`longreach watch DIR`: runs and sweeps while they run, in the terminal or as a local page."""

import argparse
import json

from longreach.errors import BadInput
from longreach.live import Watched
from longreach.terminal.console import out, say

_EVERY = (0.2, 3600.0)
_POINTS = 60
"""Of a curve in JSON."""


def run(args: argparse.Namespace, settings: list[str]) -> int:
    if not _EVERY[0] <= args.every <= _EVERY[1]:
        raise BadInput(f"--every must be in {_EVERY[0]:g}..{_EVERY[1]:g} seconds, got {args.every:g}")
    if args.serve and (args.once or args.json):
        raise BadInput(f"--serve goes on until it is stopped: leave out {'--once' if args.once else '--json'}")
    if args.port is not None and not args.serve:
        raise BadInput("--port concerns the page: add --serve")
    if args.port is not None and not 0 <= args.port < 1 << 16:
        raise BadInput(f"--port must be in 0..65535, got {args.port}")
    watched = Watched(args.folder)
    if args.serve:
        from longreach.terminal.live_server import serve  # the others do without http.server

        serve(watched, args.port or 0, args.every, _announce)
        return 0
    if args.json:
        print(json.dumps(watched.look(1 << 62, _POINTS).to_json()))
        return 0
    from longreach.terminal.live_table import POINTS, ROWS, overview_table, watch_folder

    if args.once or not out.is_terminal:
        out.print(overview_table(watched.look(ROWS, POINTS), out.width, out.options.ascii_only))
        return 0
    watch_folder(watched, out, args.every)
    return 0


def _announce(address: str) -> None:
    say.print(f"{address}  (only this address opens the page; Ctrl-C ends it)", highlight=False, soft_wrap=True)
