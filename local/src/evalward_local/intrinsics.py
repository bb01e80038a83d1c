"""CloudFormation's intrinsic functions, resolved against parameters and created resources."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from evalward_local.account import ACCOUNT_ID

_SUBSTITUTION = re.compile(r"\$\{(!?)([^}]+)\}")


class TemplateError(Exception):
    """The template cannot be brought to life; the message names the logical id and the reason."""


@dataclass(frozen=True)
class CreatedResource:
    """What `Ref` and `Fn::GetAtt` answer for a resource that exists.

    Attributes
    ----------
    ref
        The physical id.
    attributes
        Attribute name to value.
    """

    ref: str
    attributes: Mapping[str, str] = field(default_factory=dict[str, str])


class _NoValue:
    """`AWS::NoValue`: the property or item that holds it is left out."""


_NO_VALUE = _NoValue()


def parameter_values(declared: Mapping[str, Mapping[str, Any]], given: Mapping[str, str]) -> dict[str, Any]:
    """Return each parameter's value, the given one or its default.

    Parameters
    ----------
    declared
        The template's Parameters section.
    given
        Values by name; each name must be declared.

    Returns
    -------
    dict
        Strings, and lists of strings for the list types, as `Ref` gives them.

    Raises
    ------
    TemplateError
        When a value is missing, not allowed, or nobody declares its name.
    """
    if unknown := sorted(set(given) - set(declared)):
        raise TemplateError(f"{unknown[0]}: the template has no such parameter")
    values: dict[str, Any] = {}
    for name, parameter in declared.items():
        value = given.get(name, parameter.get("Default"))
        if value is None:
            raise TemplateError(f"{name}: the parameter has no default and no value was given")
        text = _text(value)
        allowed = [_text(item) for item in parameter.get("AllowedValues") or []]
        if allowed and text not in allowed:
            raise TemplateError(f"{name}: {text!r} is none of {', '.join(allowed)}")
        is_list = parameter["Type"] == "CommaDelimitedList" or parameter["Type"].startswith("List<")
        values[name] = [item.strip() for item in text.split(",")] if is_list else text
    return values


class Resolver:
    """Resolves intrinsic functions in resource properties.

    Parameters
    ----------
    parameters
        Values as `parameter_values` returns them.
    conditions, mappings
        The template's sections of that name.
    region, stack_name
        What the pseudo-parameters answer.
    """

    def __init__(
        self,
        parameters: Mapping[str, Any],
        conditions: Mapping[str, Any],
        mappings: Mapping[str, Any],
        *,
        region: str,
        stack_name: str,
    ) -> None:
        self._conditions = conditions
        self._mappings = mappings
        self.created: dict[str, CreatedResource] = {}
        self._references: dict[str, Any] = {
            **parameters,
            "AWS::AccountId": ACCOUNT_ID,
            "AWS::NoValue": _NO_VALUE,
            "AWS::NotificationARNs": [],
            "AWS::Partition": "aws",
            "AWS::Region": region,
            "AWS::StackId": f"arn:aws:cloudformation:{region}:{ACCOUNT_ID}:stack/{stack_name}/local",
            "AWS::StackName": stack_name,
            "AWS::URLSuffix": "amazonaws.com",
        }
        self._functions: dict[str, Callable[[Any], Any]] = {
            "Ref": self._ref,
            "Condition": self.is_true,
            "Fn::And": lambda items: all(self._truth(item) for item in items),
            "Fn::Equals": lambda pair: self.resolve(pair[0]) == self.resolve(pair[1]),
            "Fn::FindInMap": self._find_in_map,
            "Fn::GetAtt": self._get_attribute,
            "Fn::If": self._if,
            "Fn::Join": lambda pair: _text(pair[0]).join(_text(item) for item in self.resolve(pair[1])),
            "Fn::Not": lambda items: not self._truth(items[0]),
            "Fn::Or": lambda items: any(self._truth(item) for item in items),
            "Fn::Select": lambda pair: self.resolve(pair[1])[int(self.resolve(pair[0]))],
            "Fn::Split": lambda pair: self.resolve(pair[1]).split(pair[0]),
            "Fn::Sub": self._sub,
        }

    def resolve_resource(self, logical_id: str, properties: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the properties of a resource with every intrinsic function resolved.

        Parameters
        ----------
        logical_id
            Names the resource in errors.
        properties
            As the template has them.

        Returns
        -------
        dict
            Plain values; scalars from parameters are strings.

        Raises
        ------
        TemplateError
            On an unknown function or an unresolvable name; the message starts with the logical id.
        """
        try:
            return cast("dict[str, Any]", self.resolve(dict(properties or {})))
        except TemplateError as error:
            raise TemplateError(f"{logical_id}: {error}") from error
        except (IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise TemplateError(f"{logical_id}: malformed intrinsic function ({error})") from error

    def is_true(self, condition: str) -> bool:
        """Return the value of a named condition.

        Raises
        ------
        TemplateError
            When the template has no such condition.
        """
        if condition not in self._conditions:
            raise TemplateError(f"unknown condition {condition}")
        return self._truth(self._conditions[condition])

    def resolve(self, value: Any) -> Any:
        """Return the value with every intrinsic function in it resolved.

        Raises
        ------
        TemplateError
            On an unknown function or an unresolvable name.
        """
        if isinstance(value, dict):
            mapping = cast("dict[str, Any]", value)
            if len(mapping) == 1:
                (key, argument), *_ = mapping.items()
                # A policy statement also has a `Condition`; only a condition's name makes it a function.
                if key in self._functions and not (key == "Condition" and not isinstance(argument, str)):
                    return self._functions[key](argument)
                if key.startswith("Fn::"):
                    raise TemplateError(f"the local stack does not know the function {key}")
            resolved = {key: self.resolve(item) for key, item in mapping.items()}
            return {key: item for key, item in resolved.items() if item is not _NO_VALUE}
        if isinstance(value, list):
            items = [self.resolve(item) for item in cast("list[Any]", value)]
            return [item for item in items if item is not _NO_VALUE]
        return value

    def _truth(self, value: Any) -> bool:
        return self.resolve(value) is True

    def _ref(self, name: str) -> Any:
        if name in self.created:
            return self.created[name].ref
        if name in self._references:
            return self._references[name]
        raise TemplateError(f"cannot resolve Ref {name}")

    def _get_attribute(self, argument: str | list[str]) -> str:
        path = argument if isinstance(argument, str) else ".".join(argument)
        logical_id, _, attribute = path.partition(".")
        resource = self.created.get(logical_id)
        if resource is None or attribute not in resource.attributes:
            raise TemplateError(f"cannot resolve Fn::GetAtt {path}")
        return resource.attributes[attribute]

    def _if(self, argument: list[Any]) -> Any:
        condition, then, otherwise = argument
        return self.resolve(then if self.is_true(condition) else otherwise)

    def _find_in_map(self, argument: list[Any]) -> Any:
        name, first, second = (self.resolve(item) for item in argument)
        return self._mappings[name][first][second]

    def _sub(self, argument: str | list[Any]) -> str:
        template, variables = (argument, {}) if isinstance(argument, str) else (argument[0], argument[1])
        values = {name: self.resolve(value) for name, value in variables.items()}

        def substitute(match: re.Match[str]) -> str:
            is_literal, name = match[1], match[2].strip()
            if is_literal:
                return f"${{{match[2]}}}"
            if name in values:
                return _text(values[name])
            return _text(self._get_attribute(name) if "." in name else self._ref(name))

        return _SUBSTITUTION.sub(substitute, template)


def referenced_names(value: Any) -> Iterator[str]:
    """Yield every name that `Ref`, `Fn::GetAtt` and `Fn::Sub` in the value mention, pseudo-parameters included."""
    if isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from referenced_names(item)
    elif isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            if key == "Ref" and isinstance(item, str):
                yield item
            elif key == "Fn::GetAtt":
                yield item.partition(".")[0] if isinstance(item, str) else item[0]
            else:
                if key == "Fn::Sub":
                    template: str = item if isinstance(item, str) else item[0]
                    yield from (
                        match[2].strip().partition(".")[0] for match in _SUBSTITUTION.finditer(template) if not match[1]
                    )
                yield from referenced_names(item)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
