// Corpora of known content for tests of the sample order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/samples/sample_source.h"
#include "fixtures/temporary_folder.h"

namespace strata::data {

// Tokens base, base + 1, … (u32), without documents.
inline TokenCorpus counting_corpus(const TemporaryFolder& folder, const std::string& name, int64_t tokens,
                                   uint32_t base = 0) {
  std::vector<uint32_t> ids(static_cast<size_t>(tokens));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = base + static_cast<uint32_t>(i);
  const Path path = folder.write_values(name + ".bin", ids);
  folder.write(name + ".json", R"({"dtype": "u32"})");
  return open_token_corpus({path.string()});
}

// One batch with its own memory, poisoned.
struct OwnedBatch {
  OwnedBatch(int64_t sequences, int64_t length)
      : tokens(static_cast<size_t>(sequences * length), -77),
        targets(tokens),
        positions(tokens),
        kv_begin(tokens) {}
  OwnedBatch(int64_t sequences, const RowShape& shape) : OwnedBatch(sequences, shape.tokens) {
    if (shape.encoder_length == 0) return;
    encoder_tokens.assign(static_cast<size_t>(sequences * shape.encoder_length), -77);
    encoder_kv_begin = encoder_tokens;
    cross_kv_begin = tokens;
  }
  Batch view() {
    Batch out;
    out[Column::kTokens] = tokens.data();
    out[Column::kTargets] = targets.data();
    out[Column::kPositions] = positions.data();
    out[Column::kKvBegin] = kv_begin.data();
    out[Column::kEncoderTokens] = encoder_tokens.empty() ? nullptr : encoder_tokens.data();
    out[Column::kEncoderKvBegin] = encoder_kv_begin.empty() ? nullptr : encoder_kv_begin.data();
    out[Column::kCrossKvBegin] = cross_kv_begin.empty() ? nullptr : cross_kv_begin.data();
    return out;
  }
  bool operator==(const OwnedBatch&) const = default;
  std::vector<int32_t> tokens, targets, positions, kv_begin, encoder_tokens, encoder_kv_begin, cross_kv_begin;
};

inline SampleSource single_source(TokenCorpus corpus, const SampleOptions& options) {
  std::vector<SampleSourceSpec> specs;
  specs.push_back({"train", std::move(corpus), 1, 0});
  return SampleSource(specs, options);
}

}  // namespace strata::data
