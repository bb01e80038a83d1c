"""evalward for Python: a client whose writes happen once.

`Client` calls the API; `PendingWrites` keeps the keys of writes that were interrupted. The command `evalward` is made
of both.
"""

from evalward.client import Client
from evalward.errors import (
    ConfigurationError,
    EvalwardError,
    OutcomeUnknownError,
    ProblemError,
    StaleWriteError,
    UnreachableError,
    UploadRefusedError,
    WaitedInVainError,
)
from evalward.evaluation import Frames, read_frames
from evalward.pending_writes import PendingWrites
from evalward.publish_file import Publication, WantedDataset

__all__ = [
    "Client",
    "ConfigurationError",
    "EvalwardError",
    "Frames",
    "OutcomeUnknownError",
    "PendingWrites",
    "ProblemError",
    "Publication",
    "StaleWriteError",
    "UnreachableError",
    "UploadRefusedError",
    "WaitedInVainError",
    "WantedDataset",
    "read_frames",
]
