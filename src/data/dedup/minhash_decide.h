// The second half of the minhash stage: from keys to clusters to decisions.
#pragma once

#include <cstdint>
#include <span>

#include "base/function_ref.h"
#include "data/dedup/minhash.h"
#include "data/pipeline/stage.h"

namespace strata::data::dedup {

void decide_near_duplicates(const DecideContext& context, uint64_t tag, const MinhashStageOptions& options,
                            StageStats& stats, FunctionRef<void(uint32_t, std::span<const Decision>)> sink);

}  // namespace strata::data::dedup
