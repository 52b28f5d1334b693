// The content of a save, and which checkpoints it keeps.
#pragma once

#include "train/run_inputs.h"
#include "train/run_position.h"
#include "train/run_store.h"
#include "train/step_record.h"

namespace strata::training {

// The run at `position`. `newest`: the record of the last step of this process, default if none;
// `evaluations`: the newest results. The result refers to the inputs and the executor.
RunStore::Save make_save(const RunInputs& inputs, const program::Executor& executor,
                         const RunPosition& position, const StepRecord& newest,
                         const EvaluationResults& evaluations, const Journal& journal);

}  // namespace strata::training
