// The tensor axis shards the rows of the embedding and of the head.
#include <gtest/gtest.h>

#include "fixtures/test_name.h"
#include "mesh_model.h"

namespace strata::program {
namespace {

CompileOptions options_of(const std::string& preset, int64_t vocab, int64_t tensor) {
  CompileOptions options = tiny_options(preset);
  options.model = small_model(preset);
  options.model.vocab_size = vocab;
  options.mesh = graph::Mesh::of(1, 1, 1, tensor);
  return options;
}

void expect_same(const MeshRanks& ranks, const MeshRanks& one, const std::vector<std::string>& names) {
  for (const std::string& name : names) expect_near(ranks.whole(name), one.whole(name), 1e-5, name);
}

std::vector<std::string> gradients_and_loss(const ProgramSet& set) {
  std::vector<std::string> names{"loss_sum", "token_count", "grad_norm"};
  for (const graph::Parameter& parameter : set.programs[0].graph.parameters())
    names.push_back(set.programs[0].graph.value(parameter.gradient).name);
  return names;
}

class Vocabulary : public testing::TestWithParam<const char*> {};

// Five tokens on four ranks: two, two, one and none. Thirteen: the last rank has one.
TEST_P(Vocabulary, OfAnySizeIsSharded) {
  for (const int64_t vocab : {5, 13}) {
    for (const Backward backward : {Backward::kCombined, Backward::kSplit}) {
      const auto step = [&](int64_t tensor) {
        CompileOptions options = options_of(GetParam(), vocab, tensor);
        options.backward = backward;
        return MeshRanks(compile({request_for(options.model, 1)}, options), 3,
                         [](Executor& executor, const graph::Coordinates& at) {
                           fill_batch(executor, at);
                           write_hyper(executor, {.max_grad_norm = 1, .lr = 1e-2f});
                           executor.run_script(0);
                         });
      };
      const MeshRanks one = step(1), four = step(4);
      expect_same(four, one, gradients_and_loss(one.set()));
      const Persistent& table = four.set().at("embedding.weight");
      EXPECT_EQ(table.shape[0], (vocab + 3) / 4);
    }
  }
}

// Evaluations need the loss of each token.
TEST_P(Vocabulary, HasALossForEachToken) {
  const auto evaluate = [&](int64_t tensor) {
    const CompileOptions options = options_of(GetParam(), 101, tensor);
    Request request = request_for(options.model, 1);
    request.kind = Kind::kEvaluate;
    request.micro_batches = 1;
    request.per_token_loss = true;
    return MeshRanks(compile({request}, options), 3, [](Executor& executor, const graph::Coordinates& at) {
      fill_batch(executor, at);
      executor.run_script(0);
    });
  };
  const MeshRanks one = evaluate(1);
  for (const int64_t tensor : {2, 4}) {
    const MeshRanks ranks = evaluate(tensor);
    expect_same(ranks, one, {"loss_sum", "token_count", "token_loss"});
    EXPECT_EQ(ranks.whole("token_greedy").values, one.whole("token_greedy").values);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Vocabulary,
                         testing::Values("llama3-5m", "gpt2-124m", "gemma2-2b", "bert-tiny", "t5-small",
                                         "t5-v1.1-small"),
                         [](const auto& one) { return test_name(one.param); });

// Every rank has the logits of all tokens, the same bits, so all ranks sample the same token.
TEST(ShardedVocabulary, HasTheLogitsOnEveryRank) {
  for (const char* preset : {"llama3-5m", "gemma2-2b"}) {
    const auto logits = [&](int64_t tensor) {
      CompileOptions options = options_of(preset, 101, tensor);
      options.cache_capacity = 16;
      return MeshRanks(compile({{.kind = Kind::kPrefill, .sequence_length = 8}}, options), 3,
                       [](Executor& executor, const graph::Coordinates&) {
                         const std::vector<int32_t> ids{3, 100, 50, 51, 0, 7, 25, 26},
                             positions{0, 1, 2, 3, 4, 5, 6, 7};
                         executor.upload_column(0, Column::kTokens, 0, ids);
                         executor.upload_column(0, Column::kPositions, 0, positions);
                         executor.write("cache_position", int32_t{0});
                         executor.write("cache_slot", int32_t{0});
                         executor.write("last_row", int32_t{6});
                         executor.run_script(0);
                       });
    };
    const MeshRanks one = logits(1);
    ASSERT_EQ(one.whole("logits").values.size(), 101U);
    for (const int64_t tensor : {2, 4}) expect_same(logits(tensor), one, {"logits"});
  }
}

// Besides its operands, the loss needs memory for the logits of a chunk of tokens.
TEST(ShardedVocabulary, UsesItsShareOfMemory) {
  constexpr int64_t kRanks = 4, kWords = 1 << 15;
  for (const Backward backward : {Backward::kCombined, Backward::kSplit}) {
    const auto compiled = [&](int64_t tensor) {
      CompileOptions options = options_of("llama3-5m", kWords, tensor);
      options.model.hidden_size = 512;
      options.backward = backward;
      return compile({{.kind = Kind::kTrain, .sequences = 4, .sequence_length = 256}}, options);
    };
    const auto one = compiled(1), four = compiled(kRanks);
    // The logits of the tokens of one weight-gradient call; the remaining scratch of matmuls is the same.
    constexpr int64_t kLogits = 512 * kWords * 4;
    ASSERT_GE(one->programs[0].scratch_peak, kLogits);
    EXPECT_EQ(four->programs[0].scratch_peak - kLogits / kRanks, one->programs[0].scratch_peak - kLogits);
    for (const char* name : {"embedding.weight", "grad.embedding.weight", "m.embedding.weight"})
      EXPECT_EQ(kRanks * four->at(name).bytes, one->at(name).bytes) << name;
  }
}

}  // namespace
}  // namespace strata::program
