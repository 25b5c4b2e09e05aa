"""Programs of others (flax, optax, equinox, jax.scipy) in JAX, on remat's plugin and on XLA's CPU backend in turn: time of a call, temporaries, time to
compile, and the ratios.

    bench/peers/run jax [--only TEXT] [--rounds 3] [--json FILE]

The programs are those of crates/remat-stablehlo/tests/fixtures/large_programs.py. `bench/peers/run` installs jax, flax, optax and equinox
(requirements_jax.txt), builds the plugin and sets JAX_PLATFORMS and REMAT_PJRT_LIBRARY.
"""

import functools

import jax_common

write = jax_common.registered()


def program(name):
    """The function of this name, its arguments, and that none of them is donated."""
    function, shapes, *_ = write.LARGE[name]
    return function, tuple(write.argument(i, shape, dtype) for i, (shape, dtype) in enumerate(shapes)), False


def main():
    jax_common.compare(__doc__, {name: functools.partial(program, name) for name in write.LARGE}, seconds=0.2)


if __name__ == "__main__":
    main()
