#include "evaluation/evaluate.h"

#include <cstring>

#include "base/error.h"

namespace strata::evaluation {

using program::Segment;

data::Batch batch_of(program::Executor& executor, size_t index, int64_t micro_batch,
                     std::vector<int32_t>& kv_begin) {
  auto input = [&](const char* name) {
    return reinterpret_cast<int32_t*>(executor.batch_input(index, name, micro_batch));
  };
  data::Batch batch{input("tokens"),        input("targets"),      input("positions"), input("kv_begin"),
                    input("source_tokens"), input("source_begin"), input("source_of")};
  if (batch.kv_begin == nullptr) {  // a program without a document mask
    const auto& request = executor.program(index).request;
    kv_begin.resize(static_cast<size_t>(request.sequences * request.sequence_length));
    batch.kv_begin = kv_begin.data();
  }
  return batch;
}

void copy_rows(const data::HostBatch& batch, const data::RowShape& shape, int64_t first,
               program::Executor& executor, size_t index, int64_t micro_batch) {
  const int64_t rows = executor.program(index).request.sequences;
  const auto copy = [&](const char* name, const std::vector<int32_t>& from, int64_t places) {
    if (std::byte* to = executor.batch_input(index, name, micro_batch))
      std::memcpy(to, from.data() + first * places, static_cast<size_t>(rows * places) * sizeof(int32_t));
  };
  copy("tokens", batch.tokens, shape.tokens);
  copy("targets", batch.targets, shape.tokens);
  copy("positions", batch.positions, shape.tokens);
  copy("kv_begin", batch.kv_begin, shape.tokens);
  copy("source_tokens", batch.source_tokens, shape.source);
  copy("source_begin", batch.source_begin, shape.source);
  copy("source_of", batch.source_of, shape.tokens);
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

}  // namespace strata::evaluation
