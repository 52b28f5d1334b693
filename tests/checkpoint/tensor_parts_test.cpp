// Tensors of files that have rows of several parameters.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/error.h"
#include "checkpoint/background_save.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/packed_write.h"
#include "checkpoint/regions.h"
#include "checkpoint/weights.h"
#include "fixtures/parted_family.h"
#include "fixtures/scratch_folder.h"
#include "fixtures/tiny_program.h"
#include "program/initialize.h"

namespace strata::checkpoint {
namespace {

TEST(PartRows, AreRunsOfTheTensor) {
  const PartRows part{2, 3, 7};
  EXPECT_TRUE(divides(part, 6));
  EXPECT_FALSE(divides(part, 7));
  EXPECT_FALSE(divides(PartRows{5, 3, 7}, 6));
  EXPECT_EQ(part.of_tensor(6), 14);
  // Blocks of rows 0 to 6 and 7 to 13, of which 2 to 4 and 9 to 11 are the part's.
  const int64_t expected[] = {-1, -1, 0, 1, 2, -1, -1, -1, -1, 3, 4, 5, -1, -1};
  for (int64_t row = 0; row < 14; ++row) {
    const RowRun run = run_at(part, row);
    EXPECT_EQ(run.file_row, row);
    for (int64_t i = 0; i < run.rows; ++i)
      EXPECT_EQ(run.memory_row < 0 ? -1 : run.memory_row + i, expected[row + i]) << row;
  }
}

class TensorParts : public testing::Test {
 protected:
  TensorParts() {
    options_.model.family = &models::parted_family();
    options_.model.heads = 4;
    options_.model.kv_heads = 2;
    options_.model.hidden_size = 64;
  }

  std::unique_ptr<program::Executor> executor(uint64_t seed) const {
    auto made = std::make_unique<program::Executor>(program::compile({program::tiny_request()}, options_),
                                                    device::make_cpu_device(compute_threads()));
    program::initialize_weights(*made, seed);
    return made;
  }
  ModelFiles files_of(const program::Executor& executor) const {
    return {.config_json = "{}",
            .files = {},
            .weights = read_only(weight_views(options_.model, executor)),
            .dtype = DType::kF32};
  }
  Path write(const program::Executor& executor, const char* name = "model") const {
    write_hf_directory(posix_file_system(), scratch_ / name, files_of(executor));
    return scratch_ / name;
  }
  static std::vector<float> tensor(const Path& folder, const std::string& name) {
    const TensorSource source = open_tensors(folder);
    const auto& entry = source.tensors.at(name);
    std::vector<float> values(static_cast<size_t>(entry.tensor->shape.elements()));
    entry.file->read(*entry.tensor, 0, values.data(), values.size() * sizeof(float));
    return values;
  }
  // Rewrites a folder with its tensors changed.
  void change(const Path& folder, const std::function<void(std::vector<TensorView>&)>& edit) const {
    const TensorSource source = open_tensors(folder);
    ModelFiles files{.config_json = "{}", .files = {}, .weights = {}, .dtype = DType::kF32};
    for (const auto& [name, entry] : source.tensors)
      files.weights.push_back({name, entry.tensor->shape, DType::kF32, in_file(*entry.file, *entry.tensor)});
    edit(files.weights);
    write_hf_directory(posix_file_system(), scratch_ / "changed", files);
  }
  std::string refusal() const {
    try {
      open_weights(scratch_ / "changed", options_.model);
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  }
  static void expect_same_weights(const program::Executor& a, const program::Executor& b) {
    for (const program::Persistent& value : a.set().persistent) {
      if (value.role != graph::Role::kParameter) continue;
      EXPECT_TRUE(a.read_all<char>(value.name) == b.read_all<char>(value.name)) << value.name;
    }
  }

  program::CompileOptions options_ = program::tiny_options("llama3-5m");
  ScratchFolder scratch_;
};

TEST_F(TensorParts, EveryElementIsAtItsPlace) {
  const auto one = executor(3);
  const Path folder = write(*one);
  const int64_t d = 64, hd = 16, ffn = options_.model.intermediate_size;
  const auto qkv = one->read_all<float>("layers.1.attention.qkv.weight");
  const auto up = one->read_all<float>("layers.1.ffn.up.weight");
  std::vector<float> fused, turned(static_cast<size_t>(d * (2 * hd + ffn)));
  const auto append = [&](const std::vector<float>& from, int64_t row, int64_t rows) {
    fused.insert(fused.end(), from.begin() + row * d, from.begin() + (row + rows) * d);
  };
  for (int64_t head = 0; head < 2; ++head) {
    append(qkv, head * 2 * hd, 2 * hd);
    append(qkv, 4 * hd + head * hd, hd);
    append(up, head * ffn / 2, ffn / 2);
    for (int64_t r = 0; r < hd + ffn / 2; ++r) {
      for (int64_t c = 0; c < d; ++c) {
        const float value = r < hd ? qkv[static_cast<size_t>((6 * hd + head * hd + r) * d + c)]
                                   : up[static_cast<size_t>((ffn + head * ffn / 2 + r - hd) * d + c)];
        turned[static_cast<size_t>(c * (2 * hd + ffn) + head * (hd + ffn / 2) + r)] = value;
      }
    }
  }
  EXPECT_EQ(tensor(folder, "model.layers.1.fused.weight"), fused);
  EXPECT_EQ(tensor(folder, "model.layers.1.turned.weight"), turned);
  const auto out = one->read_all<float>("layers.1.attention.out.weight");
  EXPECT_EQ(tensor(folder, "model.layers.1.v_conv1d.weight"),
            std::vector<float>(out.begin() + d * d / 2, out.end()));
  EXPECT_EQ(open_tensors(folder).tensors.at("model.layers.1.v_conv1d.weight").tensor->shape,
            (Shape{d / 2, 1, d}));

  const auto other = executor(4);
  load_hugging_face(folder, options_.model, *other);
  expect_same_weights(*one, *other);
}

TEST_F(TensorParts, NamesWrongTensors) {
  const Path folder = write(*executor(3));
  change(folder, [](auto& tensors) {
    std::erase_if(tensors, [](const auto& view) { return view.name == "model.layers.2.fused.weight"; });
    for (TensorView& view : tensors) {
      if (view.name == "model.layers.0.fused.weight") view.shape = {63, 176};
      if (view.name == "model.layers.1.k_conv1d.weight") view.shape = {16, 64};
    }
    tensors.push_back(tensors.front());
    tensors.back().name = "model.layers.0.self_attn.q_proj.weight";
  });
  const std::string found = refusal();
  EXPECT_EQ(
      found.substr(found.find("does not")),
      "does not contain the tensors of this model: 1 missing: 'model.layers.2.fused.weight' (nearest: "
      "'model.layers.0.fused.weight'); 1 unexpected: 'model.layers.0.self_attn.q_proj.weight' (nearest: "
      "'model.layers.0.mlp.down_proj.weight'); 2 of the wrong shape or type: 'model.layers.0.fused.weight' is "
      "[63, 176], expected [176, 64], 'model.layers.1.k_conv1d.weight' is [16, 64], expected [16, 1, 64]; check "
      "that config.json belongs to it");
}

// As transformers saves an OLMo Hybrid.
TEST_F(TensorParts, AreReadIfTheFileCutsThemElsewhere) {
  const auto one = executor(3), two = executor(4);
  const Path folder = write(*one);
  std::vector<std::vector<float>> memory;
  const auto recut_to = [&](std::initializer_list<int64_t> sizes) {
    memory.clear();
    change(folder, [&](auto& tensors) {
      for (int layer = 0; layer < options_.model.layers; ++layer) {
        std::vector<float> whole;
        const std::string prefix = fmt::format("model.layers.{}.", layer);
        for (const char* name : {"q", "k", "v"}) {
          const auto part = tensor(folder, prefix + name + "_conv1d.weight");
          whole.insert(whole.end(), part.begin(), part.end());
        }
        auto size = sizes.begin();
        int64_t row = 0;
        for (const char* name : {"q", "k", "v"}) {
          const auto view = std::find_if(tensors.begin(), tensors.end(), [&](const TensorView& each) {
            return each.name == prefix + name + "_conv1d.weight";
          });
          memory.emplace_back(whole.begin() + row * 64, whole.begin() + (row + *size) * 64);
          view->shape = {*size, 1, 64};
          view->storage = in_memory(memory.back().data());
          row += *size++;
        }
      }
    });
  };
  recut_to({21, 21, 22});
  load_hugging_face(scratch_ / "changed", options_.model, *two);
  expect_same_weights(*one, *two);
  recut_to({21, 21, 21});
  const std::string found = refusal();
  EXPECT_NE(found.find("'model.layers.0.v_conv1d.weight' is [21, 1, 64], expected [32, 1, 64]"), found.npos)
      << found;
}

TEST_F(TensorParts, AreReadFromFp8Blocks) {
  const auto one = executor(3), two = executor(4);
  const Path folder = write(*one);
  change(folder, [](auto& tensors) {
    std::vector<TensorView> packed;
    for (const TensorView& view : tensors) {
      if (view.name.ends_with("fused.weight")) {
        for (TensorView& part : in_fp8_blocks(view)) packed.push_back(std::move(part));
      } else {
        packed.push_back(view);
      }
    }
    tensors = std::move(packed);
  });
  load_hugging_face(scratch_ / "changed", options_.model, *two);
  for (const char* name : {"layers.0.attention.qkv.weight", "layers.2.ffn.up.weight"}) {
    const auto before = one->read_all<float>(name), after = two->read_all<float>(name);
    double most = 0, error = 0, differ = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      most = std::max(most, std::abs(static_cast<double>(before[i])));
      error = std::max(error, std::abs(static_cast<double>(before[i]) - static_cast<double>(after[i])));
      differ += before[i] != after[i] ? 1 : 0;
    }
    EXPECT_LT(error, most / 16) << name;
    // Half of the rows are not in these tensors.
    EXPECT_GT(differ, 0) << name;
    EXPECT_LT(differ, static_cast<double>(before.size())) << name;
  }
}

TEST_F(TensorParts, AreSavedInTheBackgroundAndResumed) {
  const auto one = executor(3), two = executor(4);
  one->run_script(0);
  const auto content = [&] {
    CheckpointContent made;
    made.model = files_of(*one);
    made.optimizer = read_only(state_views(options_.model, *one));
    made.state_json = "{}";
    made.step = 1;
    return made;
  };
  save_checkpoint(posix_file_system(), scratch_ / "plain", content());
  BackgroundSave saving(posix_file_system(), scratch_ / "later", {}, 16 << 20);
  saving.begin(content());
  saving.before_update();
  const Path later = saving.finish()->saved.path;
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_TRUE(read_file(later / file) == read_file(scratch_ / "plain/step-00000001" / file)) << file;
  const auto states = state_views(options_.model, *two);
  load_checkpoint(later, weight_views(options_.model, *two), states);
  expect_same_weights(*one, *two);
  EXPECT_TRUE(std::any_of(states.begin(), states.end(), [](const MutableTensorView& view) {
    return view.name == "m/model.layers.0.fused.weight#32";
  }));
}

TEST_F(TensorParts, MustHaveEveryRowOnce) {
  float memory[64] = {};
  const auto part = [&](int64_t rows, PartRows where) {
    TensorView view{"w", {rows, 2}, DType::kF32, in_memory(memory)};
    view.part = where;
    return view;
  };
  TensorView whole{"w", {10, 2}, DType::kF32, nullptr};
  whole.parts = {part(4, {0, 2, 5}), part(6, {2, 3, 5})};
  EXPECT_NO_THROW(check_view(whole));
  for (const auto& [rows, where] : {std::pair{6, PartRows{1, 3, 5}},
                                    {4, PartRows{2, 2, 5}},
                                    {9, PartRows{2, 3, 5}},
                                    {5, PartRows{2, 3, 5}}}) {
    whole.parts[1] = part(rows, where);
    EXPECT_THROW(check_view(whole), InternalError) << where.first << ' ' << where.count << ' ' << rows;
  }
}

}  // namespace
}  // namespace strata::checkpoint
