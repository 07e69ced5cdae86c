"""Files that a host asks for: it gets what the model may read unasked, and nothing besides."""

from __future__ import annotations

from base64 import b64encode
from codecs import getincrementaldecoder

import msgspec

from travois.core.content import Call
from travois.core.errors import Fault
from travois.core.facts import Changed
from travois.engine.permission_gate import granted
from travois.engine.tool_calls import CallEnv, Unfit, understand
from travois.headless.control.driven_session import Driven
from travois.headless.control.lines import Request
from travois.headless.json_shapes import Object
from travois.ports.tool import Refusal
from travois.ports.world import digest
from travois.tools.paths import absolute, existing
from travois.tools.read import WHOLE

WHY = "no rule lets Read do that without a question"


async def read(driven: Driven, request: Request) -> Object:
    """What is in a file."""
    path, env, size = await _judged(driven, request.path)
    most = WHOLE if request.max_bytes is None else max(0, min(WHOLE, request.max_bytes))
    data = await env.files.read(path, limit=most)
    cut: Object = {"truncated": True} if size > len(data) else {}
    if request.encoding == "base64":
        return {"contents": b64encode(data).decode(), "absPath": path, "encoding": "base64", **cut}
    try:
        text = getincrementaldecoder("utf-8")().decode(data, final=not cut)
    except UnicodeDecodeError:
        raise Fault(f"{path} is not UTF-8", fix="Ask for it with encoding base64.") from None
    return {"contents": text, "absPath": path, **cut}


async def seed(driven: Driven, request: Request) -> Object:
    """Take the host's word that the model knows a file, as far as it has not changed since."""
    path, env, size = await _judged(driven, request.path)
    if size > WHOLE:
        raise Fault(f"{path} is too large to be known as a whole")
    data = await env.files.read(path)
    stat = await env.files.stat(path)
    if stat is None or int(stat.modified * 1000) > request.mtime:
        raise Fault(f"{path} changed since", fix="Let the model read it.")
    driven.session.crew.agent.session.append(Changed(f"seen:{path}", digest(data)))
    return {}


async def _judged(driven: Driven, path: str) -> tuple[str, CallEnv, int]:
    """A file that Read may open, the world as Read would see it, and the file's size."""
    agent = driven.session.crew.agent
    asked = Call("host", "Read", msgspec.json.encode({"file_path": path}).decode())
    ready = understand(agent, asked)
    if isinstance(ready, Unfit):
        raise Fault(f"{path} cannot be read", why=ready.why)
    if granted(agent, ready) is None:
        raise Fault(f"{path} may not be read", why=WHY)
    env = CallEnv(agent, ready, None)
    whole = absolute(path, env.cwd)
    try:
        return whole, env, (await existing(whole, env)).size
    except Refusal as refusal:
        raise Fault(f"{path} cannot be read", why=str(refusal)) from None
