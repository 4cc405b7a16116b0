"""Five findings of "Vision Transformers Need Registers" (Darcet et al. 2024) for Vitreous."""

from fifth_paper.findings import BOOK

__all__ = ["BOOK"]
