"""What calls of something outside have in common: how they fail."""


class CallFailedError(Exception):
    """A call brought nothing usable; the message is for people and quotes nothing of what was sent or answered.

    Parameters
    ----------
    message
        Why.
    may_pass
        Whether the same call may succeed a moment later.
    wait_seconds
        What the other side asks to wait before that; None when it does not say.
    """

    def __init__(self, message: str, *, may_pass: bool = False, wait_seconds: float | None = None) -> None:
        super().__init__(message)
        self.may_pass: bool = may_pass
        self.wait_seconds: float | None = wait_seconds
