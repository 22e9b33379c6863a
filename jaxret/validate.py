"""One way to refuse a setting: the name, the value, the allowed range."""

from jax.core import Tracer


def require(name: str, value, allowed: str, holds) -> None:
    """Raises ValueError unless ``holds(value)``.

    Traced values pass: a grid of settings is checked before it enters a program.
    """
    if isinstance(value, Tracer):
        return
    if not holds(value):
        raise ValueError(f"{name} must be {allowed}, got {value}")
