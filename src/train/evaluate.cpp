#include "train/evaluate.h"

#include "base/error.h"

namespace strata::train {

using program::Segment;

data::Batch batch_of(program::Executor& executor, size_t index, int64_t micro_batch,
                     std::vector<int32_t>& kv_begin) {
  auto input = [&](const char* name) {
    return reinterpret_cast<int32_t*>(executor.batch_input(index, name, micro_batch));
  };
  data::Batch batch{input("tokens"), input("targets"), input("positions"), input("kv_begin")};
  if (batch.kv_begin == nullptr) {  // a program without a document mask
    const auto& request = executor.program(index).request;
    kv_begin.resize(static_cast<size_t>(request.sequences * request.sequence_length));
    batch.kv_begin = kv_begin.data();
  }
  return batch;
}

EvalResult evaluate(program::Executor& executor, size_t index, const data::EvalWindows& windows,
                    const std::function<bool()>& stop) {
  const int64_t sequences = executor.program(index).request.sequences;
  std::vector<int32_t> unused;
  data::BatchScratch scratch;
  EvalResult result;
  for (int64_t first = 0; first < windows.windows(); first += sequences) {
    windows.fill(first, sequences, batch_of(executor, index, 0, unused), scratch);
    executor.run(index, first == 0 ? Segment::kFirst : Segment::kLater);
    result.loss_sum = *executor.data_as<double>("loss_sum");
    result.tokens = *executor.data_as<int64_t>("token_count");
    if (stop && stop()) break;
  }
  return result;
}

}  // namespace strata::train
