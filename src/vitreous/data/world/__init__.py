"""Synthetic datasets: small images that the package draws itself, with complete ground truth.

`load("shapes")` gives objects whose shape, texture, colour, place and background are independent of
each other; `load("cues")` and `load("conflict")` a training and a test set for shape against
texture; `load("syn-a:shape")` to `load("syn-e")` five tasks that need one ability each.
"""

from vitreous.data.world.tasks import TASKS
from vitreous.data.world.tasks import load_task as load

__all__ = ["TASKS", "load"]
