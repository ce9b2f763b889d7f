"""How far could this reach?  What answers need, what training covers, and how errors will grow."""

from longreach.diagnose.coverage import Coverage
from longreach.diagnose.diagnosis import diagnose_data, diagnose_model, diagnose_task
from longreach.diagnose.estimates import Estimate
from longreach.diagnose.findings import Diagnosis, Forecast, SchemeReport, Shape
from longreach.diagnose.growth import extend
from longreach.diagnose.probe import influence
from longreach.diagnose.recorded import Row, read_rows

__all__ = [
    "Coverage",
    "Diagnosis",
    "Estimate",
    "Forecast",
    "Row",
    "SchemeReport",
    "Shape",
    "diagnose_data",
    "diagnose_model",
    "diagnose_task",
    "extend",
    "influence",
    "read_rows",
]
