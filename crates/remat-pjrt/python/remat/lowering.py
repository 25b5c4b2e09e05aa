"""How JAX writes the linear algebra for which it has no rule of its own on the platform `remat`: as calls that the library knows by name.

`Eigh` is written as for XLA's TPU backend. The results of `Svd` are the singular values, or these, the left and the right vectors.
"""

PLATFORM = "remat"

# Factorisations that the library does not have. JAX would not say of which array.
MISSING = ("eig", "hessenberg", "schur", "tridiagonal")


def register(platform=PLATFORM):
    """Adds the rules. A JAX without the names that they need keeps its own errors."""
    try:
        from jax.ffi import ffi_lowering
        from jax.interpreters import mlir
        from jax.lax import linalg

        rules = {linalg.eigh_p: _eigh(ffi_lowering), linalg.svd_p: _svd(ffi_lowering)}
        register_lowering = mlir.register_lowering
    except (ImportError, AttributeError):
        return
    missing = {getattr(linalg, f"{name}_p", None): _missing(name) for name in MISSING}
    missing.pop(None, None)
    for primitive, rule in (rules | missing).items():
        register_lowering(primitive, rule, platform=platform)


def _eigh(ffi_lowering):
    def rule(ctx, a, *, lower, sort_eigenvalues=True, subset_by_index=None, algorithm=None, **others):
        _known("eigh", ctx, others)
        _check("eigh", ctx, algorithm, subset_by_index, ctx.avals_in[0].shape[-1])
        config = f"{int(lower)},{int(sort_eigenvalues)},100,1e-6"
        return ffi_lowering("Eigh", backend_config=config, api_version=1)(ctx, a)

    return rule


def _svd(ffi_lowering):
    def rule(ctx, a, *, full_matrices, compute_uv, subset_by_index=None, algorithm=None, **others):
        _known("svd", ctx, others)
        _check("svd", ctx, algorithm, subset_by_index, min(ctx.avals_in[0].shape[-2:]))
        return ffi_lowering("Svd", backend_config="", api_version=1)(ctx, a)

    return rule


def _missing(name):
    def rule(ctx, *operands, **params):
        raise _refused(name, ctx, "the library has no such factorisation")

    return rule


def _known(name, ctx, others):
    """Refuses parameters of a newer JAX."""
    if others:
        raise _refused(name, ctx, f"the parameters {', '.join(sorted(others))} are not known")


def _check(name, ctx, algorithm, subset, count):
    """Refuses what the calls cannot say. The results say which vectors are asked for."""
    if getattr(algorithm, "name", None) not in (None, "DEFAULT", "JACOBI"):
        raise _refused(name, ctx, f"the library has the method of Jacobi alone, not {algorithm}")
    if subset not in (None, (0, count)):
        raise _refused(name, ctx, f"subset_by_index={subset}, where the library computes all values")


def _refused(name, ctx, why):
    shapes = ", ".join(aval.str_short() for aval in ctx.avals_in)
    return NotImplementedError(f"{name} of {shapes} is not supported on the platform {PLATFORM}: {why}")
