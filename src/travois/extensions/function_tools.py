"""`@tool`: an ordinary typed function as a tool of the model."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import cached_property, partial, update_wrapper
from typing import Any, Generic, Literal, ParamSpec, TypeVar, cast, get_type_hints, overload

import anyio.to_thread
import msgspec

from travois.core.errors import UserError
from travois.extensions.function_schema import (
    FunctionSchema,
    describe_function,
    encode_value,
)
from travois.permissions.access import Access
from travois.ports.tool import AnyTool, CallLocation, Tool, ToolError, ToolOutcome, text_outcome
from travois.ports.world import Env

ParamsT = ParamSpec("ParamsT")
ReturnT = TypeVar("ReturnT")

PathSource = str | tuple[str, ...] | Callable[[Mapping[str, Any]], object]
"""The names of parameters that hold paths or addresses, or a function of all arguments."""
ErrorPolicy = Literal["tell_model", "stop_turn"]
ToolFailureSink = Callable[[str, Exception], None]
"""Hears of an exception, other than `ToolError`, that a function tool raised."""
TOOL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
UNDECLARED = "the program that drives the session"
"""What an undeclared tool is said to use when somebody is asked about it."""
EMPTY_RESULT = "Done."


class ToolContext(msgspec.Struct, frozen=True):
    """What a function tool can learn of the call that runs it."""

    cwd: str
    """The folder that the session works in at the moment."""
    call_id: str
    report: Callable[[str], None]
    """Shows progress to whoever watches; the model does not see it."""


class ToolSettings(msgspec.Struct, frozen=True):
    """How a function tool presents itself, and what it declares to touch."""

    name: str = ""
    description: str = ""
    reads: PathSource | None = None
    writes: PathSource | None = None
    network: PathSource | None = None
    safe: bool = False
    on_error: ErrorPolicy = "tell_model"

    @property
    def is_declared(self) -> bool:
        """True if the author said what a call touches."""
        return self.safe or not self.reads is self.writes is self.network is None


class FunctionTool(Generic[ParamsT, ReturnT]):
    """A function that the model can call. It is still the function: calling it runs it."""

    def __init__(self, function: Callable[ParamsT, ReturnT], settings: ToolSettings) -> None:
        self.function = function
        self.settings = settings
        self.name: str = settings.name or getattr(function, "__name__", "")
        if not TOOL_NAME.fullmatch(self.name):
            fix = "Use letters, digits, _ and -, at most 64 of them: @tool(name=…)."
            raise UserError(f"{self.name!r} cannot be the name of a tool", fix=fix)
        self._check_sources()
        update_wrapper(cast("Callable[ParamsT, ReturnT]", self), function)

    def __call__(self, *args: ParamsT.args, **kwargs: ParamsT.kwargs) -> ReturnT:
        """Run the function itself."""
        return self.function(*args, **kwargs)

    @cached_property
    def context_name(self) -> str:
        """The name of the parameter that takes the `ToolContext`; empty if there is none."""
        hints = get_type_hints(self.function)
        return next((name for name, shape in hints.items() if shape is ToolContext), "")

    @cached_property
    def schema(self) -> FunctionSchema:
        """The schema of the parameters, and the description."""
        return describe_function(self.function, skip=self.context_name)

    @property
    def description(self) -> str:
        """The description for the model."""
        return self.settings.description or self.schema.description

    def _check_sources(self) -> None:
        """Refuse a `reads`, `writes` or `network` that names no parameter."""
        known = inspect.signature(self.function).parameters
        for source in (self.settings.reads, self.settings.writes, self.settings.network):
            names = () if source is None or callable(source) else _as_names(source)
            if unknown := [name for name in names if name not in known]:
                what = f"{self.name} has no parameter {unknown[0]!r}"
                raise UserError(what, fix="reads=, writes= and network= name parameters.")


AnyFunctionTool = FunctionTool[..., Any]


class FunctionToolCall(msgspec.Struct, frozen=True):
    """How the calls of a function tool are judged and run in one session."""

    tool: AnyFunctionTool
    on_failure: ToolFailureSink

    def list_accesses(self, args: dict[str, Any], here: CallLocation) -> tuple[Access, ...]:
        """List what a call touches, as its author declared it."""
        settings = self.tool.settings
        self._convert_or_refuse(args)
        if not settings.is_declared:
            return (Access("call", UNDECLARED),)
        return (
            *(Access("read", _locate_argument(one, here)) for one in _named(settings.reads, args)),
            *(
                Access("write", _locate_argument(one, here))
                for one in _named(settings.writes, args)
            ),
            *(Access("net", _as_url(one)) for one in _named(settings.network, args)),
        )

    def _convert_or_refuse(self, args: dict[str, Any]) -> dict[str, Any]:
        try:
            return self.tool.schema.convert_arguments(args)
        except (ValueError, RecursionError) as error:
            raise ToolError(f"{self.tool.name} was not run: {error}") from None

    async def run(self, args: dict[str, Any], env: Env, call: str) -> ToolOutcome:
        """Call the function; what it returns is the result."""
        values = self._convert_or_refuse(args)
        if self.tool.context_name:
            values[self.tool.context_name] = ToolContext(env.cwd, call, env.progress)
        with _ReportedFailure(self.tool.name, self.on_failure):
            found = await call_function(partial(self.tool.function, **values))
            return text_outcome(encode_value(found) or EMPTY_RESULT)

    def summarize(self, args: dict[str, Any]) -> str:
        """Return a call in one line."""
        shown = ", ".join(f"{name}={value!r}" for name, value in args.items())
        return f"{self.tool.name}({shown[:200]})"


def build_function_tool(function: AnyFunctionTool, on_failure: ToolFailureSink) -> AnyTool:
    """Build a function tool for one session, which hears of exceptions."""
    if not function.description:
        fix = "Write a docstring, or @tool(description=…)."
        raise UserError(f"The tool {function.name} has no description", fix=fix)
    call = FunctionToolCall(function, on_failure)
    return Tool[Any](
        name=function.name,
        description=function.description,
        args=dict[str, Any],
        access=call.list_accesses,
        run=call.run,
        summary=call.summarize,
        schema=function.schema.schema,
    )


class _ReportedFailure:
    """A block whose exceptions, but for `ToolError`, are reported and go on."""

    def __init__(self, tool: str, on_failure: ToolFailureSink) -> None:
        self._tool = tool
        self._on_failure = on_failure

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, ToolError):
            self._on_failure(self._tool, error)


async def call_function(function: Callable[[], object]) -> object:
    """Call a function: one that is not async in a thread, so that it may block."""
    if inspect.iscoroutinefunction(getattr(function, "func", function)):
        return await cast("Awaitable[object]", function())
    found = await anyio.to_thread.run_sync(function, abandon_on_cancel=True)
    return await found if inspect.isawaitable(found) else found


def _as_names(source: str | tuple[str, ...]) -> tuple[str, ...]:
    return (source,) if isinstance(source, str) else tuple(source)


def _named(source: PathSource | None, args: dict[str, Any]) -> Iterator[str]:
    """Yield the paths or addresses that a declaration names in these arguments."""
    if source is None:
        return
    found = source(args) if callable(source) else [args.get(name) for name in _as_names(source)]
    for one in _flatten(found):
        if one is not None and one != "":
            yield os.fspath(cast("str | os.PathLike[str]", one))


def _flatten(value: object) -> Iterator[object]:
    if isinstance(value, list | tuple):
        for one in cast("list[object]", value):
            yield from _flatten(one)
    else:
        yield value


def _locate_argument(path: str, here: CallLocation) -> str:
    return os.path.join(here.cwd, os.path.expanduser(path))


def _as_url(address: str) -> str:
    return address if "://" in address else f"https://{address}/"


@overload
def tool(function: Callable[ParamsT, ReturnT], /) -> FunctionTool[ParamsT, ReturnT]: ...


@overload
def tool(
    *,
    name: str = "",
    description: str = "",
    reads: PathSource | None = None,
    writes: PathSource | None = None,
    network: PathSource | None = None,
    safe: bool = False,
    on_error: ErrorPolicy = "tell_model",
) -> Callable[[Callable[ParamsT, ReturnT]], FunctionTool[ParamsT, ReturnT]]: ...


def tool(
    function: Callable[..., object] | None = None,
    /,
    *,
    name: str = "",
    description: str = "",
    reads: PathSource | None = None,
    writes: PathSource | None = None,
    network: PathSource | None = None,
    safe: bool = False,
    on_error: ErrorPolicy = "tell_model",
) -> Any:
    """Make a tool of a typed function. Its annotations and docstring are what the model reads.

    `reads`, `writes` and `network` name the parameters that hold paths, and addresses or host
    names: permission rules then decide as for the built-in tools. `safe=True` says that a call
    touches nothing that needs a permission. A tool that says neither asks before each call.
    """
    settings = ToolSettings(name, description, reads, writes, network, safe, on_error)

    def wrap_function(function: Callable[..., object]) -> FunctionTool[..., object]:
        return FunctionTool(function, settings)

    return wrap_function if function is None else wrap_function(function)
