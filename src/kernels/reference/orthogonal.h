// Newton and Schulz, for both forms of Muon.
#pragma once

#include <cstdint>
#include <vector>

namespace strata::reference {

// A matrix [rows, columns] with its singular values brought near one; cpu::Muon has the formula.
std::vector<double> newton_schulz(const std::vector<double>& matrix, int64_t rows, int64_t columns,
                                  int64_t steps);

}  // namespace strata::reference
