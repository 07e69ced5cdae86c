"""Typed functions as schemas: from annotations and a docstring to JSON schema, and back to values.

msgspec knows dataclasses, TypedDicts and its own structs. A class with `model_json_schema` and
`model_validate`, as pydantic's models have, speaks for itself; pydantic is never imported here.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Protocol, cast, get_args, get_origin, get_type_hints

import msgspec

from travois.core.errors import UserError
from travois.core.json import as_object
from travois.providers.json_schema import build_json_schema, inline_json_schema

ARGS_HEADING = re.compile(r"^\s*(?:Args|Arguments|Parameters):\s*$")
ARG_LINE = re.compile(r"^\s+(\*{0,2}\w+)\s*(?:\([^)]*\))?:\s*(\S.*)$")
PARAM_FIELD = re.compile(r"^\s*:param\s+(?:[^:]*\s)?(\w+):\s*(\S.*)$")
SECTION_HEADING = re.compile(r"^\s*(?:Args|Arguments|Parameters|Returns|Raises|Yields|Example\w*):")


class SelfDescribingModel(Protocol):
    """A class that knows its JSON schema and validates values, as a pydantic model does."""

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        """Return the JSON schema of the class."""
        ...

    @classmethod
    def model_validate(cls, obj: object) -> object:
        """Return an instance made of plain values; raises ValueError."""
        ...


class FunctionSchema(msgspec.Struct, frozen=True):
    """The parameters of a function as a struct type, and what its docstring says."""

    args: type[msgspec.Struct]
    schema: str
    description: str

    def convert_arguments(self, args: Mapping[str, object]) -> dict[str, Any]:
        """Convert JSON arguments to the function's own types; raises ValueError."""
        found = convert_value(args, self.args)
        return {name: getattr(found, name) for name in self.args.__struct_fields__}


def describe_function(function: Callable[..., object], *, skip: str = "") -> FunctionSchema:
    """Read a function's schema from its annotations and docstring; `skip` is no argument."""
    name = getattr(function, "__name__", "the function")
    summary, told = parse_docstring(inspect.getdoc(function) or "")
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        fix = "Import the type at the top of the module, not under TYPE_CHECKING."
        raise UserError(f"The types of {name} cannot be read", why=str(error), fix=fix) from None
    fields = [
        _describe_parameter(one, hints, told.get(one.name, ""), of=name)
        for one in inspect.signature(function).parameters.values()
        if one.name != skip
    ]
    args = msgspec.defstruct(f"{name}_args", fields, kw_only=True, frozen=True)
    return FunctionSchema(args, _encode_schema(args, of=name), summary)


def _encode_schema(args: type[msgspec.Struct], *, of: str) -> str:
    try:
        return build_json_schema(args, hook=_describe_foreign_type)
    except (TypeError, NotImplementedError, RecursionError) as error:
        fix = "Use plain types, dataclasses, TypedDicts, msgspec structs or pydantic models."
        raise UserError(f"{of} has a parameter without a schema", why=str(error), fix=fix) from None


def _describe_parameter(
    parameter: inspect.Parameter, hints: Mapping[str, Any], told: str, *, of: str
) -> tuple[str, Any, Any]:
    """Return a parameter as the field of a struct: its name, type and default."""
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        fix = "Name each parameter, so that the model knows them."
        raise UserError(f"{of} takes {parameter}, which has no schema", fix=fix)
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise UserError(f"{of} takes {parameter.name} by position only", fix="Remove the `/`.")
    if parameter.name not in hints:
        fix = f"Write for example `{parameter.name}: str`."
        raise UserError(f"The parameter {parameter.name} of {of} has no type", fix=fix)
    shape = _add_description(hints[parameter.name], told)
    default = msgspec.NODEFAULT if parameter.default is parameter.empty else parameter.default
    if isinstance(default, list | dict | set):
        copied = cast("list[object]", default)
        return parameter.name, shape, msgspec.field(default_factory=copied.copy)
    return parameter.name, shape, default


def _add_description(shape: Any, told: str) -> Any:
    """Turn `Annotated[T, "text"]`, or the docstring's line, into a described type."""
    texts: list[str] = []
    others: list[object] = []
    for one in get_args(shape)[1:] if get_origin(shape) is Annotated else ():
        (texts if isinstance(one, str) else others).append(one)
    inner = get_args(shape)[0] if get_origin(shape) is Annotated else shape
    text = texts[0] if texts else told
    metas = [one for one in others if isinstance(one, msgspec.Meta)]
    if text and not any(meta.description for meta in metas):
        metas.append(msgspec.Meta(description=text))
    for meta in metas:
        inner = Annotated[inner, meta]
    return inner


def parse_docstring(doc: str) -> tuple[str, dict[str, str]]:
    """Return the text above the sections of a docstring, and what it says of each parameter."""
    lines, told = doc.splitlines(), dict[str, str]()
    end = next(
        (n for n, line in enumerate(lines) if SECTION_HEADING.match(line) or ":param" in line),
        len(lines),
    )
    told |= {found[1]: found[2] for line in lines if (found := PARAM_FIELD.match(line))}
    told |= dict(_google_parameters(lines))
    return "\n".join(lines[:end]).strip(), told


def _google_parameters(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the parameters of an `Args:` section; further lines belong to the one above."""
    start = next((n for n, line in enumerate(lines) if ARGS_HEADING.match(line)), len(lines))
    name, texts = "", list[str]()
    for line in lines[start + 1 :]:
        if line.strip() and not line[0].isspace():
            break
        if found := ARG_LINE.match(line):
            if name:
                yield name, " ".join(texts)
            name, texts = found[1].lstrip("*"), [found[2]]
        elif line.strip():
            texts.append(line.strip())
    if name:
        yield name, " ".join(texts)


# One type, as a schema and from plain values.


def describe_type(shape: Any) -> dict[str, Any]:
    """Return the JSON schema of a type; raises `UserError` if it has none."""
    if is_self_describing(shape):
        return _describe_foreign_type(shape)
    try:
        return inline_json_schema(msgspec.json.schema(shape, schema_hook=_describe_foreign_type))
    except (TypeError, NotImplementedError, RecursionError) as error:
        fix = "Use a msgspec struct, dataclass, TypedDict, pydantic model, or a JSON schema."
        raise UserError(f"{shape!r} has no JSON schema", why=str(error), fix=fix) from None


def convert_value(value: object, shape: Any) -> Any:
    """Convert plain values to a type; raises ValueError with words for the model."""
    return msgspec.convert(value, shape, dec_hook=_validate_foreign, strict=True)


def encode_value(value: object) -> str:
    """Encode what a function returned as text for the model."""
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value, enc_hook=_dump_foreign).decode()


def is_self_describing(shape: object) -> bool:
    """Return whether a class describes and validates itself, as pydantic's models do."""
    return isinstance(shape, type) and hasattr(shape, "model_json_schema")


def _describe_foreign_type(shape: type) -> dict[str, Any]:
    if not is_self_describing(shape):
        raise NotImplementedError(f"{shape!r} is not supported")
    return inline_json_schema(cast("type[SelfDescribingModel]", shape).model_json_schema())


def _validate_foreign(shape: type, value: object) -> object:
    if not is_self_describing(shape):
        raise NotImplementedError(f"{shape!r} is not supported")
    return cast("type[SelfDescribingModel]", shape).model_validate(value)


def _dump_foreign(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        return str(value)
    return as_object(dump(mode="json"))
