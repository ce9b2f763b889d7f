"""Which earlier tokens does a prediction depend on?"""

from longreach.probe.result import Cost, Probed
from longreach.probe.settings import MaskKind, Method, ProbeConfig

__all__ = ["Cost", "MaskKind", "Method", "ProbeConfig", "Probed"]
