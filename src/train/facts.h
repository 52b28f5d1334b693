// How a model was trained, as its card tells it.
#pragma once

#include <optional>

#include "interop/model_card.h"
#include "train/run_store.h"

namespace strata::train {

interop::TrainingFacts facts_of(const std::string& run, const TrainingState& state,
                                const checkpoint::Health& health, const std::string& program,
                                const std::string& run_toml);
// Of a checkpoint in a run's folder; nothing for other folders.
std::optional<interop::TrainingFacts> facts_of_checkpoint(const Path& checkpoint);

}  // namespace strata::train
