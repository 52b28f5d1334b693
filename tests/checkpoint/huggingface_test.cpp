#include "checkpoint/huggingface.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "base/error.h"
#include "fixtures/scratch_folder.h"

namespace strata::checkpoint {
namespace {

// Five tensors of 10, 20, …, 50 floats.
struct Model {
  std::vector<std::vector<float>> memory;
  ModelFiles files;
  Model() {
    for (int i = 1; i <= 5; ++i) {
      memory.emplace_back();
      for (int j = 0; j < 10 * i; ++j) memory.back().push_back(static_cast<float>(100 * i + j));
    }
    for (int i = 0; i < 5; ++i)
      files.weights.push_back({"layers." + std::to_string(i) + ".weight",
                               {10 * (i + 1)},
                               DType::kF32,
                               in_memory(memory[static_cast<size_t>(i)].data())});
    files.config_json = "{\"model_type\": \"llama\"}\n";
    files.files = {{"tokenizer.json", "{}"}};
    files.dtype = DType::kF32;
  }
};

struct Loaded {
  std::vector<std::vector<float>> memory;
  std::vector<MutableTensorView> views;
  explicit Loaded(const Model& model) {
    for (const auto& view : model.files.weights) {
      memory.emplace_back(static_cast<size_t>(view.shape.elements()), -1.0f);
      views.push_back({view.name, view.shape, DType::kF32, in_memory(memory.back().data())});
    }
  }
};

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(HuggingFace, OneFileAndShardsAreEquivalent) {
  Model model;
  for (const auto& [limit, shards] :
       std::vector<std::pair<uint64_t, size_t>>{{1'000'000, 1}, {240, 3}, {1, 5}}) {
    ScratchFolder folder;
    model.files.max_shard_bytes = limit;
    write_hf_directory(posix_file_system(), folder / "model", model.files);
    const auto source = open_tensors(folder / "model");
    EXPECT_EQ(source.files.size(), shards);
    EXPECT_EQ(source.tensors.size(), 5u);
    Loaded loaded(model);
    load_hf_tensors(folder / "model", loaded.views, {.ignore = {}, .check_finite = true});
    EXPECT_EQ(loaded.memory, model.memory);
    EXPECT_EQ(read_config_json(folder / "model"), model.files.config_json);
    EXPECT_EQ(read_file(folder / "model/tokenizer.json"), "{}");
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1) << "leftovers";
  }
}

TEST(HuggingFace, ListsAllMismatches) {
  Model model;
  ScratchFolder folder;
  write_hf_directory(posix_file_system(), folder / "model", model.files);
  Loaded loaded(model);
  loaded.views[0].name = "layer.0.weight";
  loaded.views[2].shape = {31};
  loaded.memory[2].resize(31);
  loaded.views[2].storage = in_memory(loaded.memory[2].data());
  const auto message = message_of([&] { load_hf_tensors(folder / "model", loaded.views); });
  EXPECT_NE(message.find("1 missing: 'layer.0.weight' (nearest: 'layers.0.weight')"), std::string::npos)
      << message;
  EXPECT_NE(message.find("1 unexpected: 'layers.0.weight'"), std::string::npos) << message;
  EXPECT_NE(message.find("'layers.2.weight' is [30], expected [31]"), std::string::npos) << message;
}

TEST(HuggingFace, IgnoresTensorsByPattern) {
  Model model;
  ScratchFolder folder;
  write_hf_directory(posix_file_system(), folder / "model", model.files);
  Loaded loaded(model);
  loaded.views.erase(loaded.views.begin() + 1);
  EXPECT_THROW(load_hf_tensors(folder / "model", loaded.views), DataError);
  load_hf_tensors(folder / "model", loaded.views, {.ignore = {"layers.1.*"}, .check_finite = false});
  EXPECT_EQ(loaded.memory[4], model.memory[4]);
}

TEST(HuggingFace, NamesTheProblemOfAFolder) {
  Model model;
  model.files.max_shard_bytes = 240;  // three shards, the first with three tensors
  ScratchFolder folder;
  const Path path = folder / "model";
  EXPECT_THROW(open_tensors(path), ConfigError);
  EXPECT_THROW(read_config_json(path), ConfigError);
  write_hf_directory(posix_file_system(), path, model.files);

  const std::string index = read_file(path / "model.safetensors.index.json");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = index;
    text.replace(text.find(from), from.size(), to);
    put_file(path / "model.safetensors.index.json", text);
    return message_of([&] { open_tensors(path); });
  };
  EXPECT_NE(with("\"layers.0.weight\"", "\"layers.9.weight\"").find("layers.9.weight"), std::string::npos);
  EXPECT_NE(with("model-00001-of-00003", "model-00009-of-00003")
                .find("model-00009-of-00003.safetensors, which is missing"),
            std::string::npos);
  EXPECT_NE(with("\"layers.0.weight\": \"model-00001-of-00003.safetensors\",", "").find("does not name"),
            std::string::npos);
  EXPECT_EQ(with("total_size", "total_size"), "");

  std::filesystem::copy_file(path / "model-00001-of-00003.safetensors",
                             path / "model-00002-of-00003.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_NE(with("total_size", "total_size").find("' is in both"), std::string::npos);
}

TEST(HuggingFace, ReplacesAModelFolderAndNothingElse) {
  Model model;
  ScratchFolder folder;
  write_hf_directory(posix_file_system(), folder / "model", model.files);
  model.memory[0][0] = 42;
  write_hf_directory(posix_file_system(), folder / "model", model.files);
  Loaded loaded(model);
  load_hf_tensors(folder / "model", loaded.views);
  EXPECT_EQ(loaded.memory[0][0], 42.0f);

  put_file(folder / "model/thesis.tex", "years of work");
  EXPECT_THROW(write_hf_directory(posix_file_system(), folder / "model", model.files), ConfigError);
  EXPECT_EQ(read_file(folder / "model/thesis.tex"), "years of work");
  put_file(folder / "file", "");
  EXPECT_THROW(write_hf_directory(posix_file_system(), folder / "file", model.files), ConfigError);
}

}  // namespace
}  // namespace strata::checkpoint
