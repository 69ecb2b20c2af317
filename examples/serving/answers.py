"""Parse a request's body and answer it: the same for every server around an `Engine`.

Each answer is a status, a dict for JSON and a dict of headers; a wrong request gets 400 and the reason.
Nothing here depends on Starlette, uvicorn or Ray.
"""

from __future__ import annotations

import json
import logging
import traceback
from typing import Any

from task import TextTask

from acl.serving import Engine, Refused

__all__ = ["BODY_BYTES", "Answer", "answer", "parsed", "too_large"]

log = logging.getLogger("serving")
BODY_BYTES = 1 << 16                    # most bytes of a request: 512 bytes of text, however they are escaped
Answer = tuple[int, dict[str, Any], dict[str, str]]


class WrongRequest(ValueError):
    """Raised with the reason for a body that is not a valid request."""


def parsed(body: bytes) -> Any:
    """Return the JSON of a body, or, if it is not JSON, a `WrongRequest` with the reason, which `answer` refuses."""
    try:
        return json.loads(body)
    except RecursionError:
        return WrongRequest("the JSON is nested too deeply")
    except ValueError as error:
        return WrongRequest(f"no JSON: {error}")


def text_of(content: Any) -> str:
    """Return the text to embed."""
    if isinstance(content, WrongRequest):
        raise content
    if not isinstance(content, dict):
        raise WrongRequest(f"a JSON object was expected, not {type(content).__name__}")
    if "input" not in content:
        raise WrongRequest("'input' is missing")
    text = content["input"]
    if not isinstance(text, str):
        raise WrongRequest(f"input must be a string, not {type(text).__name__}")
    return text


def too_large() -> Answer:
    return 413, {"error": f"expected a body of at most {BODY_BYTES} bytes"}, {"Connection": "close"}


async def answer(engine: Engine, task: TextTask, content: Any) -> Answer:
    """Answer a request for one text; it waits for its batch without holding a thread."""
    try:
        item = task.item(text_of(content))
    except ValueError as error:
        return 400, {"error": f"expected {{'input': text}}: {error}"}, {}
    try:
        result = await engine.ask(item)
    except Refused as refused:
        after = {} if refused.after is None else {"Retry-After": str(max(1, round(refused.after)))}
        return refused.status, {"error": refused.reason}, after
    except Exception as error:
        log.error("a request failed: %s", "".join(traceback.format_exception_only(error)).strip())
        return 500, {"error": f"{type(error).__name__}: {error}"}, {}
    return 200, {"embedding": result.value, "length": len(item), "batch": result.batch}, {}
