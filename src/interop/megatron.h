// Imports Megatron-LM checkpoints in its torch format: DIR/iter_N/mp_rank_RR/model_optim_rng.pt, one file per
// tensor-parallel rank. Supports GPT and Llama, with the tensor names of Megatron-Core and of older versions.
// Besides weights the pickles hold argparse.Namespace, enums and random states, which become inert records;
// nothing is executed (interop/torch/pickle.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "interop/torch/torch_file.h"
#include "models/model.h"
#include "program/executor.h"

namespace strata::interop {

struct MegatronCheckpoint {
  std::string where;
  models::ModelConfig model;
  std::vector<std::unique_ptr<TorchFile>> ranks;
  std::string embedding, layers, final_norm, head;  // prefixes of tensor names
};

// Whether a folder looks like a Megatron-LM checkpoint.
bool is_megatron(const Path& folder);

// FOLDER contains all iterations, one iteration, or its ranks. DataError for anything else, and for arguments
// that change the computation and are not supported (experts, pipeline stages, other position embeddings).
MegatronCheckpoint open_megatron(const Path& folder);

// DataError for missing tensors and for wrong sizes. Reads no values.
void check_megatron(const MegatronCheckpoint& checkpoint);

// Loads the parameters. DataError for missing, unexpected and misshapen tensors, and for values that are not
// finite.
void load_megatron(const MegatronCheckpoint& checkpoint, program::Executor& executor);

}  // namespace strata::interop
