import builtins

from acl.inside._oom import OomReport

__all__ = [
    "AclError",
    "DeviceLostError",
    "InvalidArgumentError",
    "NotSupportedError",
    "OutOfMemoryError",
    "TimeoutError",
    "error_for",
    "error_name",
]

HINTS: dict[int, str]
CLASSES: dict[int, type[AclError]]

class AclError(RuntimeError):
    code: int
    name: str
    function: str
    message: str
    hint: str
    def __init__(self, code: int, function: str, message: str = "") -> None: ...

class OutOfMemoryError(AclError, MemoryError):
    report: OomReport | None
    def __init__(
        self, code: int, function: str, message: str = "", report: OomReport | None = None
    ) -> None: ...

class NotSupportedError(AclError): ...
class InvalidArgumentError(AclError, ValueError): ...
class DeviceLostError(AclError): ...
class TimeoutError(AclError, builtins.TimeoutError): ...

def error_name(code: int) -> str: ...
def error_for(code: int, function: str, message: str | None = None) -> AclError: ...
