// What several routers' reference kernels share.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/reference/call.h"
#include "ops/router/router.h"

namespace strata::reference {

using Numbers = std::vector<double>;

// A token's scores of experts, and the gradient of its logits from that of the scores.
Numbers scores_of(const Numbers& logits, ops::RouteAttrs::Score score);
Numbers through_scores(const Numbers& scores, const Numbers& given, ops::RouteAttrs::Score score);
// Places in descending order of value; of equal ones the first.
std::vector<int64_t> ranking(const Numbers& values);
// 0, or NaN if a logit is not finite.
double poison_of(const Numbers& logits);
// Writes a row of a matrix.
void put_row(const Array& out, int64_t row, const Numbers& numbers);

}  // namespace strata::reference
