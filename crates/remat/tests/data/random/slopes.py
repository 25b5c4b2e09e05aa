"""Writes slopes.txt: the derivative of the logarithm of a number of the gamma distribution by its concentration, for
crates/remat/src/random/gamma_slope.rs.

    pip install mpmath==1.4.1
    python slopes.py > slopes.txt

A line has a concentration a, a quantile, the logarithm of the number x at this quantile, rounded to f64, and the derivative, computed with 60
digits as -(dP/da) / (x p), of the cumulative distribution P and the density p.
"""

from mpmath import digamma, exp, findroot, gamma, log, loggamma, mp, mpf

mp.dps = 60


def sums(a, x):
    """P(a, x) x^-a e^x gamma(a + 1) as a sum, and its derivative by a."""
    term, total, slope, slopes, n = mpf(1), mpf(1), mpf(0), mpf(0), 0
    while n < 10 or abs(term) > mpf(10) ** -55 * total or abs(slope) > mpf(10) ** -55 * abs(slopes):
        n += 1
        slope = slope * x / (a + n) - term * x / (a + n) ** 2
        term = term * x / (a + n)
        total, slopes = total + term, slopes + slope
    return total, slopes


def cumulative(a, log_x):
    return exp(a * log_x - exp(log_x) - loggamma(a + 1)) * sums(a, exp(log_x))[0]


def derivative(a, log_x):
    total, slopes = sums(a, exp(log_x))
    return -(slopes + total * (log_x - digamma(a + 1))) / a


def start(a, p):
    """Wilson and Hilferty's approximation, or for small numbers the first term of the series."""
    z = findroot(lambda z: mp.ncdf(z) - p, 0)
    cube = 1 - 1 / (9 * a) + z / (3 * mp.sqrt(a))
    small = (log(p) + loggamma(a + 1)) / a
    return small if a < 1 and small < -1 or cube <= 0 else log(a * cube**3)


for a in map(mpf, ["1e-4", "0.01", "0.3", "1", "1.5", "4", "20", "150", "250", "1000", "9e4", "2e5"]):
    a = mpf(float(a))
    for p in map(mpf, ["1e-5", "0.03", "0.5", "0.9", "0.9999"]):
        root = findroot(lambda y: cumulative(a, y) - p, start(a, p), tol=mpf(10) ** -30)
        log_x = mpf(float(root))
        print(*(repr(float(value)) for value in (a, p, log_x, derivative(a, log_x))))
