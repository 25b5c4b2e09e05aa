"""Runs programs of JAX on the plugin and on XLA's CPU backend, in one process, and compares the results.

    JAX_PLATFORMS=cpu,remat python programs.py            the small programs of remat-stablehlo
    JAX_PLATFORMS=cpu,remat python programs.py --large    those of flax, optax and equinox, too

Ends with code 1 if a result differs or a program fails.
"""

import argparse
import importlib.metadata
import os
import pathlib
import sys
import threading

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent / "remat-stablehlo" / "tests" / "fixtures"))

import jax
import jax.numpy as jnp
import numpy as np

# The small programs set the platform for files; here it is that of the environment.
PLATFORMS = jax.config.jax_platforms
import write  # noqa: E402

jax.config.update("jax_platforms", PLATFORMS)
FAULTS = []

if not importlib.metadata.entry_points(group="jax_plugins", name="remat"):
    # The package is not installed, which would register it.
    sys.path.insert(0, str(HERE.parent / "python"))
    from remat import jax_plugin

    jax_plugin.initialize()


def check(name, holds, message=""):
    if not holds:
        FAULTS.append(name)
        print(f"FAULT {name}: {message}", flush=True)


def on(platform, function, *args, **options):
    device = jax.devices(platform)[0]
    args = jax.device_put(args, device)
    return [np.asarray(x) for x in jax.tree.leaves(jax.jit(function, **options)(*args))]


def difference(got, expected, units):
    """The largest difference by the allowed one; results of noise are compared with the largest of the program."""
    floats = [np.asarray(e, np.float64) for e in expected if e.dtype.kind == "f" or e.dtype.name == "bfloat16"]
    most = max([np.abs(f[np.isfinite(f)]).max(initial=0) for f in floats], default=0)
    worst = 0.0
    for g, e in zip(got, expected, strict=True):
        assert g.dtype == e.dtype and g.shape == e.shape, (g.dtype, g.shape, e.dtype, e.shape)
        if e.dtype.kind not in "fV" and e.dtype.name != "bfloat16":
            worst = max(worst, 0.0 if (g == e).all() else np.inf)
            continue
        unit = units * 2.0 ** (-8 if e.dtype.name == "bfloat16" else -24)
        g, e = np.asarray(g, np.float64), np.asarray(e, np.float64)
        same = (g == e) | (np.isnan(g) & np.isnan(e))
        if same.all():
            continue
        if not np.isfinite(e[~same]).all() or not np.isfinite(g[~same]).all():
            return np.inf
        largest = np.abs(e[np.isfinite(e)]).max(initial=0)
        allowed = 1e-6 * most if largest < 1e-5 * most else unit * largest
        worst = max(worst, np.abs((g - e)[~same]).max() / max(allowed, 1e-300))
    return worst


def programs(large):
    chosen = dict(write.PROGRAMS)
    if large:
        import large_programs

        large_programs.add(write.large)
        chosen.update(write.LARGE)
    ran = 0
    for name, (function, shapes, donate, _, _) in chosen.items():
        args = [write.argument(i, shape, dtype) for i, (shape, dtype) in enumerate(shapes)]
        if name.startswith("refused"):
            try:
                on("remat", function, *args)
                check(name, False, "is not refused")
            except Exception as error:
                text = str(error)
                check(name, "UNIMPLEMENTED" in text and "not supported" in text, text)
            continue
        try:
            expected = on("cpu", function, *args)
            got = on("remat", function, *args, donate_argnums=donate)
        except Exception as error:
            check(name, False, str(error)[:600])
            continue
        units = 4096 if name in write.LARGE else 64
        worst = difference(got, expected, units)
        check(name, worst <= 1, f"differs by {worst:.1f} times what is allowed")
        ran += 1
    print(f"{ran} programs equal those of XLA", flush=True)


def arrays():
    remat = jax.devices("remat")[0]
    for dtype in [np.float32, np.float64, np.int8, np.uint16, np.int32, np.bool_, jnp.bfloat16, np.float16]:
        given = np.arange(24).reshape(2, 3, 4).astype(dtype)
        for view in [given, given.T, given[:, ::2], given[0, 0, 0], given[:0]]:
            back = np.asarray(jax.device_put(view, remat))
            check(f"array {np.dtype(dtype)}", (back == np.asarray(jax.device_put(view, jax.devices("cpu")[0]))).all())
    try:
        jax.block_until_ready(jax.device_put(np.ones(2, np.complex64), remat))
        check("complex array", False, "is not refused")
    except Exception as error:
        check("complex array", "not supported" in str(error), str(error))


def donation():
    remat = jax.devices("remat")[0]
    x = jax.device_put(np.ones(1000, np.float32), remat)
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    pointer = x.unsafe_buffer_pointer()
    y = step(x)
    check("donation", x.is_deleted() and y.unsafe_buffer_pointer() == pointer, "the memory is not used")
    try:
        np.asarray(x)
        check("deleted array", False, "is read")
    except RuntimeError as error:
        check("deleted array", "deleted" in str(error), str(error))
    # What numpy refers to stays as it is.
    x = jax.device_put(np.ones(1000, np.float32), remat)
    view = np.asarray(x)
    y = step(x)
    check("a view of a donated array", view.sum() == 1000 and np.asarray(y).sum() == 2000)


def memory():
    remat = jax.devices("remat")[0]
    x = jax.device_put(np.ones((256, 256), np.float32), remat)
    stats = jax.jit(lambda x: jnp.tanh(x @ x)).lower(x).compile().memory_analysis()
    check("memory", stats.argument_size_in_bytes == stats.output_size_in_bytes == 256 * 256 * 4, stats)


def limits():
    """A limit makes the engine compute values again; one that cannot be met is an error with the lines of the live values."""
    remat = jax.devices("remat")[0]
    x = jax.device_put(np.ones((512, 64), np.float32), remat)
    w = jax.device_put(np.eye(64, dtype=np.float32), remat)

    def loss(w, x):
        for _ in range(12):
            x = jnp.tanh(x @ w)
        return x.sum()

    def compiled(limit):
        if limit:
            os.environ["REMAT_MEMORY_LIMIT"] = limit
        try:
            return jax.jit(jax.grad(loss)).lower(w, x).compile()
        finally:
            os.environ.pop("REMAT_MEMORY_LIMIT", None)

    free, limited = compiled(None), compiled("1.3MiB")
    sizes = [program.memory_analysis().temp_size_in_bytes for program in (free, limited)]
    check("a limit", sizes[1] < 0.8 * sizes[0], sizes)
    check("values within a limit", (np.asarray(free(w, x)) == np.asarray(limited(w, x))).all())
    try:
        compiled("100KiB")
        check("a limit that is too low", False, "is met")
    except Exception as error:
        text = str(error)
        check("a limit that is too low", "RESOURCE_EXHAUSTED" in text and "programs.py:" in text, text)


def threads():
    remat = jax.devices("remat")[0]
    f = jax.jit(lambda x: jnp.sin(x @ x).sum())
    x = jax.device_put(np.eye(64, dtype=np.float32), remat)
    expected = float(f(x))
    results = []
    def work():
        for _ in range(50):
            results.append(float(f(x)))
    all_threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in all_threads:
        thread.start()
    for thread in all_threads:
        thread.join()
    check("threads", results == [expected] * 400, "results differ between threads")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--large", action="store_true")
    options = parser.parse_args()
    check("the default is XLA's", jax.default_backend() == "cpu")
    programs(options.large)
    arrays()
    donation()
    memory()
    limits()
    threads()
    print(f"JAX {jax.__version__}: {len(FAULTS)} faults", flush=True)
    sys.exit(1 if FAULTS else 0)
