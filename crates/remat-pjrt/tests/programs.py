"""Runs programs of JAX on the plugin and on XLA's CPU backend, in one process, and compares the results.

    JAX_PLATFORMS=cpu,remat python programs.py            the small programs of remat-stablehlo
    JAX_PLATFORMS=cpu,remat python programs.py --large    those of flax, optax and equinox, too

Ends with code 1 if a result differs or a program fails.
"""

import argparse
import functools
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
    for name, (function, shapes, donate, _, x64) in chosen.items():
        jax.config.update("jax_enable_x64", x64)
        args = [write.argument(i, shape, dtype) for i, (shape, dtype) in enumerate(shapes)]
        if name.startswith("refused"):
            try:
                on("remat", function, *args)
                check(name, False, "is not refused")
            except Exception as error:
                text = str(error)
                by_jax = isinstance(error, NotImplementedError)
                check(name, (by_jax or "UNIMPLEMENTED" in text) and "not supported" in text, text)
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
    jax.config.update("jax_enable_x64", False)
    print(f"{ran} programs equal those of XLA", flush=True)


def attention():
    """Attention that is written out, where something is not ordinary: rows without keys, numbers that are not finite, empty arrays."""
    random = np.random.default_rng(5)

    def draw(*shape):
        return random.standard_normal(shape, dtype=np.float32)

    def plain(q, k, v, mask=None, fill=-np.inf):
        scores = jnp.einsum("bthd,bshd->bhts", q, k) / np.sqrt(q.shape[-1])
        scores = scores if mask is None else jnp.where(mask, scores, fill)
        return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), v)

    def causal(q, k, v):
        return plain(q, k, v, jnp.tril(jnp.ones((q.shape[1], k.shape[1]), bool)))

    def loop(q, k, v):
        return jax.lax.scan(lambda q, _: (plain(q, k, v), q.sum()), q, length=3)

    q, k, v = draw(2, 70, 3, 16), draw(2, 130, 3, 16), draw(2, 130, 3, 16)
    small = [x[:, :3] for x in (q, k, v)]
    rows = random.random((2, 1, 1, 130)) < 0.5
    rows[0] = False
    cases = {"plain": (plain, q, k, v), "causal": (causal, q, k, v), "loop": (loop, q, k, v), "one query": (plain, q[:, :1], k, v)}
    for fill in (-np.inf, np.finfo(np.float32).min, -1e30, -1e4):
        cases[f"filled with {fill}"] = (functools.partial(plain, fill=np.float32(fill)), q, k, v, rows)
    for number in (np.nan, np.inf, -np.inf):
        for i, name in enumerate(["query", "key", "value"]):
            for which, arrays in {"small": small, "large": (q, k, v)}.items():
                changed = [x.copy() for x in arrays]
                changed[i][0, 1, 0, 2] = number
                cases[f"{number} in a {which} {name}"] = (plain, *changed)
    cases["no batch"] = (plain, q[:0], k[:0], v[:0])
    cases["no queries"] = (plain, q[:, :0], k, v)
    cases["no features"] = (plain, q[..., :1], k[..., :1], v[..., :0])
    for name, (function, *args) in cases.items():
        worst = difference(on("remat", function, *args), on("cpu", function, *args), 64)
        check(f"attention, {name}", worst <= 1, f"differs by {worst:.1f} times what is allowed")
    args = jax.device_put([draw(1, 512, 4, 16) for _ in range(3)], jax.devices("remat")[0])
    temporaries = jax.jit(causal).lower(*args).compile().memory_analysis().temp_size_in_bytes
    check("attention without scores", temporaries < 4 * 512 * 512, temporaries)
    print(f"{len(cases)} cases of attention equal those of XLA", flush=True)


def bits():
    """Random bits of a state are those of XLA, and so is the state after them."""
    jax.config.update("jax_enable_x64", True)
    states = [np.array(words, np.uint32) for words in ([1, 2, 3, 4], [5, 6, 2**32 - 2, 2**32 - 1])] + [np.array([3, 2**64 - 2], np.uint64)]
    shapes = [(), (0,), (7,), (3, 5), (4, 3, 2)]
    dtypes = [np.uint8, np.uint16, np.uint32, np.uint64]
    for algorithm in jax.lax.RandomAlgorithm:
        every = lambda state: [jax.lax.rng_bit_generator(state, shape, dtype, algorithm) for shape in shapes for dtype in dtypes]
        for state in states:
            same = all((g == e).all() and g.dtype == e.dtype for g, e in zip(on("remat", every, state), on("cpu", every, state), strict=True))
            check(f"bits of {algorithm}", same, state)
    jax.config.update("jax_enable_x64", False)


def matrices(rows, columns):
    """Matrices with different, equal, small, large and zero singular values."""
    random = np.random.default_rng(100 * rows + columns)
    normal = random.standard_normal((rows, columns))
    u, s, vt = np.linalg.svd(normal, full_matrices=False)
    graded = 10.0 ** -np.arange(len(s))
    return [normal, (u * graded) @ vt, u @ vt, np.outer(normal[:, 0], normal[0]), normal * 0, normal * 1e30, normal * 1e-30]


def factorisations():
    """Eigenvalues and singular values beside those of numpy in f64, by units in the last place of the largest one."""
    off = lambda q: np.abs(np.swapaxes(q, -1, -2) @ q - np.eye(q.shape[-1])).max(initial=0)
    worst = dict.fromkeys(["eigenvalues", "eigenvectors", "singular values", "singular vectors"], 0.0)
    for x64, dtype in [(False, np.float32), (True, np.float64)]:
        jax.config.update("jax_enable_x64", x64)
        unit = np.finfo(dtype).eps

        def note(what, error, largest=1.0):
            worst[what] = max(worst[what], np.max(np.abs(error), initial=0) / (largest or 1) / unit)

        for n in [1, 2, 3, 8, 30]:
            a = np.stack([m + m.T for m in matrices(n, n)]).astype(dtype)
            values, vectors = (np.asarray(x, np.float64) for x in on("remat", jnp.linalg.eigh, a))
            for m, w, v in zip(np.asarray(a, np.float64), values, vectors):
                expected = np.linalg.eigvalsh(m)
                largest = np.abs(expected).max()
                note("eigenvalues", w - expected, largest)
                note("eigenvectors", m @ v - v * w, largest)
                note("eigenvectors", off(v))
        for rows, columns in [(1, 1), (1, 4), (5, 3), (7, 7), (4, 9), (30, 30), (30, 8)]:
            a = np.stack(matrices(rows, columns)).astype(dtype)
            for full in [False, True]:
                u, s, vt = (np.asarray(x, np.float64) for x in on("remat", lambda a: jnp.linalg.svd(a, full_matrices=full), a))
                exact = np.asarray(a, np.float64)
                expected = np.linalg.svd(exact, compute_uv=False)
                k = s.shape[-1]
                rebuilt = (u[..., :k] * s[:, None, :]) @ vt[:, :k]
                for i, largest in enumerate(expected[:, 0]):
                    note("singular values", s[i] - expected[i], largest)
                    note("singular vectors", rebuilt[i] - exact[i], largest)
                note("singular vectors", [off(u), off(np.swapaxes(vt, -1, -2))])
            [s] = on("remat", lambda a: jnp.linalg.svd(a, compute_uv=False), a)
            note("singular values", max(np.abs(s - expected).max(-1) / np.where(expected[:, 0] == 0, 1, expected[:, 0])))
    jax.config.update("jax_enable_x64", False)
    print("errors in units: " + ", ".join(f"{what} {units:.1f}" for what, units in worst.items()), flush=True)
    for what, units in worst.items():
        check(what, units <= 64, f"are off by {units:.1f} units")
    for shape in [(0, 3, 2), (0, 2, 2), (2, 0, 0), (2, 3, 0), (2, 0, 3)]:
        nothing = np.zeros(shape, np.float32)
        results = [[x.shape for x in on(platform, jnp.linalg.svd, nothing)] for platform in ("remat", "cpu")]
        check("singular values of nothing", results[0] == results[1], results)
    bad = np.ones((3, 4, 4), np.float32)
    bad[0, 1, 2], bad[1, 2, 1] = np.nan, np.inf
    for function in [jnp.linalg.eigh, jnp.linalg.svd]:
        for result in on("remat", function, bad):
            check("not finite", np.isnan(result[:2]).all() and np.isfinite(result[2]).all(), result)
    for name, function in MISSING.items():
        try:
            on("remat", function, bad)
            check(name, False, "is not refused")
        except NotImplementedError as error:
            check(name, "float32[3,4,4] is not supported" in str(error), str(error))


MISSING = {
    "eig": jnp.linalg.eig, "schur": jax.lax.linalg.schur, "hessenberg": jax.lax.linalg.hessenberg,
    "a part of the eigenvalues": lambda a: jax.lax.linalg.eigh(a, subset_by_index=(0, 2)),
    "another method": lambda a: jax.lax.linalg.svd(a, algorithm=jax.lax.linalg.SvdAlgorithm.QR),
}  # fmt: skip


def linear_algebra():
    """What stands on factorisations, and its gradients, beside XLA."""
    linalg, scipy = jnp.linalg, jax.scipy.linalg
    singular = lambda a: (lambda u, s, vt: (u[:, :2] * s[:2]) @ vt[:2])(*linalg.svd(a, full_matrices=False))
    projection = lambda a: (lambda w, v: v[..., :2] @ jnp.swapaxes(v[..., :2], -1, -2))(*linalg.eigh(a))
    of_rows = {
        "pinv": linalg.pinv, "lstsq": lambda a: linalg.lstsq(a, a[:, :2] ** 2), "norms": lambda a: [linalg.norm(a, o) for o in ("nuc", 2, -2)],
        "ranks": linalg.matrix_rank, "cond": linalg.cond, "singular": lambda a: singular(a), "polar": scipy.polar, "lu of rows": jax.lax.linalg.lu,
    }
    of_squares = {
        "projection": projection, "eigvalsh": linalg.eigvalsh, "solve": lambda a: linalg.solve(a, a[..., :2] ** 2), "inv": linalg.inv, "det": linalg.det,
        "slogdet": linalg.slogdet, "lu": jax.lax.linalg.lu, "lu_factor": scipy.lu_factor, "expm": scipy.expm, "svd of many": lambda a: linalg.svd(a, compute_uv=False),
        "cholesky": lambda a: linalg.cholesky(a @ jnp.swapaxes(a, -1, -2)), "power": lambda a: linalg.matrix_power(a, -2),
        "tridiagonal": lambda a: jax.lax.linalg.tridiagonal_solve(a[0, 0], a[0, 1] + 5, a[0, 2], a[0]),
    }  # fmt: skip
    random = np.random.default_rng(0)
    rows = random.standard_normal((5, 3))
    squares = random.standard_normal((2, 4, 4)) + 3 * np.eye(4)
    for dtype, units in [(np.float32, 1024), (np.float64, 1024 * 2.0**-29)]:
        jax.config.update("jax_enable_x64", dtype == np.float64)
        for functions, given in [(of_rows, rows), (of_squares, squares)]:
            for name, function in functions.items():
                # The others differ in nothing but the dtype.
                if dtype == np.float64 and name not in ("singular", "projection", "pinv", "lu"):
                    continue
                floats = lambda a: [x for x in jax.tree.leaves(function(a)) if jnp.issubdtype(x.dtype, jnp.floating)]
                total = lambda a: sum((x**2).sum() + x.sum() for x in floats(a))
                both = lambda a: (function(a), jax.grad(total)(a) if floats(a) and name != "polar" else ())
                try:
                    results = [on(platform, both, given.astype(dtype)) for platform in ("remat", "cpu")]
                except Exception as error:
                    check(name, False, str(error)[:600])
                    continue
                worst = difference(*results, units)
                check(f"{name} in {np.dtype(dtype)}", worst <= 1, f"differs by {worst:.1f} times what is allowed")
    jax.config.update("jax_enable_x64", False)


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


def donated_state():
    """A step of AdamW whose caller keeps the gradient: the memory of each array of the state becomes that of the next state, as is said before the run."""
    remat = jax.devices("remat")[0]

    def update(state, gradient):
        p, m, v = state
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient * gradient
        return p - 1e-3 * (m / (jnp.sqrt(v) + 1e-8) + 1e-4 * p), m, v

    steps = {"behind": (update, 0), "before": (lambda gradient, state: update(state, gradient), 1)}
    for place, (step, at) in steps.items():
        state, gradient = tuple(jax.device_put(np.full((512, 512), i + 1, np.float32), remat) for i in range(3)), jax.device_put(np.full((512, 512), 0.5, np.float32), remat)
        args = (state, gradient) if at == 0 else (gradient, state)
        compiled = jax.jit(step, donate_argnums=at).lower(*args).compile()
        aliases = compiled.memory_analysis().alias_size_in_bytes
        check(f"memory of a donated state, gradient {place}", aliases == 3 << 20, f"{aliases} bytes")
        before = [x.unsafe_buffer_pointer() for x in state]
        after = [x.unsafe_buffer_pointer() for x in compiled(*args)]
        check(f"a donated state, gradient {place}", sorted(before) == sorted(after), "an array of its own")


def kept_memory():
    """Arrays of a megabyte that are deleted leave their memory, with their elements, to later ones."""
    remat = jax.devices("remat")[0]
    put = lambda fill, dtype=np.float32: jax.device_put(np.full((512, 512), fill, dtype), remat)
    x = put(7)
    pointer = x.unsafe_buffer_pointer()
    x.delete()
    check("kept memory", put(8).unsafe_buffer_pointer() == pointer, "is not used")
    x = put(7)
    view = np.asarray(x)
    x.delete()
    others = [put(8 + i) for i in range(3)]
    check("a view of a deleted array", (view == 7).all(), "changes with later arrays")
    del others
    functions = dict(
        scatter=lambda i: jnp.zeros((512, 512)).at[i].add(1.0),
        pad=lambda i: jnp.pad(jnp.ones((i + 5).shape), ((0, 511),))[:, None] * jnp.ones((1, 512)),
        loop=lambda i: jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + 1), (0, jnp.zeros((512, 512))))[1],
        bools=lambda i: jnp.zeros((512, 512), bool).at[i].set(True),
        nothing=lambda i: jnp.zeros((512, 512)) * i[0],
    )
    for name, function in functions.items():
        expected = on("cpu", function, np.array([3], np.int32))
        for dtype in (np.float32, np.bool_):
            dirty = [put(dtype(3), dtype) for _ in range(4)]
            for array in dirty:
                array.delete()
            got = on("remat", function, np.array([3], np.int32))
            check(f"{name} in kept memory", (np.asarray(got) == np.asarray(expected)).all(), dtype)


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
    attention()
    bits()
    factorisations()
    linear_algebra()
    arrays()
    donation()
    donated_state()
    kept_memory()
    memory()
    limits()
    threads()
    print(f"JAX {jax.__version__}: {len(FAULTS)} faults", flush=True)
    sys.exit(1 if FAULTS else 0)
