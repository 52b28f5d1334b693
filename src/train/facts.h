// How a model was trained, for its model card.
#pragma once

#include <optional>

#include "interop/model_card.h"
#include "train/run_store.h"

namespace strata::training {

interop::TrainingFacts facts_of(const std::string& run, const TrainingState& state,
                                const checkpoint::Health& health, const std::string& program,
                                const std::string& run_toml);
// For a checkpoint in a run's folder; nullopt for other folders.
std::optional<interop::TrainingFacts> facts_of_checkpoint(const Path& checkpoint);

}  // namespace strata::training
