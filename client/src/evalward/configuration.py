"""Where the API is and with which key it is called: the environment first, then the file that `evalward login` writes.

The stored key belongs to the stored URL: it is never sent to another one that the environment names.
"""

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalward.errors import ConfigurationError
from evalward.transport import PATIENCE_SECONDS

URL_VARIABLE = "EVALWARD_API_URL"
KEY_VARIABLE = "EVALWARD_API_KEY"
PROJECT_VARIABLE = "EVALWARD_PROJECT"
PATIENCE_VARIABLE = "EVALWARD_PATIENCE_SECONDS"


@dataclass(frozen=True, slots=True)
class Login:
    """Where and as whom.

    Attributes
    ----------
    api_url, api_key
        Of the API.
    project
        Taken when a command names none; None without one.
    """

    api_url: str
    api_key: str
    project: str | None = None


def read_environment(environment: Mapping[str, str] | None = None) -> Login:
    """Return the login that the environment names.

    Raises
    ------
    ConfigurationError
        EVALWARD_API_URL or EVALWARD_API_KEY is not set.
    """
    variables = os.environ if environment is None else environment
    missing = [name for name in (URL_VARIABLE, KEY_VARIABLE) if not variables.get(name)]
    if missing:
        raise ConfigurationError(f"{' and '.join(missing)} must be set.")
    return Login(variables[URL_VARIABLE], variables[KEY_VARIABLE], variables.get(PROJECT_VARIABLE) or None)


def find_login(environment: Mapping[str, str] | None = None) -> Login:
    """Return the login of a command: each part from the environment if it is there, else from the file.

    Raises
    ------
    ConfigurationError
        A part is missing, the file is damaged or others may read it, or the environment names another URL without a
        key for it.
    """
    variables = os.environ if environment is None else environment
    url, key = variables.get(URL_VARIABLE), variables.get(KEY_VARIABLE)
    stored = None if url and key else read_login(login_file(variables))
    if url and not key and stored is not None and stored.api_url != url.rstrip("/"):
        raise ConfigurationError(
            f"{URL_VARIABLE} is {url}, the stored key is for {stored.api_url}: set {KEY_VARIABLE} too."
        )
    url = url or (stored.api_url if stored else None)
    key = key or (stored.api_key if stored else None)
    if not url or not key:
        raise ConfigurationError(f"Not logged in: run `evalward login URL`, or set {URL_VARIABLE} and {KEY_VARIABLE}.")
    return Login(url, key, variables.get(PROJECT_VARIABLE) or (stored.project if stored else None))


def read_patience(environment: Mapping[str, str] | None = None) -> float:
    """Return how many seconds a request is sent again; a minute unless the environment says otherwise.

    Raises
    ------
    ConfigurationError
        It is no number of seconds.
    """
    variables = os.environ if environment is None else environment
    text = variables.get(PATIENCE_VARIABLE)
    if not text:
        return PATIENCE_SECONDS
    if not text.isdecimal():
        raise ConfigurationError(f"{PATIENCE_VARIABLE} is {text!r}, which is no number of seconds, such as 120.")
    return float(text)


def login_file(environment: Mapping[str, str] | None = None) -> Path:
    """Return the path of the file with the login.

    Raises
    ------
    ConfigurationError
        Neither XDG_CONFIG_HOME nor a home folder is there.
    """
    return _folder(environment, "XDG_CONFIG_HOME", ".config") / "login.json"


def pending_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder with the keys of pending writes.

    Raises
    ------
    ConfigurationError
        Neither XDG_STATE_HOME nor a home folder is there.
    """
    return _folder(environment, "XDG_STATE_HOME", ".local/state") / "pending"


def read_login(path: Path) -> Login | None:
    """Return the stored login, or None without one.

    Raises
    ------
    ConfigurationError
        The file is damaged, or others may read it.
    """
    try:
        with path.open() as stream:
            mode = os.fstat(stream.fileno()).st_mode
            text = stream.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from error
    if mode & 0o077:
        raise ConfigurationError(f"Others may read the key in {path}: run `chmod 600 {path}`, and consider a new key.")
    try:
        return Login(**json.loads(text))
    except (ValueError, TypeError) as error:
        raise ConfigurationError(f"{path} is damaged: run `evalward login URL` again.") from error


def write_login(path: Path, login: Login) -> None:
    """Store a login for its owner only, whole or not at all.

    Raises
    ------
    ConfigurationError
        It cannot be written.
    """
    content: dict[str, Any] = {"api_url": login.api_url, "api_key": login.api_key, "project": login.project}
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # mkstemp makes it readable for its owner only.
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(descriptor, "w") as stream:
                json.dump(content, stream)
                stream.flush()
                os.fsync(stream.fileno())
            Path(temporary).replace(path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                Path(temporary).unlink()
            raise
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}.") from error


def _folder(environment: Mapping[str, str] | None, variable: str, usual: str) -> Path:
    variables = os.environ if environment is None else environment
    if variables.get(variable):
        return Path(variables[variable]) / "evalward"
    try:
        return Path.home() / usual / "evalward"
    except RuntimeError as error:
        raise ConfigurationError(f"There is no home folder here: set HOME, or {variable} to a folder.") from error
