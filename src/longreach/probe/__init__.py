"""Which earlier tokens does a prediction depend on?"""

from longreach.probe.calibrate import Calibration, calibrate
from longreach.probe.hugging_face import HuggingFace, load_hugging_face
from longreach.probe.language_model import LanguageModel
from longreach.probe.measure import probe, total_steps
from longreach.probe.next_tokens import predicting
from longreach.probe.own_model import OwnModel
from longreach.probe.passage import Passage
from longreach.probe.result import Cost, Probed
from longreach.probe.settings import MaskKind, Method, ProbeConfig
from longreach.probe.sparsity import probe_targets, summarise_sparsity

__all__ = [
    "Calibration",
    "Cost",
    "HuggingFace",
    "LanguageModel",
    "MaskKind",
    "Method",
    "OwnModel",
    "Passage",
    "ProbeConfig",
    "Probed",
    "calibrate",
    "load_hugging_face",
    "predicting",
    "probe",
    "probe_targets",
    "summarise_sparsity",
    "total_steps",
]
