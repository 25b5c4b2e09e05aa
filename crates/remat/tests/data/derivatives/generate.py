"""Writes vectors.txt: derivatives of the elementwise operations where they are easily got wrong: at large and small operands,
at infinities, NaN, zeros of both signs, at the ends of domains, and where a function saturates.

    pip install jax==0.10.2 mpmath
    python generate.py > vectors.txt

Each line: dtype, operation, number of the operand that is differentiated, operands, the derivative to 40 digits rounded
to f64 (`-` where there is none), JAX's (the exact one again where JAX lacks the function). The derivative at an infinity is its limit.
"""

import itertools
import os

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import mpmath as mp
import numpy as np
from jax import lax

jax.config.update("jax_enable_x64", True)
mp.mp.dps = 40

ONE = mp.mpf(1)
HUGE = mp.mpf(10) ** 400
TWO_BY_ROOT_PI = 2 / mp.sqrt(mp.pi)
inf, nan = float("inf"), float("nan")


class Undefined(Exception):
    pass


def inside(condition, value):
    """`value()` where the derivative exists."""
    if not condition:
        raise Undefined
    return value()


def steps(x):
    """The derivative of a function that is constant between integers and halves."""
    return inside(2 * x != mp.floor(2 * x), lambda: mp.mpf(0))


def slope_of_erfcx(x):
    if x > 10**12:
        return -(1 - 3 / (2 * x * x)) / (mp.sqrt(mp.pi) * x * x)
    with mp.workdps(120):
        return 2 * x * mp.exp(x * x) * mp.erfc(x) - 2 / mp.sqrt(mp.pi)


# The function in JAX, if it has it, the derivative, and whether it has no limit at infinity, at minus infinity.
UNARY = {
    "neg": (lax.neg, lambda x: -ONE),
    "sign": (lax.sign, lambda x: inside(x != 0, lambda: mp.mpf(0))),
    "abs": (lax.abs, lambda x: inside(x != 0, lambda: mp.sign(x))),
    "floor": (lax.floor, steps, True, True),
    "ceil": (lax.ceil, steps, True, True),
    "round": (lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), steps, True, True),
    "exp": (lax.exp, mp.exp),
    "exp2": (lax.exp2, lambda x: mp.log(2) * mp.power(2, x)),
    "expm1": (lax.expm1, mp.exp),
    "log": (lax.log, lambda x: inside(x > 0, lambda: 1 / x)),
    "log1p": (lax.log1p, lambda x: inside(x > -1, lambda: 1 / (1 + x))),
    "sqrt": (lax.sqrt, lambda x: inside(x > 0, lambda: 1 / (2 * mp.sqrt(x)))),
    "rsqrt": (lax.rsqrt, lambda x: inside(x > 0, lambda: -1 / (2 * x * mp.sqrt(x)))),
    "cbrt": (lax.cbrt, lambda x: inside(x != 0, lambda: 1 / (3 * mp.cbrt(abs(x)) ** 2))),
    "logistic": (lax.logistic, lambda x: mp.exp(-abs(x)) / (1 + mp.exp(-abs(x))) ** 2),
    "sin": (lax.sin, mp.cos, True, True),
    "cos": (lax.cos, lambda x: -mp.sin(x), True, True),
    "tan": (lax.tan, lambda x: mp.sec(x) ** 2, True, True),
    "asin": (lax.asin, lambda x: inside(abs(x) < 1, lambda: 1 / mp.sqrt((1 - x) * (1 + x)))),
    "acos": (lax.acos, lambda x: inside(abs(x) < 1, lambda: -1 / mp.sqrt((1 - x) * (1 + x)))),
    "atan": (lax.atan, lambda x: 1 / (1 + x * x)),
    "sinh": (lax.sinh, mp.cosh),
    "cosh": (lax.cosh, mp.sinh),
    "tanh": (lax.tanh, lambda x: 4 * mp.exp(-2 * abs(x)) / (1 + mp.exp(-2 * abs(x))) ** 2),
    "asinh": (lax.asinh, lambda x: 1 / mp.sqrt(x * x + 1)),
    "acosh": (lax.acosh, lambda x: inside(x > 1, lambda: 1 / mp.sqrt((x - 1) * (x + 1)))),
    "atanh": (lax.atanh, lambda x: inside(abs(x) < 1, lambda: 1 / ((1 - x) * (1 + x)))),
    "erf": (lax.erf, lambda x: TWO_BY_ROOT_PI * mp.exp(-x * x)),
    "erfc": (lax.erfc, lambda x: -TWO_BY_ROOT_PI * mp.exp(-x * x)),
    "erfcx": (None, slope_of_erfcx),
    "erf_inv": (lax.erf_inv, lambda x: inside(abs(x) < 1, lambda: mp.exp(mp.erfinv(x) ** 2) / TWO_BY_ROOT_PI)),
    "lgamma": (lax.lgamma, lambda x: inside(not pole(x), lambda: mp.psi(0, x)), False, True),
    "digamma": (lax.digamma, lambda x: inside(not pole(x), lambda: mp.psi(1, x)), False, True),
}


def pole(x):
    return x <= 0 and x == mp.floor(x)


def rem(x, y):
    """The derivative in y: minus the quotient, rounded to zero."""
    return inside(y != 0 and x / y != mp.floor(x / y), lambda: -mp.sign(x / y) * mp.floor(abs(x / y)))


BINARY = {
    "add": (lax.add, lambda x, y: ONE, lambda x, y: ONE),
    "sub": (lax.sub, lambda x, y: ONE, lambda x, y: -ONE),
    "mul": (lax.mul, lambda x, y: y, lambda x, y: x),
    "div": (lax.div, lambda x, y: inside(y != 0, lambda: 1 / y), lambda x, y: inside(y != 0, lambda: -x / y / y)),
    "rem": (lax.rem, lambda x, y: inside(y != 0 and x / y != mp.floor(x / y), lambda: ONE), rem),
    "pow": (
        lax.pow,
        lambda x, y: inside(x > 0, lambda: y * mp.power(x, y - 1)),
        lambda x, y: inside(x > 0, lambda: mp.log(x) * mp.power(x, y)),
    ),
    "max": (
        lax.max,
        lambda x, y: inside(x != y, lambda: mp.mpf(int(x > y))),
        lambda x, y: inside(x != y, lambda: mp.mpf(int(x < y))),
    ),
    "min": (
        lax.min,
        lambda x, y: inside(x != y, lambda: mp.mpf(int(x < y))),
        lambda x, y: inside(x != y, lambda: mp.mpf(int(x > y))),
    ),
    "atan2": (
        lax.atan2,
        lambda x, y: inside(x != 0 or y != 0, lambda: y / (x * x + y * y)),
        lambda x, y: inside(x != 0 or y != 0, lambda: -x / (x * x + y * y)),
    ),
}
BINARY["add_any"] = BINARY["add"]

POWERS = (-3, -1, 0, 1, 2, 3, 8)

UNARY_POINTS = {
    np.float64: [0.0, 1e-300, 1e-160, 1e-20, 1e-9, 0.3, 0.5, 1 - 2**-53, 1.0, 1 + 2**-52, 1.5, 2.25, 10.25, 25.5, 40.0,
                 100.0, 709.0, 800.0, 1e5, 1e10, 1e16, 1e100, 1e160, 1e300, inf, nan],
    np.float32: [0.0, 1e-37, 1e-20, 1e-9, 0.3, 0.5, 1 - 2**-24, 1.0, 1 + 2**-23, 1.5, 2.25, 5.5, 10.25, 25.5, 40.0, 88.0,
                 100.0, 1e5, 1e10, 1e20, 3e38, inf, nan],
}
BINARY_POINTS = {
    np.float64: [0.0, 1e-300, 0.5, 1.0, 2.5, 1e200, inf, nan],
    np.float32: [0.0, 1e-37, 0.5, 1.0, 2.5, 1e25, inf, nan],
}


def signed(points):
    return [x for point in points for x in ((point, -point) if point == point else (point,))]


def jax_derivatives(function, dtype, which, columns):
    operands = [jax.numpy.array(column, dtype) for column in columns]

    def one(x):
        return function(*operands[:which], x, *operands[which + 1 :])

    out, tangent = jax.jvp(one, (operands[which],), (jax.numpy.ones_like(operands[which]),))
    return np.asarray(tangent, np.float64)


def exact(derivative, operands):
    """The derivative rounded to f64, or `-`; at an infinity its limit."""
    if any(x != x for x in operands) or sum(np.isinf(x) for x in operands) > 1:
        return "-"

    def at(large):
        return derivative(*(large * int(np.sign(x)) if np.isinf(x) else mp.mpf(x) for x in operands))

    try:
        near, far = at(HUGE), at(HUGE**2)
    except (Undefined, ZeroDivisionError, OverflowError, ValueError):
        return "-"
    if abs(near - far) <= abs(near) / 10**30:
        return text(float(near))
    # Still changing that far out: to infinity, or to zero.
    return text(float(mp.sign(far)) * inf if abs(far) > abs(near) else 0.0)


def text(x):
    return "NaN" if x != x else repr(float(x))


def rows(dtype, name, function, derivative_of, columns):
    values = [[float(dtype(x)) for x in column] for column in columns]
    for which, derivative in enumerate(derivative_of):
        theirs = jax_derivatives(function, dtype, which, columns) if function else [None] * len(columns[0])
        for *operands, their in zip(*values, theirs):
            true = exact(derivative, operands)
            # What JAX does not have is held to the exact derivative alone.
            beside = text(their) if function else "NaN" if true == "-" else true
            print(np.dtype(dtype).name, name, which, *map(text, operands), true, beside)


def main():
    for dtype in (np.float64, np.float32):
        points = signed(UNARY_POINTS[dtype])
        for name, (function, derivative, *unbounded) in UNARY.items():
            no_limit = {x for x, has_none in zip((inf, -inf), unbounded) if has_none}
            smooth = lambda x: inside(not (abs(x) >= HUGE and mp.sign(x) * inf in no_limit), lambda: derivative(x))
            rows(dtype, name, function, [smooth], [points])
        for y in POWERS:
            power = lambda x: inside(y > 0 or x != 0, lambda: y * mp.power(x, y - 1) if y else mp.mpf(0))
            rows(dtype, f"integer_pow[{y}]", lambda x: lax.integer_pow(x, y), [power], [points])
        pairs = list(itertools.product(signed(BINARY_POINTS[dtype]), repeat=2))
        columns = [list(column) for column in zip(*pairs)]
        for name, (function, *derivatives) in BINARY.items():
            rows(dtype, name, function, derivatives, columns)


main()
