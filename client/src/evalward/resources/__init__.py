"""What the API has, one class a kind.

Every method calls one operation and returns its JSON as docs/api.md describes it. Reads raise `ProblemError` and
`UnreachableError`; writes, which take an `idempotency_key` of your own, raise `OutcomeUnknownError` and
`StaleWriteError` too. Times in answers are RFC 3339 UTC.
"""
