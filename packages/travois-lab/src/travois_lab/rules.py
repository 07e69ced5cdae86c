"""What a request may ask of a model: the rules that the shape of its JSON cannot tell."""

from __future__ import annotations

from collections.abc import Iterator

from travois_lab.betas import locked
from travois_lab.objects import Json, inner, is_object, listed
from travois_lab.positions import Survey, as_blocks
from travois_lab.profiles import EFFORTS, Profile
from travois_lab.refusal import Refusal, coded

SAMPLING = ("temperature", "top_p", "top_k")
LATEST = "2026-10-21"
VERSIONS = ("2023-06-01", LATEST)
MESSAGES = 100_000
PREFILL = "does not support assistant message prefill"
EXTRA = "Extra inputs are not permitted"


def check_version(version: str) -> None:
    """Refuse a request without a version, or with one that never was."""
    if not version:
        raise Refusal("anthropic-version: header is required")
    if version not in VERSIONS:
        raise Refusal(f"anthropic-version: {version!r} is not a valid version")


def excuse(
    found: list[str], body: Json, *, profile: Profile, version: str, counting: str, strict: str
) -> list[str]:
    """What the validator found, less what this model, version or endpoint allows."""
    if not found:
        return []
    excused: list[str] = ["_tok: " + EXTRA]
    if version != LATEST:
        excused += [f"{name}: {EXTRA}" for name in SAMPLING]
    if profile.prefill or "compaction" in body:
        excused.append(PREFILL)
    if "compaction" in body:
        excused.append("`tool_use` ids were found without")
    if counting == "yes":
        excused += ["max_tokens: Field required"]
    if strict == "no":
        excused.append(EXTRA)
    if inner(body, "thread").get("type") == "continue":
        excused += ["unexpected `tool_use_id`", 'must use the "user" role']
    return [fault for fault in found if not any(word in fault for word in excused)]


def unfit(body: Json, *, profile: Profile, betas: tuple[str, ...], found: Survey) -> Iterator[str]:
    """What this model, or the set of betas, does not allow."""
    yield from locked(body, betas)
    yield from _limits(body, profile, found.images)
    yield from _thinking(body, profile)
    yield from _choice(body, profile)
    if "system" in found.roles:
        yield from _system_messages(body, profile)
    if body.get("max_tokens") == 0:
        yield from _prewarm(body)


def _limits(body: Json, profile: Profile, images: int) -> Iterator[str]:
    limit = body.get("max_tokens")
    if isinstance(limit, int) and limit > profile.output:
        yield (
            f"max_tokens: {limit} > {profile.output}, which is the maximum allowed number of "
            f"output tokens for {profile.id}"
        )
    if len(listed(body, "messages")) > MESSAGES:
        yield f"messages: at most {MESSAGES} messages are allowed"
    allowed = 600 if profile.window > 200_000 else 100
    if images > allowed:
        yield f"Too many images and documents: {images} > {allowed}"


def _thinking(body: Json, profile: Profile) -> Iterator[str]:
    thinking = inner(body, "thinking")
    effort = inner(body, "output_config").get("effort")
    if effort is not None and effort not in EFFORTS:
        yield f"output_config.effort: Input should be one of {', '.join(EFFORTS)}"
        return
    kind = thinking.get("type")
    if kind is None:
        return
    if kind not in profile.thinking:
        yield (
            f'"thinking.type.{kind}" is not supported for this model. '
            f"Use one of: {', '.join(profile.thinking)}."
        )
    if kind == "enabled":
        yield from _budget(thinking, body.get("max_tokens"))
    quiet = kind in ("disabled", "between_tools")
    if quiet and effort and EFFORTS.index(effort) > EFFORTS.index(profile.effort_disabled):
        yield f'output_config.effort: "{effort}" is not supported with thinking.type "{kind}"'
    if kind == "between_tools":
        for field in ("display", "budget_tokens", "block_binding"):
            if field in thinking:
                yield f"thinking.between_tools.{field}: {EXTRA}"


def _budget(thinking: Json, limit: object) -> Iterator[str]:
    budget = thinking.get("budget_tokens")
    if not isinstance(budget, int):
        yield "thinking.enabled.budget_tokens: Field required"
    elif budget < 1024:
        yield "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
    elif isinstance(limit, int) and budget >= limit:
        yield "`max_tokens` must be greater than `thinking.budget_tokens`."


def _choice(body: Json, profile: Profile) -> Iterator[str]:
    wanted = inner(body, "tool_choice")
    choice = wanted.get("type")
    if choice in ("any", "tool") and not profile.forced_choice:
        yield 'tool_choice: type "tool" and "any" are not supported for this model.'
    names = [tool.get("name") for tool in listed(body, "tools")]
    if choice == "tool" and wanted.get("name") not in names:
        yield f"Tool '{wanted.get('name')}' not found in provided tools"
    if choice in ("any", "tool") and not names:
        yield "tool_choice: tools are required"


def _system_messages(body: Json, profile: Profile) -> Iterator[str]:
    for i, message in enumerate(listed(body, "messages")):
        if not is_object(message) or message.get("role") != "system":
            continue
        if not profile.system_messages:
            yield f"messages.{i}: role 'system' is not supported on this model"
        if message.get("clear_at") not in (None, "next_user_message"):
            yield f"messages.{i}.clear_at: Input should be 'next_user_message'"
        marked = any("cache_control" in block for block in as_blocks(message.get("content")))
        if message.get("clear_at") and marked:
            yield f"messages.{i}: cache_control cannot be set together with clear_at"


def _prewarm(body: Json) -> Iterator[str]:
    """What cannot go with a request for no tokens."""
    if inner(body, "thinking").get("type") == "enabled":
        yield "max_tokens: 0 cannot be combined with thinking.type enabled"
    if "format" in inner(body, "output_config"):
        yield "max_tokens: 0 cannot be combined with output_config.format"
    if inner(body, "tool_choice").get("type") in ("any", "tool"):
        yield "max_tokens: 0 cannot be combined with a forced tool_choice"
    if "compaction" in body:
        yield "max_tokens: 0 cannot be combined with compaction"


def check_tool_changes(body: Json) -> None:
    """Refuse changes of tools that name a tool nobody has declared, or one name twice at once."""
    known = {str(tool.get("name")) for tool in listed(body, "tools")}
    for i, message in enumerate(listed(body, "messages")):
        if message.get("role") != "system":
            continue
        here: set[str] = set()
        for j, block in enumerate(as_blocks(message.get("content"))):
            tool = inner(block, "tool")
            where = f"messages.{i}.content.{j}"
            if tool.get("type") == "tool_definition":
                _define(str(inner(tool, "definition").get("name")), here, where)
            elif tool.get("type") == "tool_reference" and tool.get("name") not in known | here:
                message_ = f"{where}: tool reference {tool.get('name')!r} does not resolve"
                raise coded(message_, "tool_reference_unresolved")
        known |= here


def _define(name: str, here: set[str], where: str) -> None:
    if name in here:
        raise coded(f"{where}: the tool {name!r} is defined twice", "tool_name_conflict")
    here.add(name)
