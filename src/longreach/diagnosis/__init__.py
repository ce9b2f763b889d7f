"""How far could this reach?  What answers need, what training covers, and how errors will grow."""

from longreach.diagnosis.coverage import SchemeCoverage
from longreach.diagnosis.diagnosis import diagnose_data, diagnose_model, diagnose_task
from longreach.diagnosis.estimates import Estimate
from longreach.diagnosis.findings import Diagnosis, Forecast, NeedsSummary, SchemeReport
from longreach.diagnosis.growth import extend
from longreach.diagnosis.probe import influence
from longreach.diagnosis.recorded import RecordedSample, read_rows

__all__ = [
    "Diagnosis",
    "Estimate",
    "Forecast",
    "NeedsSummary",
    "RecordedSample",
    "SchemeCoverage",
    "SchemeReport",
    "diagnose_data",
    "diagnose_model",
    "diagnose_task",
    "extend",
    "influence",
    "read_rows",
]
