"""The coefficients of Muon's four iterations (src/train/newton_schulz.h).

    minimax_quintics.py [smallest=0.003] [iterations=4]

Each odd polynomial a x + b x^3 + c x^5 is the one nearest to 1 over the interval in which the one
before it left the singular values (greedy composition of minimax polynomials: Amsel et al. 2025,
"The Polar Express", section 3). All but the last are taken at x / 1.02, so that what rounding to
bf16 lifts over the interval's end stays bounded. Prints where the composition maps some values,
beside Jordan's five iterations. Needs numpy and scipy.
"""
import sys

import numpy
from scipy.optimize import linprog

SAFETY = 1.02
JORDAN = [(3.4445, -4.7750, 2.0315)] * 5


def nearest_to_one(low, high):
    """Coefficients and the largest distance from 1 over [low, high], on a grid."""
    x = numpy.unique(numpy.concatenate([numpy.geomspace(low, high, 400),
                                        numpy.linspace(low, high, 400)]))
    powers, ones = numpy.stack([x, x ** 3, x ** 5], 1), numpy.ones((len(x), 1))
    bounds = numpy.block([[powers, -ones], [-powers, -ones]])
    best = linprog([0, 0, 0, 1], A_ub=bounds, b_ub=numpy.concatenate([ones, -ones]).ravel(),
                   bounds=[(None, None)] * 3 + [(0, None)])
    return best.x[:3], best.x[3]


def iterations(smallest, count):
    low, high, found = smallest, 1.0, []
    for number in range(count):
        (a, b, c), distance = nearest_to_one(low, high)
        by = SAFETY if number + 1 < count else 1.0
        found.append((a / by, b / by ** 3, c / by ** 5))
        low, high = (1 - distance) / by, 1 + distance
    return found


def mapped(found, x):
    for a, b, c in found:
        x = a * x + b * x ** 3 + c * x ** 5
    return x


def main(smallest=0.003, count=4):
    found = iterations(float(smallest), int(count))
    for a, b, c in found:
        print(f"{{{a:.4f}, {b:.4f}, {c:.4f}}}")
    print("singular value -> here, Jordan's five")
    for x in (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 0.6, 1.0):
        print(f"{x:8.4f} -> {mapped(found, x):.3f}, {mapped(JORDAN, x):.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
