#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/parallel.h"
#include "fixtures/faulty_file_system.h"
#include "fixtures/scratch_folder.h"
#include "fixtures/small_run.h"

namespace strata::checkpoint {
namespace {

namespace fs = std::filesystem;

void flip(const Path& path, size_t byte, int bit = 0) {
  std::string content = read_file(path);
  content[byte] = static_cast<char>(content[byte] ^ (1 << bit));
  put_file(path, content);
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<std::string> names_in(const Path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename() != ".lock") names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Checkpoint, LoadsWhatWasSaved) {
  ScratchFolder scratch;
  const Path folder = scratch / "checkpoints";
  SmallRun run(3);
  auto content = run.content(200);
  content.health.metrics["eval/valid/loss"] = 2.25;
  const auto saved = save_checkpoint(posix_file_system(), folder, content);
  EXPECT_TRUE(saved.warnings.empty());
  EXPECT_EQ(saved.path, folder / "step-00000200");
  EXPECT_EQ(names_in(folder), (std::vector<std::string>{"latest", "step-00000200"}));
  EXPECT_EQ(read_file(folder / "latest"), "step-00000200\n");
  EXPECT_EQ(names_in(saved.path),
            (std::vector<std::string>{"config.json", "manifest.json", "model.safetensors",
                                      "optimizer.safetensors", "state.json", "tokenizer.json"}));
  SmallRun back(0);
  const auto loaded = load_checkpoint(saved.path, back.weights(), back.optimizer());
  EXPECT_EQ(back, run);
  EXPECT_EQ(loaded.state_json, content.state_json);
  EXPECT_EQ(loaded.manifest.step, 200);
  EXPECT_EQ(loaded.manifest.health.metrics.at("eval/valid/loss"), 2.25);
  EXPECT_EQ(loaded.manifest.bytes(), saved.bytes);
  // It is also a Hugging Face directory, with the orientation of the file.
  std::vector<float> plain(6);
  SmallRun other(0);
  auto views = other.weights();
  views[1].transposed = false;
  views[1].storage = in_memory(plain.data());
  load_hf_tensors(saved.path, views);
  EXPECT_EQ(plain[1], run.conv[2]);
  EXPECT_TRUE(verify_checkpoint(saved.path).empty());
}

TEST(Checkpoint, SaveOfTheSameStateHasTheSameBytes) {
  ScratchFolder a, b;
  SmallRun run(3);
  save_checkpoint(posix_file_system(), a.path(), run.content(5));
  save_checkpoint(posix_file_system(), b.path(), run.content(5));
  for (const auto* name : {"model.safetensors", "optimizer.safetensors", "state.json"})
    EXPECT_EQ(read_file(a / "step-00000005" / name), read_file(b / "step-00000005" / name)) << name;
}

TEST(Checkpoint, FindsNothingInEmptyFolders) {
  ScratchFolder scratch;
  EXPECT_FALSE(find_checkpoint(scratch / "absent").has_value());
  EXPECT_FALSE(find_checkpoint(scratch.path()).has_value());
  fs::create_directories(scratch / "step-00000009.tmp-1");
  fs::create_directories(scratch / "step-x");
  EXPECT_FALSE(find_checkpoint(scratch.path()).has_value());
  EXPECT_THROW(load_checkpoint(scratch / "absent", {}), ConfigError);
  put_file(scratch / "file", "");
  EXPECT_THROW(find_checkpoint(scratch / "file"), WorldError)
      << "a folder that cannot be listed is not empty";
}

TEST(Checkpoint, ADamagedOneIsReportedAndTheOneBeforeItLoaded) {
  ScratchFolder scratch;
  const Path& folder = scratch.path();
  SmallRun one(1), two(2);
  save_checkpoint(posix_file_system(), folder, one.content(100));
  save_checkpoint(posix_file_system(), folder, two.content(200));
  flip(folder / "step-00000200/model.safetensors",
       fs::file_size(folder / "step-00000200/model.safetensors") - 3);

  SmallRun back(0);
  const auto loaded = load_newest_checkpoint(folder, back.weights(), back.optimizer());
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(loaded->manifest.step, 100);
  EXPECT_EQ(back, one);
  ASSERT_EQ(loaded->skipped.size(), 1u);
  EXPECT_NE(loaded->skipped[0].reason.find("model.safetensors"), std::string::npos);
  EXPECT_NE(loaded->skipped[0].reason.find("checksum"), std::string::npos);
  EXPECT_EQ(find_checkpoint(folder)->manifest.step, 200) << "sizes and manifest do not reveal it";
  EXPECT_EQ(find_checkpoint(folder, {.verify = true, .healthy = true})->manifest.step, 100);

  // None is usable: an error with every reason, never a new start.
  fs::resize_file(folder / "step-00000100/optimizer.safetensors", 10);
  fs::remove(folder / "step-00000200/manifest.json");
  const auto message = message_of([&] { find_checkpoint(folder); });
  EXPECT_NE(message.find("step-00000100: "), std::string::npos) << message;
  EXPECT_NE(message.find("optimizer.safetensors has 10 bytes"), std::string::npos) << message;
  EXPECT_NE(message.find("never finished"), std::string::npos) << message;
  EXPECT_THROW(load_newest_checkpoint(folder, back.weights()), DataError);
}

// One bit of every byte of every file: reported or harmless.
TEST(Checkpoint, EveryFlippedBitIsFoundOrHarmless) {
  set_compute_threads(1);  // not worth a pool: thousands of tiny files
  ScratchFolder scratch;
  SmallRun run(3);
  const auto content = run.content(7);
  const Path path = save_checkpoint(posix_file_system(), scratch.path(), content).path;
  int64_t harmless = 0, total = 0;
  for (const auto& name : names_in(path)) {
    const std::string original = read_file(path / name);
    for (size_t byte = 0; byte < original.size(); ++byte, ++total) {
      std::string damaged = original;
      damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << byte % 8));
      put_file(path / name, damaged);
      const bool reported = !verify_checkpoint(path).empty();
      SmallRun back(0);
      try {
        const auto loaded = load_checkpoint(path, back.weights(), back.optimizer());
        ASSERT_EQ(back, run) << name << " byte " << byte;
        ASSERT_EQ(loaded.state_json, content.state_json) << name << " byte " << byte;
        ASSERT_EQ(loaded.manifest.step, 7);
        ASSERT_EQ(loaded.manifest.health.loss, 2.5);
        // Only in the white space of the manifest does a change have no effect.
        ASSERT_TRUE(reported || name == "manifest.json") << name << " byte " << byte;
        if (!reported) ++harmless;
      } catch (const DataError&) {
        ASSERT_TRUE(reported) << name << " byte " << byte;
      }
    }
    put_file(path / name, original);
  }
  set_compute_threads(available_processors());
  EXPECT_LT(harmless, total / 20);
  EXPECT_TRUE(verify_checkpoint(path).empty());
}

TEST(Checkpoint, EveryMissingOrTruncatedFileIsFound) {
  ScratchFolder scratch;
  SmallRun run(3);
  const Path path = save_checkpoint(posix_file_system(), scratch.path(), run.content(7)).path;
  for (const auto& name : names_in(path)) {
    const std::string original = read_file(path / name);
    for (size_t size = 0; size < original.size(); size += 13) {
      put_file(path / name, original.substr(0, size));
      EXPECT_FALSE(verify_checkpoint(path).empty()) << name << " " << size;
      EXPECT_THROW(find_checkpoint(scratch.path()), DataError) << name << " " << size;
    }
    fs::remove(path / name);
    EXPECT_THROW(find_checkpoint(scratch.path()), DataError) << name;
    put_file(path / name, original);
  }
  EXPECT_TRUE(find_checkpoint(scratch.path()).has_value());
}

TEST(Checkpoint, ANewerFormatIsRefusedAndNotSkipped) {
  Manifest manifest;
  manifest.program = "strata 9";
  const std::string text = format_manifest(manifest);
  EXPECT_EQ(parse_manifest(text, "memory").program, "strata 9");
  // As a later program would write it, with a valid checksum.
  auto json = parse_json<nlohmann::json>(text);
  json["min_reader"] = 7;
  EXPECT_THROW(parse_manifest(dump_json(json), "memory"), DataError);
  json.erase("checksum");
  json["checksum"] = to_hex(hash64(dump_json(json)));
  EXPECT_THROW(parse_manifest(dump_json(json), "memory"), ConfigError);
}

// Format 1 has one checksum per tensor. Today's tensor files have the same bytes.
TEST(Checkpoint, TheFirstFormatIsStillReadAndVerified) {
  ScratchFolder scratch;
  const Path old = scratch / "step-00000007";
  fs::copy(std::string(STRATA_TEST_DATA) + "/checkpoint/format-1", old);
  SmallRun run(3), back(0);
  const auto loaded = load_checkpoint(old, back.weights(), back.optimizer());
  EXPECT_EQ(back, run);
  EXPECT_EQ(loaded.manifest.files.size(), 5u);
  EXPECT_TRUE(verify_checkpoint(old).empty());
  const Path today = save_checkpoint(posix_file_system(), scratch / "today", run.content(7)).path;
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json", "config.json"})
    EXPECT_EQ(read_file(today / name), read_file(old / name)) << name;
  flip(old / "model.safetensors", fs::file_size(old / "model.safetensors") - 3);
  EXPECT_EQ(verify_checkpoint(old).size(), 1u);
  EXPECT_THROW(load_checkpoint(old, back.weights()), DataError);
}

TEST(Checkpoint, TensorsMustMatch) {
  ScratchFolder scratch;
  SmallRun run(3);
  const Path path = save_checkpoint(posix_file_system(), scratch.path(), run.content(7)).path;
  auto weights = run.weights();
  weights.pop_back();
  EXPECT_THROW(load_checkpoint(path, weights), DataError);
  auto optimizer = run.optimizer();
  optimizer[0].name = "v/wte.weight";
  EXPECT_THROW(load_checkpoint(path, run.weights(), optimizer), DataError);
  EXPECT_NO_THROW(load_checkpoint(path, run.weights()));
}

TEST(Checkpoint, SpaceIsCheckedBeforeAnythingIsWritten) {
  ScratchFolder scratch;
  SmallRun run(3);
  FaultyFileSystem full({.free_bytes = 1000});
  const auto message = message_of([&] { save_checkpoint(full, scratch.path(), run.content(1)); });
  EXPECT_NE(message.find("are missing"), std::string::npos) << message;
  EXPECT_TRUE(names_in(scratch.path()).empty());
}

TEST(Checkpoint, ASecondSaverIsRefused) {
  ScratchFolder scratch;
  SmallRun run(3);
  {
    const FileLock other(scratch / ".lock");
    fs::create_directories(scratch / "step-00000001.tmp-77");
    EXPECT_THROW(save_checkpoint(posix_file_system(), scratch.path(), run.content(1)), ConfigError);
    EXPECT_TRUE(fs::exists(scratch / "step-00000001.tmp-77")) << "the other process is still writing it";
  }
  save_checkpoint(posix_file_system(), scratch.path(), run.content(1));
  EXPECT_FALSE(fs::exists(scratch / "step-00000001.tmp-77"));
}

TEST(Checkpoint, UnhealthyOnesAreNotResumedFrom) {
  ScratchFolder scratch;
  SmallRun run(3), broken(NAN);
  save_checkpoint(posix_file_system(), scratch.path(), run.content(100));
  for (int64_t step = 200; step <= 600; step += 100) {
    auto content = broken.content(step);
    content.health.loss = NAN;
    content.health.finite = false;
    content.retention.keep_last = 2;
    save_checkpoint(posix_file_system(), scratch.path(), content);
  }
  // The healthy one is kept; of the others only the newest.
  EXPECT_EQ(names_in(scratch.path()), (std::vector<std::string>{"latest", "step-00000100", "step-00000600"}));
  const auto found = find_checkpoint(scratch.path());
  EXPECT_EQ(found->manifest.step, 100);
  EXPECT_EQ(found->skipped.size(), 1u);
  EXPECT_EQ(find_checkpoint(scratch.path(), {.verify = false, .healthy = false})->manifest.step, 600);
}

TEST(Checkpoint, PruningStopsAtADamagedNewest) {
  ScratchFolder scratch;
  SmallRun run(3);
  auto content = run.content(1);
  content.retention.keep_last = 0;
  for (content.step = 1; content.step <= 3; ++content.step)
    save_checkpoint(posix_file_system(), scratch.path(), content);
  const Path newest = scratch / "step-00000003/model.safetensors";
  flip(newest, fs::file_size(newest) - 1);
  auto result = prune(posix_file_system(), scratch.path(), {.keep_last = 1});
  EXPECT_TRUE(result.removed.empty());
  EXPECT_FALSE(result.warnings.empty());
  flip(newest, fs::file_size(newest) - 1);
  result = prune(posix_file_system(), scratch.path(), {.keep_last = 1});
  EXPECT_EQ(result.removed.size(), 2u);
  EXPECT_EQ(find_checkpoint(scratch.path())->manifest.step, 3);
}

// A run that went back sets its later checkpoints aside: it does not resume from them, and prunes them by the
// same policy as its own.
TEST(Checkpoint, DiscardedOnesArePrunedByTheSamePolicy) {
  ScratchFolder scratch;
  SmallRun run(3);
  auto content = run.content(1);
  content.retention.keep_last = 0;
  for (content.step = 1; content.step <= 6; ++content.step) {
    content.health.metrics["loss"] = content.step == 4 ? 1.0 : 2.0;
    save_checkpoint(posix_file_system(), scratch.path(), content);
  }
  const auto at = [&](int64_t step, const char* suffix) {
    return scratch / ("step-0000000" + std::to_string(step) + suffix);
  };
  for (int64_t step = 3; step <= 6; ++step) fs::rename(at(step, ""), at(step, ".discarded"));
  EXPECT_EQ(find_checkpoint(scratch.path())->manifest.step, 2);
  auto result =
      prune(posix_file_system(), scratch.path(), {.keep_last = 1, .keep_best = 1, .best_metric = "loss"});
  EXPECT_EQ(result.removed, (std::vector<Path>{at(5, ".discarded"), at(3, ".discarded")}));
  EXPECT_TRUE(fs::exists(at(1, "")) && fs::exists(at(2, ""))) << "the best and the newest";
  EXPECT_TRUE(fs::exists(at(4, ".discarded")) && fs::exists(at(6, ".discarded")));

  // A save prunes them as well.
  content.step = 3;
  content.retention = {.keep_last = 1};
  const auto saved = save_checkpoint(posix_file_system(), scratch.path(), content);
  EXPECT_EQ(saved.pruned, (std::vector<Path>{at(2, ""), at(1, ""), at(4, ".discarded")}));

  // They are kept while all of the run's own are damaged.
  flip(at(3, "/model.safetensors"), 100);
  const RetentionPolicy none{.keep_last = 1, .keep_discarded = false};
  EXPECT_TRUE(prune(posix_file_system(), scratch.path(), none).removed.empty());
  flip(at(3, "/model.safetensors"), 100);
  EXPECT_EQ(prune(posix_file_system(), scratch.path(), none).removed,
            (std::vector<Path>{at(6, ".discarded")}));
  EXPECT_EQ(list_checkpoints(scratch.path()).size(), 1u);
}

TEST(Retention, KeepsTheLastTheEveryAndTheBest) {
  std::vector<RetentionCandidate> candidates;
  for (int64_t step = 1000; step >= 100; step -= 100) {
    RetentionCandidate candidate{{"step-" + std::to_string(step), step}, {}};
    candidate.health.metrics["loss"] = std::abs(static_cast<double>(step) - 310);
    candidates.push_back(candidate);
  }
  const auto kept = [&](const RetentionPolicy& policy) {
    std::vector<int64_t> steps;
    const auto gone = choose_to_prune(candidates, policy);
    for (const auto& candidate : candidates) {
      if (std::find(gone.begin(), gone.end(), candidate.checkpoint.path) == gone.end())
        steps.push_back(candidate.checkpoint.step);
    }
    return steps;
  };
  EXPECT_EQ(kept({.keep_last = 2}), (std::vector<int64_t>{1000, 900}));
  EXPECT_EQ(kept({.keep_last = 1, .keep_every = 400}), (std::vector<int64_t>{1000, 800, 400}));
  EXPECT_EQ(kept({.keep_last = 1, .keep_best = 2, .best_metric = "loss"}),
            (std::vector<int64_t>{1000, 400, 300}));
  EXPECT_EQ(kept({.keep_last = 1, .keep_best = 2, .best_metric = "absent"}), (std::vector<int64_t>{1000}));
  EXPECT_EQ(kept({.keep_last = 0}).size(), 10u);
  // If saves do not fall on the multiples, the first after each is kept.
  EXPECT_EQ(kept({.keep_last = 1, .keep_every = 250}), (std::vector<int64_t>{1000, 800, 500, 300}));
  // The best accuracy is the highest; "loss" is the loss of the step.
  for (auto& candidate : candidates)
    candidate.health.metrics["eval/words/acc"] = candidate.checkpoint.step == 700 ? 0.9 : 0.1;
  EXPECT_EQ(kept({.keep_last = 1, .keep_best = 1, .best_metric = "eval/words/acc"}),
            (std::vector<int64_t>{1000, 700}));
  for (auto& candidate : candidates) {
    candidate.health.metrics.erase("loss");
    candidate.health.loss = candidate.checkpoint.step == 200 ? 0.5 : 1;
  }
  EXPECT_EQ(kept({.keep_last = 1, .keep_best = 1, .best_metric = "loss"}), (std::vector<int64_t>{1000, 200}));
  candidates[0].health.finite = false;
  candidates[2].health.loss = NAN;
  EXPECT_EQ(kept({.keep_last = 2}), (std::vector<int64_t>{1000, 900, 700}));
  for (auto& candidate : candidates) candidate.health.finite = false;
  EXPECT_EQ(kept({.keep_last = 1}).size(), 10u) << "none is removed while none is healthy";
}

TEST(Checkpoint, InspectAndDiff) {
  ScratchFolder scratch;
  SmallRun one(1), two(1);
  two.embedding[5] += 0.25f;
  two.conv[0] = NAN;
  const Path a = save_checkpoint(posix_file_system(), scratch / "a", one.content(1)).path;
  const Path b = save_checkpoint(posix_file_system(), scratch / "b", two.content(2)).path;
  const auto info = inspect_checkpoint(a);
  EXPECT_EQ(info.parameters, 18);
  EXPECT_EQ(info.bytes, 4u * (18 + 12 + 3));
  EXPECT_EQ(info.tensors.size(), 4u);
  EXPECT_EQ(info.manifest->step, 1);

  auto diffs = diff_checkpoints(a, b);
  ASSERT_EQ(diffs.size(), 4u);
  EXPECT_EQ(diffs[0].name, "counter");
  EXPECT_EQ(diffs[0].kind, DiffKind::kEqual);
  EXPECT_EQ(diffs[1].name, "h.0.c_attn.weight");
  EXPECT_EQ(diffs[1].kind, DiffKind::kDifferent);
  EXPECT_TRUE(std::isinf(diffs[1].max_abs));
  EXPECT_EQ(diffs[2].kind, DiffKind::kEqual);
  EXPECT_EQ(diffs[3].name, "wte.weight");
  EXPECT_EQ(diffs[3].differing, 1);
  EXPECT_EQ(diffs[3].max_abs, 0.25);
  EXPECT_FALSE(verify_checkpoint(b).empty()) << "a NaN among the weights";

  // Against a plain model folder in another dtype, without the optimizer.
  ModelFiles model = one.content(1).model;
  model.dtype = DType::kBF16;
  write_hf_directory(posix_file_system(), scratch / "c", model);
  diffs = diff_checkpoints(a, scratch / "c");
  EXPECT_EQ(diffs[0].kind, DiffKind::kOnlyInFirst);
  EXPECT_EQ(diffs[3].kind, DiffKind::kEqual) << "sixteenths are exact in bf16";
  EXPECT_EQ(diffs[3].detail, "F32 against BF16");
  EXPECT_FALSE(inspect_checkpoint(scratch / "c").manifest.has_value());
  EXPECT_TRUE(verify_checkpoint(scratch / "c").empty());
  EXPECT_THROW(verify_checkpoint(scratch / "absent"), ConfigError);
}

TEST(Checkpoint, ResolvesEveryWayToNameAModel) {
  ScratchFolder scratch;
  const std::string run = (scratch / "run").string();
  SmallRun state(1);
  for (int64_t step = 1; step <= 3; ++step) {
    auto content = state.content(step);
    content.health.metrics["eval/valid/loss"] = step == 2 ? 1.0 : 2.0;
    save_checkpoint(posix_file_system(), Path(run) / "checkpoints", content);
  }
  const Path folder = Path(run) / "checkpoints";
  EXPECT_EQ(resolve_model(run), folder / "step-00000003");
  EXPECT_EQ(resolve_model(run + "@latest"), folder / "step-00000003");
  EXPECT_EQ(resolve_model(run + "@best"), folder / "step-00000002");
  EXPECT_EQ(resolve_model((folder / "step-00000001").string()), folder / "step-00000001");
  EXPECT_THROW(resolve_model(run + "@worst"), ConfigError);
  EXPECT_THROW(resolve_model(run + "/absent"), ConfigError);
  EXPECT_THROW(resolve_model(scratch.path().string()), DataError);
  // The file that every save rewrites, and its folder.
  EXPECT_EQ(resolve_model((folder / "latest").string()), folder / "step-00000003");
  EXPECT_EQ(resolve_model(folder.string()), folder / "step-00000003");
  put_file(folder / "latest", "step-00000001\n");
  EXPECT_EQ(resolve_model((folder / "latest").string()), folder / "step-00000001");
  for (const char* wrong : {"step-00000009\n", "../run\n", "\n"}) {
    put_file(folder / "latest", wrong);
    EXPECT_THROW(resolve_model((folder / "latest").string()), DataError) << wrong;
  }
}

// A user who asks for the newest must not silently get another one; training resumes from the newest good
// one.
TEST(Checkpoint, ADamagedNewestOneIsNamed) {
  ScratchFolder scratch;
  const Path run = scratch / "run";
  SmallRun state(1);
  for (int64_t step = 1; step <= 2; ++step)
    save_checkpoint(posix_file_system(), run / "checkpoints", state.content(step));
  const Path newest = run / "checkpoints/step-00000002";
  const std::string whole = read_file(newest / "model.safetensors");
  const auto expect_named = [&](const char* what) {
    for (const std::string& name : {run.string(), run.string() + "@latest"}) {
      const std::string message = message_of([&] { resolve_model(name); });
      EXPECT_NE(message.find("step-00000002"), std::string::npos) << what << message;
      EXPECT_NE(message.find("step-00000001"), std::string::npos) << what << message;
      EXPECT_THROW(resolve_model(name), DataError);
    }
    SmallRun back(0);
    EXPECT_EQ(load_newest_checkpoint(run / "checkpoints", back.weights(), back.optimizer())->manifest.step,
              1);
  };
  put_file(newest / "model.safetensors", whole.substr(0, whole.size() - 1));
  expect_named("truncated");
  fs::remove(newest / "model.safetensors");
  expect_named("incomplete");
  put_file(newest / "model.safetensors", whole);
  EXPECT_EQ(resolve_model(run.string()), newest);
  fs::remove(newest / "manifest.json");
  expect_named("never finished");
}

TEST(Checkpoint, TheBestIsTheBestOfTheRun) {
  ScratchFolder scratch;
  const Path run = scratch / "run";
  SmallRun state(1);
  const auto save = [&](int64_t step, double loss, double acc) {
    auto content = state.content(step);
    content.retention = {.keep_last = 0, .keep_best = 1, .best_metric = "eval/words/acc"};
    content.health.metrics = {{"eval/valid/loss", loss}, {"eval/words/acc", acc}};
    save_checkpoint(posix_file_system(), run / "checkpoints", content);
  };
  save(1, 1.0, 0.2);
  save(2, 2.0, 0.8);
  save(3, 3.0, 0.3);
  EXPECT_EQ(resolve_model(run.string() + "@best"), run / "checkpoints/step-00000002");
  EXPECT_EQ(policy_of(run / "checkpoints").best_metric, "eval/words/acc");
  auto policy = policy_of(run / "checkpoints");
  policy.keep_last = 1;
  EXPECT_EQ(prune(posix_file_system(), run / "checkpoints", policy).removed,
            std::vector<Path>{run / "checkpoints/step-00000001"});
  // A checkpoint that cannot be read may have been the best.
  const Path worst = run / "checkpoints/step-00000003/config.json";
  const std::string whole = read_file(worst);
  fs::remove(worst);
  const std::string damaged = message_of([&] { resolve_model(run.string() + "@best"); });
  EXPECT_NE(damaged.find("step-00000003"), std::string::npos) << damaged;
  EXPECT_NE(damaged.find("cannot be determined"), std::string::npos) << damaged;
  put_file(worst, whole);
  // The metric of the policy was never measured: an error, not the last checkpoint.
  auto content = state.content(4);
  content.retention = {.keep_last = 0, .best_metric = "eval/valid/lss"};
  save_checkpoint(posix_file_system(), run / "checkpoints", content);
  const std::string message = message_of([&] { resolve_model(run.string() + "@best"); });
  EXPECT_NE(message.find("eval/valid/lss"), std::string::npos) << message;
  EXPECT_NE(message.find("eval/valid/loss"), std::string::npos) << message;
}

// The small files are verified like the weights.
TEST(Checkpoint, ADamagedTokenizerIsNotLoaded) {
  ScratchFolder scratch;
  SmallRun state(1);
  const Path path = save_checkpoint(posix_file_system(), scratch.path(), state.content(1)).path;
  flip(path / "tokenizer.json", 0);
  SmallRun back(0);
  const std::string message = message_of([&] { load_checkpoint(path, back.weights(), back.optimizer()); });
  EXPECT_NE(message.find("tokenizer.json"), std::string::npos) << message;
}

// final/ and exports: every flipped bit is detected, except in the model card, which its publisher may edit.
TEST(ModelFolder, IsVerifiedByItsChecksums) {
  ScratchFolder scratch;
  SmallRun run(1);
  ModelFiles model = run.content(1).model;
  model.files.push_back({"README.md", "a card"});
  for (const uint64_t shard : {kDefaultShardBytes, uint64_t{40}}) {
    model.max_shard_bytes = shard;
    const Path folder = scratch / std::to_string(shard);
    write_hf_directory(posix_file_system(), folder, model);
    write_hf_directory(posix_file_system(), folder, model);  // replaces the first
    EXPECT_TRUE(has_checksums(folder));
    EXPECT_TRUE(verify_checkpoint(folder).empty());
    put_file(folder / "README.md", "a card with a licence");
    EXPECT_TRUE(verify_checkpoint(folder).empty());
    for (const std::string& name : names_in(folder)) {
      if (name == "README.md") continue;
      const std::string whole = read_file(folder / name);
      for (const size_t byte : {size_t{0}, whole.size() / 2, whole.size() - 1}) {
        flip(folder / name, byte, 1);
        EXPECT_FALSE(verify_checkpoint(folder).empty()) << name << " byte " << byte;
        put_file(folder / name, whole);
      }
      fs::rename(folder / name, scratch / "away");
      EXPECT_EQ(verify_checkpoint(folder).empty(), name == kChecksumsFile) << name << " is missing";
      fs::rename(scratch / "away", folder / name);
    }
    EXPECT_TRUE(verify_checkpoint(folder).empty());
    // A folder of another program has no checksums: it is readable, but cannot be verified.
    fs::remove(folder / kChecksumsFile);
    EXPECT_FALSE(has_checksums(folder));
    EXPECT_TRUE(verify_checkpoint(folder).empty());
  }
}

}  // namespace
}  // namespace strata::checkpoint
