"""Record products as a CUDA graph: the same kernels, without Python in between.

A product of a Hessian launches about a thousand small kernels, and launching them takes longer than
computing them. Recorded once, they are launched together.

Autograd runs the backward pass of an operation on the stream of its forward pass, and only one
stream is recorded. So the graph of the gradients must be built on the stream of the recordings.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch
from torch import Tensor

from vitreous.specimen.state import no_garbage_collection

log = logging.getLogger("vitreous")


class Recorder:
    """Runs a function of one CUDA tensor; from the second call on, replays a recording of it.

    The function has to launch the same kernels on the same memory every time. One that cannot be
    recorded is run as it is, with a warning.
    """

    works = True
    """Whether to record; false after the first failure, which torch may not recover from."""

    def __init__(self, device: torch.device) -> None:
        self.stream = _stream(device)
        self.calls = 0
        self.recording: tuple[torch.cuda.CUDAGraph, Tensor, Tensor] | None = None
        """With its input and its output."""

    @contextmanager
    def on_stream(self) -> Iterator[None]:
        """Work on the stream of the recordings; the current stream waits for it."""
        current = torch.cuda.current_stream(self.stream.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            yield
        current.wait_stream(self.stream)

    def __call__(self, function: Callable[[Tensor], Tensor], given: Tensor) -> Tensor:
        """Return `function(given)`; the function is the same in every call."""
        self.calls += 1
        if self.calls == 2 and Recorder.works:  # in the first call libraries allocate memory
            self._record(function, given)
        if self.recording is None:
            with self.on_stream():
                return function(given)
        graph, source, result = self.recording
        source.copy_(given)
        graph.replay()
        return result.clone()

    def _record(self, function: Callable[[Tensor], Tensor], given: Tensor) -> None:
        graph, source = torch.cuda.CUDAGraph(), given.clone()
        pool = _first_recording(self.stream.device).pool()
        torch.cuda.synchronize(self.stream.device)
        try:
            # garbage collection could free an older recording, which is not allowed meanwhile
            with no_garbage_collection(), torch.cuda.stream(self.stream):
                graph.capture_begin(pool=pool)
                try:
                    result = function(source)
                finally:
                    graph.capture_end()
        except RuntimeError as error:
            Recorder.works = False
            log.warning(
                "Products cannot be recorded as a CUDA graph and will be slower: %s",
                str(error).splitlines()[0],
            )
            return
        self.recording = graph, source, result


@lru_cache(maxsize=8)
def _stream(device: torch.device) -> torch.cuda.Stream:
    """The stream of all recordings on a GPU: torch reuses memory only within one stream."""
    return torch.cuda.Stream(device)


@lru_cache(maxsize=8)
def _first_recording(device: torch.device) -> torch.cuda.CUDAGraph:
    """A trivial recording whose memory pool all other recordings share, one after the other."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=_stream(device)):
        torch.zeros(1, device=device)
    return graph
