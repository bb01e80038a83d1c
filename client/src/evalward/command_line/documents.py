"""YAML and JSON files as JSON values: what a file says must be the same to us and to the API."""

import json
import re
import sys
from pathlib import Path
from typing import IO, Any, cast

import yaml

from evalward.errors import ConfigurationError
from evalward.transport import JsonObject


class _StrictLoader(yaml.SafeLoader):
    """YAML 1.2's JSON schema with plain texts: no dates, no `yes`, no octal numbers, no key twice."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - yaml's own name


_StrictLoader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(?:null|~|)$"), [*"n~", ""])
_StrictLoader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), [*"tf"])
_StrictLoader.add_implicit_resolver(
    "json-number", re.compile(r"^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?$"), [*"-0123456789"]
)


def _read_number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int | float:
    return json.loads(loader.construct_scalar(node))


def _read_mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} is no text", key_node.start_mark)
        if key in read:
            raise yaml.constructor.ConstructorError(None, None, f"{key!r} stands twice", key_node.start_mark)
        read[key] = loader.construct_object(value_node, deep=True)
    return read


_StrictLoader.add_constructor("json-number", _read_number)
_StrictLoader.add_constructor("tag:yaml.org,2002:map", _read_mapping)


_EXAMPLES = {"--label": "team=search", "--map": "output=/answer/text"}


def read_document(path: Path) -> JsonObject:
    """Read an object from a YAML or JSON file, or from the standard input (`-`).

    Raises
    ------
    ConfigurationError
        It cannot be read, or holds no object.
    """
    try:
        # UTF-8 whatever the locale.
        text = (open_input().read() if str(path) == "-" else path.read_bytes()).decode("utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    try:
        document = yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigurationError(f"{path} is neither YAML nor JSON: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path} holds no object: `name: value` lines, or JSON in braces.")
    return cast("JsonObject", document)


def open_input() -> IO[bytes]:
    """Return the standard input.

    Raises
    ------
    ConfigurationError
        It is closed.
    """
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]
        raise ConfigurationError("The standard input is closed: give a file.")
    return sys.stdin.buffer


def read_pairs(pairs: list[str], option: str) -> dict[str, str]:
    """Read `key=value` texts.

    Raises
    ------
    ConfigurationError
        One has no `=`, or a key stands twice.
    """
    read: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ConfigurationError(f"{option} {pair!r} is not key=value, such as {_EXAMPLES[option]}.")
        if key in read:
            raise ConfigurationError(f"{option} {key} is given twice: {read[key]!r} and {value!r}.")
        read[key] = value
    return read
