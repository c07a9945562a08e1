"""Parameters of a scripted step: what may be declared, and the check of what is given (BEHAVIOUR 4)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from engine import json_values
from engine.problems import Problem, Refused, json_path
from engine.words import Many, Shape

MAX_BYTES = 32 * 1024
"""Of `STEP_PARAMS_JSON`: one long environment string makes the start of a program fail."""

CREDENTIAL_WORDS = frozenset(
    {"password", "passwd", "pwd", "passphrase", "passcode", "secret", "secrets", "token", "credential", "credentials"}
    | {"cookie", "cookies", "jwt", "bearer", "otp", "authorization"}
    | {"apikey", "authtoken", "accesstoken", "privatekey"}
)
KINDS_OF_KEY = frozenset(
    {"api", "access", "private", "secret", "signing", "encryption", "ssh", "auth", "deploy", "gpg"}
)
ADVICE = "Declare it under the step's secrets and read SECRET_<NAME> instead."
WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


class Parameter(Shape):
    """A typed value a caller gives to a step. `default` and each of `enum` have its type."""

    type: Literal["string", "number", "integer", "boolean", "array", "object"]
    description: Annotated[str, Field(min_length=1, max_length=2000, pattern=r"\S")]
    required: bool = False
    default: JsonValue = None
    enum: Annotated[Many[JsonValue], Field(max_length=1000)] = ()

    @property
    def has_default(self) -> bool:
        return "default" in self.model_fields_set


class ParametersRefused(Refused):
    """The parameters were refused; nothing was started."""


def check(
    declared: Mapping[str, Parameter], given: Mapping[str, JsonValue], *, secrets_values: Collection[str] = ()
) -> dict[str, JsonValue]:
    """The values a step is started with: those given, and the defaults of those that are not.

    Nothing is converted: a boolean is no integer, 5.0 is none either. Raises `ParametersRefused` with everything that
    is wrong; its messages name parameters and never repeat a value.
    """
    problems = [
        Problem(json_path([name]), "unknown_parameter", f"There is no parameter {name!r}. {_names(declared)}")
        for name in given
        if name not in declared
    ]
    values: dict[str, JsonValue] = {}
    for name, parameter in declared.items():
        if name in given:
            problems.extend(_value_problems(name, parameter, given[name], secrets_values))
            values[name] = given[name]
        elif parameter.has_default:
            values[name] = parameter.default
        elif parameter.required:
            problems.append(Problem(json_path([name]), "missing_parameter", f"The parameter {name!r} is required."))
    problems.extend(_size_problems(values) if not problems else ())
    if problems:
        raise ParametersRefused(problems)
    return values


def declaration_problems(declared: Mapping[str, Parameter], root: str = "$") -> Iterator[Problem]:
    """What is wrong with a contract: asked when it is saved and again when it is loaded."""
    for name, parameter in declared.items():
        path = json_path([name], root)
        if looks_like_credential(name):
            yield Problem(path, "credential_name", f"{name!r} looks like the name of a credential. {ADVICE}")
        for index, choice in enumerate(parameter.enum):
            yield from _declared_value(f"{path}.enum[{index}]", parameter, choice)
        if parameter.has_default:
            yield from _declared_value(f"{path}.default", parameter, parameter.default)
            if parameter.enum and not json_values.contains(parameter.enum, parameter.default):
                yield Problem(f"{path}.default", "not_in_enum", "The default is not one of the enum.")


def looks_like_credential(name: str) -> bool:
    """Whether one reads a secret into this name: `api_key`, `githubToken`, `DB-PASSWORD`; not `max_tokens` or `key`."""
    words = [word.lower() for word in WORDS.findall(name)]
    if CREDENTIAL_WORDS.intersection([*words, "".join(words)]):
        return True
    return any(kind in KINDS_OF_KEY and word in {"key", "keys"} for kind, word in pairwise(words))


def holds_secret(value: JsonValue, secrets_values: Collection[str]) -> bool:
    """Whether the value, or any text inside it, is exactly a stored secret."""
    if isinstance(value, str):
        return bool(value) and value in secrets_values
    if isinstance(value, dict):
        return any(key in secrets_values or holds_secret(item, secrets_values) for key, item in value.items())
    return isinstance(value, list) and any(holds_secret(item, secrets_values) for item in value)


def _value_problems(
    name: str, parameter: Parameter, value: JsonValue, secrets_values: Collection[str]
) -> Iterator[Problem]:
    path = json_path([name])
    if not json_values.has_type(value, parameter.type):
        message = f"{name!r} must be {_a(parameter.type)}; {_a(json_values.type_name(value))} was given."
        yield Problem(path, "wrong_type", message)
    elif parameter.enum and not json_values.contains(parameter.enum, value):
        choices = ", ".join(json_values.dump(choice).decode() for choice in parameter.enum[:20])
        yield Problem(path, "not_in_enum", f"{name!r} must be one of {choices}.")
    elif holds_secret(value, secrets_values):
        yield Problem(path, "secret_value", f"{name!r} was given the value of a stored secret. {ADVICE}")


def _declared_value(path: str, parameter: Parameter, value: JsonValue) -> Iterator[Problem]:
    if not json_values.has_type(value, parameter.type):
        message = f"It must be {_a(parameter.type)}, as the type says; {_a(json_values.type_name(value))} stands here."
        yield Problem(path, "wrong_type", message)


def _size_problems(values: dict[str, JsonValue]) -> Iterator[Problem]:
    try:
        size = len(json_values.dump(values))
    except json_values.NotJson as error:
        yield Problem("$", "not_json", f"The parameters are no JSON: {error}.")
        return
    if size > MAX_BYTES:
        biggest = max(values, key=lambda name: len(json_values.dump(values[name])))
        message = f"The parameters take {size} bytes of the {MAX_BYTES} there are; {biggest!r} is the biggest."
        yield Problem(json_path([biggest]), "too_large", message)


def _names(declared: Mapping[str, Parameter]) -> str:
    return f"Known: {', '.join(declared)}." if declared else "The step takes none."


def _a(type_name: str) -> str:
    if type_name == "null":
        return "null"
    return f"an {type_name}" if type_name[0] in "aio" else f"a {type_name}"
