// Checkpoints of Megatron-LM in its torch format: DIR/iter_N/mp_rank_RR/model_optim_rng.pt, one file a
// tensor-parallel rank, of GPT and Llama layouts, as Megatron-Core and as older versions name their tensors.
// Their pickles hold argparse.Namespace, enums and random states besides the weights: these are read as inert
// records, and nothing is executed (interop/torch/pickle.h).
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
  std::string embedding, layers, final_norm, head;  // what tensors' names begin with
};

// Whether a folder looks like one.
bool is_megatron(const Path& folder);

// FOLDER is that of all iterations, of one, or of its ranks. DataError for what is no such checkpoint and for
// arguments that change the mathematics and are not supported (experts, pipeline stages, sparse positions).
MegatronCheckpoint open_megatron(const Path& folder);

// DataError for tensors that are missing or of another size than the model's. No value is read.
void check_megatron(const MegatronCheckpoint& checkpoint);

// Fills the parameters; every tensor of the files must be used. DataError for missing, unexpected and
// misshapen tensors and values that are not finite.
void load_megatron(const MegatronCheckpoint& checkpoint, program::Executor& executor);

}  // namespace strata::interop
