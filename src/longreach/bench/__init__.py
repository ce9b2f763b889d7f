"""How fast it is."""

from longreach.bench.attributed import Attribution, Trial
from longreach.bench.attribution import compare_attribution
from longreach.bench.comparison import ComparisonRow, SpeedComparison
from longreach.bench.decoding import time_decoding
from longreach.bench.drawing import DrawingSpeed, time_drawing
from longreach.bench.evaluation import time_evaluation, time_grid
from longreach.bench.every_target import compare_every_target
from longreach.bench.headline import HEADLINE, HeadlineRow, Stamp, headline_rows, update_headline
from longreach.bench.lengths import LengthReport, LengthRow, time_lengths
from longreach.bench.machine import Peak, machine_name, measure_peak, on_gpu
from longreach.bench.parts import time_parts
from longreach.bench.protocols import EveryTarget, Protocol
from longreach.bench.recipes import RecipeReport, RecipeRow, parse_recipes, time_recipes
from longreach.bench.rivals import DECODING, TRAINING
from longreach.bench.stack import time_stack
from longreach.bench.start import StartTime, time_start
from longreach.bench.tasks import TaskSpeed, time_tasks
from longreach.bench.timing import Effort, Side, Timing, take_turns
from longreach.bench.train import time_training
from longreach.bench.whole import WholeRow, time_whole
from longreach.bench.workload import Workload

__all__ = [
    "DECODING",
    "HEADLINE",
    "TRAINING",
    "Attribution",
    "ComparisonRow",
    "DrawingSpeed",
    "Effort",
    "EveryTarget",
    "HeadlineRow",
    "LengthReport",
    "LengthRow",
    "Peak",
    "Protocol",
    "RecipeReport",
    "RecipeRow",
    "Side",
    "SpeedComparison",
    "Stamp",
    "StartTime",
    "TaskSpeed",
    "Timing",
    "Trial",
    "WholeRow",
    "Workload",
    "compare_attribution",
    "compare_every_target",
    "headline_rows",
    "machine_name",
    "measure_peak",
    "on_gpu",
    "parse_recipes",
    "take_turns",
    "time_decoding",
    "time_drawing",
    "time_evaluation",
    "time_grid",
    "time_lengths",
    "time_parts",
    "time_recipes",
    "time_stack",
    "time_start",
    "time_tasks",
    "time_training",
    "time_whole",
    "update_headline",
]
