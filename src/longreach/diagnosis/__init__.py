"""How far could this reach?  What answers need, what training covers, and how errors will grow."""

from longreach.diagnosis.coverage import Coverage
from longreach.diagnosis.diagnosis import diagnose_data, diagnose_model, diagnose_task
from longreach.diagnosis.estimates import Estimate
from longreach.diagnosis.findings import Diagnosis, Forecast, SchemeReport, Shape
from longreach.diagnosis.growth import extend
from longreach.diagnosis.probe import influence
from longreach.diagnosis.recorded import Row, read_rows

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
