"""Which route of an HTTP API serves a request."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

DEFAULT_ROUTE = "$default"
_ANY_METHOD = "x-amazon-apigateway-any-method"
_FUNCTION_IN_URI = re.compile(r"/functions/arn:[^/]*:function:([^/:]+)")


@dataclass(frozen=True)
class HttpRoute:
    """A route and the function it calls.

    Attributes
    ----------
    key
        As API Gateway names it: `POST /v1/things/{id}` or `$default`.
    method, path
        The key's two halves; the method is `ANY` for every method.
    function_name
        The Lambda function's name.
    """

    key: str
    method: str
    path: str
    function_name: str

    def match(self, method: str, raw_path: str) -> dict[str, str] | None:
        """Return the path parameters, decoded, when the route serves the request.

        Parameters
        ----------
        method
            Upper case.
        raw_path
            The path as it was sent, percent-encoded: an encoded slash does not divide segments.
        """
        if self.key == DEFAULT_ROUTE:
            return {}
        if self.method not in (method, "ANY"):
            return None
        ours, theirs = self.path.strip("/").split("/"), raw_path.strip("/").split("/")
        parameters: dict[str, str] = {}
        for position, segment in enumerate(ours):
            if segment.startswith("{") and segment.endswith("+}"):
                rest = "/".join(theirs[position:])
                return {**parameters, segment[1:-2]: unquote(rest)} if rest else None
            if position >= len(theirs):
                return None
            if segment.startswith("{"):
                if not theirs[position]:
                    return None
                parameters[segment[1:-1]] = unquote(theirs[position])
            elif segment != unquote(theirs[position]):
                return None
        return parameters if len(ours) == len(theirs) else None

    @property
    def precedence(self) -> tuple[int, int, int]:
        """Sorts the more specific route first: a full match, then a greedy one, `$default` last."""
        kind = 2 if self.key == DEFAULT_ROUTE else 1 if "+}" in self.path else 0
        return kind, self.path.count("{"), int(self.method == "ANY")


def read_routes(api_body: Mapping[str, Any]) -> list[HttpRoute]:
    """Read the routes from an HTTP API's OpenAPI body, most specific first.

    Parameters
    ----------
    api_body
        The `Body` property with every intrinsic function resolved.

    Returns
    -------
    list of HttpRoute

    Raises
    ------
    ValueError
        When an integration is anything but a Lambda function.
    """
    routes: list[HttpRoute] = []
    for path, operations in api_body.get("paths", {}).items():
        for method, operation in operations.items():
            match = _FUNCTION_IN_URI.search(operation["x-amazon-apigateway-integration"]["uri"])
            if match is None:
                raise ValueError(f"{method} {path}: the integration is no Lambda function")
            verb = "ANY" if method == _ANY_METHOD else method.upper()
            key = DEFAULT_ROUTE if path == DEFAULT_ROUTE else f"{verb} {path}"
            routes.append(HttpRoute(key, verb, path, match[1]))
    return sorted(routes, key=lambda route: route.precedence)


def choose_route(routes: list[HttpRoute], method: str, raw_path: str) -> tuple[HttpRoute, dict[str, str]] | None:
    """Return the first route that serves the request, with its path parameters, or None."""
    for route in routes:
        parameters = route.match(method, raw_path)
        if parameters is not None:
            return route, parameters
    return None
