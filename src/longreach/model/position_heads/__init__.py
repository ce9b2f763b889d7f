"""Heads that predict position IDs: one per file."""

from longreach.model.position_heads.base import Features, IdChoice, PositionHead, PositionHeadConfig, Steps
from longreach.model.position_heads.pointer import PointerConfig
from longreach.model.position_heads.table import TableConfig

__all__ = ["Features", "IdChoice", "PointerConfig", "PositionHead", "PositionHeadConfig", "Steps", "TableConfig"]
