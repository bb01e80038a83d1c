"""Which places of the bundle's bucket a source of a project may read."""


class LocationRefusedError(ValueError):
    """A project may not read there; the message says where it may, and follows the words `the location`."""


def read_traces_prefix(location: str, bucket: str, project: str) -> str:
    """Return the key prefix, ending in a slash, of `s3://<bundle bucket>/traces/<project>/…`.

    Raises
    ------
    LocationRefusedError
        It lies elsewhere, or holds `.`, `..`, empty or encoded segments.
    """
    root = f"s3://{bucket}/traces/{project}"
    path = location.removesuffix("/")
    rest = path.removeprefix(root)
    segments = rest.split("/")[1:]
    is_clean = all(segment not in ("", ".", "..") for segment in segments) and not set(rest) & set("\\%?#\0")
    if not path.startswith(root) or (rest and not rest.startswith("/")) or not is_clean:
        raise LocationRefusedError(f"must lie under {root}/, written without encoding")
    return f"traces/{project}{rest}/"
