"""Registers remat's native engine as the platform `remat` of JAX.

JAX calls `initialize` when it looks for plugins. The platform is used only when it is asked for, by `JAX_PLATFORMS=remat` or
`jax.devices("remat")`: its priority is below that of every other.
"""

import os

from . import lowering
from .library import library_path

# Below that of cpu, which is 0.
PRIORITY = -100


def initialize():
    """Called by JAX, once, when it looks for plugins. Without the library, it complains only to who asks for the platform."""
    from jax._src import xla_bridge

    platforms = os.environ.get("JAX_PLATFORMS", "").split(",")
    try:
        library = library_path()
    except FileNotFoundError:
        if "remat" in platforms:
            raise
        return
    xla_bridge.register_plugin("remat", priority=PRIORITY, library_path=library)
    _allow_donation()
    lowering.register()


def _allow_donation():
    """Lets JAX donate arguments on this platform: it keeps a list of those that can, to which plugins have no other way."""
    from jax._src.interpreters import mlir

    platforms = getattr(mlir, "_platforms_with_donation", None)
    if isinstance(platforms, list) and "remat" not in platforms:
        platforms.append("remat")
