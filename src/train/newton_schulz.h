// Coefficients of the quintic Newton-Schulz iteration X <- (a I + b G + c G^2) X, G = X X^T.
#pragma once

namespace dflash::train {

constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;  // Jordan's

}  // namespace dflash::train
