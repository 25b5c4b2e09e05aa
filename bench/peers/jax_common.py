"""What scripts share that run programs on remat's plugin and on XLA in one process."""

import importlib.metadata
import pathlib
import sys

import jax

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def containing(text, names):
    """The names that contain this text. It is an error if none does, so that a mistake in it does not pass for a run."""
    names = list(names)
    chosen = [name for name in names if text in name]
    if not chosen:
        sys.exit(f"nothing contains `{text}`; there are\n  " + "\n  ".join(names))
    return chosen


def registered():
    """Registers the plugin, whose library REMAT_PJRT_LIBRARY names unless the wheel is installed, and gives the module with the programs of others."""
    platforms = jax.config.jax_platforms
    sys.path.insert(0, str(ROOT / "crates/remat-stablehlo/tests/fixtures"))
    import large_programs
    import write

    # That module sets the platform for fixtures; here it is that of the environment.
    jax.config.update("jax_platforms", platforms)
    if not importlib.metadata.entry_points(group="jax_plugins", name="remat"):
        sys.path.insert(0, str(ROOT / "crates/remat-pjrt/python"))
        from remat import jax_plugin

        jax_plugin.initialize()
    large_programs.add(write.large)
    return write
