// Many flipped bits, each in another run or in one stored state. With STRATA_ALL_TRIALS as many as the figures of
// docs/recovery.md are made of; otherwise a tenth.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/random.h"
#include "checkpoint/checkpoint.h"
#include "fixtures/tiny_program.h"
#include "fixtures/tiny_run.h"
#include "train/copy_files.h"
#include "train/memory_folder.h"
#include "train/snapshots.h"

namespace strata::training {
namespace {

#ifdef STRATA_ALL_TRIALS
constexpr int kStored = 300, kWeights = 100, kGradients = 200;
#else
constexpr int kStored = 300, kWeights = 10, kGradients = 20;
#endif

uint64_t draw(uint64_t stream, int i) {
  const auto bits = philox({7, static_cast<uint32_t>(stream)}, static_cast<uint64_t>(i));
  return static_cast<uint64_t>(bits[0]) << 32 | bits[1];
}

TEST(FlippedBits, OfSnapshotsAreAllFound) {
  const program::CompileOptions options = program::tiny_options("llama3-5m");
  const auto set = program::compile({program::tiny_request()}, options);
  const program::Executor executor(set, device::make_cpu_device(options.target.spec.threads));
  Snapshots snapshots(executor, 1);
  TrainingState state;
  state.step = 3;
  snapshots.take(state);
  ASSERT_FALSE(snapshots.damaged_value(3));
  const std::span<std::byte> bytes = snapshots.bytes_of(3);
  for (int i = 0; i < kStored; ++i) {
    const uint64_t at = draw(1, i);
    std::byte& byte = bytes[at % bytes.size()];
    const auto bit = static_cast<std::byte>(1 << (at >> 60) % 8);
    byte ^= bit;
    EXPECT_TRUE(snapshots.damaged_value(3)) << i;
    byte ^= bit;
  }
  EXPECT_FALSE(snapshots.damaged_value(3));
}

// Flips a bit in place. Called again, it takes that back.
void flip_in(const Path& file, uint64_t at) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  const auto byte = static_cast<std::streamoff>((at >> 8) % std::filesystem::file_size(file));
  stream.seekg(byte);
  const auto flipped = static_cast<char>(stream.get() ^ (1 << (at >> 61)));
  stream.seekp(byte);
  stream.put(flipped);
}

TEST(FlippedBits, OfCopiesAreAllFound) {
  const TinyRun tiny;
  RunOptions options{.config = tiny.config({"training.steps=4", "recovery.copies=\"2 steps\"",
                                            "checkpoint.interval=\"never\"", "parallel.shard=2"})};
  options.observer.log = [](LogLevel, std::string_view) {};
  options.observer.step = [](const StepRecord& record) {
    if (record.step == 4) throw WorldError("[test] killed");
  };
  EXPECT_THROW(train_on_threads(options, 2, [] { return false; }), WorldError);
  const Path memory = memory_folder(tiny.folder());
  const std::vector<FoundCopy> copies = list_copies(memory);
  ASSERT_GE(copies.size(), 2u);
  const auto damaged = [&](size_t i) { return damage_of(list_copies(memory)[i]).has_value(); };
  for (int i = 0; i < kStored; ++i) {
    const uint64_t at = draw(5, i);
    const size_t chosen = at % copies.size();
    // A tenth of them in the manifest.
    const Path& file = i % 10 == 0 ? copies[chosen].manifest : copies[chosen].data;
    flip_in(file, at);
    EXPECT_TRUE(damaged(chosen)) << file << ", draw " << at;
    flip_in(file, at);
  }
  for (size_t i = 0; i < copies.size(); ++i) EXPECT_FALSE(damaged(i)) << i;
  remove_memory_folder(tiny.folder());
}

TEST(FlippedBits, OfCheckpointsAreAllFound) {
  const TinyRun tiny;
  tiny.train({"training.steps=2", "checkpoint.interval=\"2 steps\""});
  const Path checkpoint = tiny.folder() / "checkpoints/step-00000002";
  std::vector<Path> files;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  ASSERT_TRUE(checkpoint::verify_checkpoint(checkpoint).empty());
  for (int i = 0; i < kStored; ++i) {
    const uint64_t at = draw(2, i);
    // Half of them in any file, half in the largest.
    const Path& file = i % 2 == 0 ? files[at % files.size()] : checkpoint / "optimizer.safetensors";
    flip_in(file, at);
    EXPECT_FALSE(checkpoint::verify_checkpoint(checkpoint).empty()) << file << ", draw " << at;
    flip_in(file, at);
  }
  EXPECT_TRUE(checkpoint::verify_checkpoint(checkpoint).empty());
}

// Steps and ranks of the corruption events of a run with a flipped bit.
std::vector<std::pair<int64_t, int>> found_in(const Sets& sets, int i) {
  const TinyRun tiny;
  FaultyFileSystem quick;
  RunOptions options{.config = tiny.config(Sets{"parallel.replicate=3", "recovery.snapshot=\"5 steps\"",
                                                "checkpoint.interval=\"100 steps\"", "log.layers=\"never\"",
                                                "run.seed=" + std::to_string(i)} +
                                           sets),
                     .files = &quick};
  options.observer.log = [](LogLevel, std::string_view) {};
  train_on_threads(options, 3, [] { return false; });
  std::vector<std::pair<int64_t, int>> found;
  for (const auto& event : metrics_of(tiny.folder()).events) {
    if (event.at("event") == "corruption")
      found.emplace_back(event.at("at_step").get<int64_t>(), event.value("rank", -1));
  }
  return found;
}

TEST(FlippedBits, OfWeightsInUseAreAllFoundAtTheNextComparison) {
  for (int i = 0; i < kWeights; ++i) {
    const uint64_t at = draw(3, i);
    const auto step = static_cast<int64_t>(1 + at % 8);
    const auto rank = static_cast<int>((at >> 32) % 3);
    const auto found = found_in({"training.steps=8", "debug.inject=[\"flip@step=" + std::to_string(step) +
                                                         ",rank=" + std::to_string(rank) + "\"]"},
                                i);
    ASSERT_EQ(found.size(), 1u) << i;
    EXPECT_EQ(found[0], std::pair(step, rank)) << i;
  }
}

// The first micro-batch of every fourth step is checked, and the bit is flipped in any step's.
TEST(FlippedBits, OfGradientsAreFoundAsOftenAsTheyAreChecked) {
  constexpr int64_t kSteps = 12, kEvery = 4;
  int found = 0;
  for (int i = 0; i < kGradients; ++i) {
    const uint64_t at = draw(4, i);
    const auto step = static_cast<int64_t>(1 + at % kSteps);
    const auto rank = static_cast<int>((at >> 32) % 3);
    const auto events =
        found_in({"training.steps=" + std::to_string(kSteps), "recovery.recompute_check=\"4 steps\"",
                  "debug.inject=[\"flip@step=" + std::to_string(step) +
                      ",where=gradients,rank=" + std::to_string(rank) + "\"]"},
                 i);
    ASSERT_LE(events.size(), 1u) << i;
    if (events.empty()) continue;
    EXPECT_EQ(events[0], std::pair(step, rank)) << i;
    ++found;
  }
  // The binomial 95 % interval, by the normal approximation with continuity.
  const double expected = kGradients / static_cast<double>(kEvery);
  const double margin = 1.96 * std::sqrt(expected * (1 - 1 / static_cast<double>(kEvery))) + 0.5;
  EXPECT_NEAR(found, expected, margin);
  RecordProperty("found", found);
}

}  // namespace
}  // namespace strata::training
