"""Prints the polynomials of src/kernels/cpu/vector_math-inl.h (needs mpmath)."""
import mpmath as mp

mp.mp.dps = 40


def interpolate(f, low, high, count):
    """Coefficients of the polynomial that interpolates f at the Chebyshev points of [low, high], constant first."""
    points = [(low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)]
    matrix = mp.matrix(count, count)
    values = mp.matrix(count, 1)
    for row, x in enumerate(points):
        values[row] = f(x)
        for column in range(count):
            matrix[row, column] = x**column
    return [mp.nstr(c, 9) for c in mp.lu_solve(matrix, values)]


def exp_rest(r):
    return (mp.exp(r) - 1 - r) / r**2 if abs(r) > 1e-12 else mp.mpf(1) / 2


def scaled_erfc(t):
    z = (1 / t - 1) * 2
    return mp.exp(z * z) * mp.erfc(z) / t


def atanh_rest(z):
    return mp.atanh(mp.sqrt(z)) / mp.sqrt(z) if z > 1e-30 else mp.mpf(1)


half = mp.log(2) / 2
print("(exp(r) - 1 - r) / r^2:", interpolate(exp_rest, -half, half, 5))
print("2^f, for bf16:", interpolate(lambda f: mp.mpf(2)**f, -mp.mpf(1) / 2, mp.mpf(1) / 2, 4))
print("exp(z^2) erfc(z) / t, t = 1 / (1 + z / 2):", interpolate(scaled_erfc, 1 / (1 + mp.mpf("4.7")), mp.mpf(1), 9))
print("atanh(s) / s by s^2:", interpolate(atanh_rest, mp.mpf(0), mp.mpf(1) / 9, 5))
