// Compares files of torch.save (tools/golden/make_torch_golden.py) with the same values in safetensors.
#include "interop/torch/torch_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/huggingface.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_io.h"
#include "fixtures/scratch_folder.h"

namespace strata::checkpoint {
namespace {

Path golden(const std::string& name) {
  return Path(STRATA_TEST_DATA) / "checkpoint/torch" / name;
}

std::string refusal_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const DataError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

void expect_contains(const std::string& message, const std::vector<std::string>& parts) {
  for (const auto& part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
}

std::string bytes_of(const TensorFile& file, const TensorInfo& tensor) {
  std::string bytes(tensor.bytes, '\0');
  file.read(tensor, 0, bytes.data(), bytes.size());
  return bytes;
}

TEST(TorchFile, HasTheTensorsThatTorchSaved) {
  const SafetensorsFile expected(golden("state.safetensors"));
  for (const char* name : {"state.bin", "state-protocol-5.bin"}) {
    const interop::TorchFile file(golden(name));
    EXPECT_EQ(file.tensors().size(), expected.tensors().size());
    for (const TensorInfo& wanted : expected.tensors()) {
      const TensorInfo* found = file.find(wanted.name);
      ASSERT_NE(found, nullptr) << wanted.name;
      EXPECT_EQ(found->dtype_name, wanted.dtype_name) << wanted.name;
      EXPECT_EQ(found->shape, wanted.shape) << wanted.name;
      EXPECT_EQ(bytes_of(file, *found), bytes_of(expected, wanted)) << name << " " << wanted.name;
    }
    EXPECT_EQ(file.find("tied")->offset, file.find("plain")->offset) << "one storage";
  }
}

TEST(TorchFile, ReadsPartsOfATensorThatIsNotRowMajor) {
  const interop::TorchFile file(golden("state.bin"));
  for (const char* name : {"transposed", "permuted", "columns", "fp16"}) {
    const TensorInfo& tensor = *file.find(name);
    const std::string whole = bytes_of(file, tensor);
    const auto width = static_cast<size_t>(size_of(*tensor.dtype));
    for (size_t first = 0; first < whole.size(); first += width) {
      for (size_t size = width; first + size <= whole.size(); size += 3 * width) {
        std::string part(size, '\0');
        file.read(tensor, first, part.data(), size);
        ASSERT_EQ(part, whole.substr(first, size)) << name << " " << first << "+" << size;
      }
    }
  }
}

TEST(TorchFile, NothingIsCalled) {
  expect_contains(refusal_of([] { interop::TorchFile file(golden("evil.bin")); }),
                  {"evil.bin", "system", "nothing was run", "safetensors"});
  EXPECT_FALSE(std::filesystem::exists("called"));
  expect_contains(refusal_of([] { interop::TorchFile file(golden("module.bin")); }),
                  {"torch.nn.modules.linear.Linear"});
}

TEST(TorchFile, NamesTheKindOfOtherFiles) {
  expect_contains(refusal_of([] { interop::TorchFile file(golden("legacy.bin")); }),
                  {"before 1.6", "torch.save(torch.load("});
  expect_contains(refusal_of([] { interop::TorchFile file(golden("nested.bin")); }),
                  {"'epoch' is not a tensor"});
  expect_contains(refusal_of([] { interop::TorchFile file(golden("compressed.bin")); }), {"compressed"});
  expect_contains(refusal_of([] { interop::TorchFile file(golden("llama-tied/config.json")); }),
                  {"not a zip archive"});
  EXPECT_THROW(interop::TorchFile(golden("absent.bin")), ConfigError);
}

// A file that is truncated anywhere or has any byte changed is refused or yields tensors within its bounds;
// it never causes a crash.
TEST(TorchFile, DamageNeverCrashes) {
  const std::string good = read_file(golden("state.bin"));
  ScratchFolder folder;
  const Path path = folder / "model.bin";
  const auto use = [&](const std::string& bytes) {
    put_file(path, bytes);
    try {
      const interop::TorchFile file(path);
      for (const TensorInfo& tensor : file.tensors()) bytes_of(file, tensor);
      return true;
    } catch (const DataError&) {
      return false;
    }
  };
  EXPECT_TRUE(use(good));
  // The directory ends 22 bytes before the end.
  for (size_t size = 0; size + 22 < good.size(); size += 131) EXPECT_FALSE(use(good.substr(0, size))) << size;
  for (size_t at = 0; at < good.size(); at += 23) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
    use(bad);
  }
}

interop::Pickle* read_pickle(const std::string& bytes) {
  return new interop::Pickle(bytes, "it", [](std::string_view name) { return name == "argparse.Namespace"; });
}

TEST(PickleReader, RecordsAreInert) {
  // argparse.Namespace(), then BUILD with {"tp": 2}; a dict that contains itself.
  using namespace std::string_literals;
  const std::string bytes =
      "\x80\2}q\0(X\4\0\0\0argscargparse\nNamespace\n)\x81}X\2\0\0\0tpK\2sbX\4\0\0\0selfh\0u."s;
  const std::unique_ptr<interop::Pickle> pickle(read_pickle(bytes));
  const interop::PickleValue* args = pickle->root().at("args");
  ASSERT_NE(args, nullptr);
  EXPECT_EQ(args->kind, interop::PickleValue::Kind::kRecord);
  EXPECT_EQ(args->items.at(1)->at("tp")->integer, 2);
  EXPECT_EQ(pickle->root().at("self"), &pickle->root());
  EXPECT_EQ(pickle->root().at("absent"), nullptr);
}

TEST(PickleReader, RefusesUnsoundPrograms) {
  using namespace std::string_literals;
  for (const auto& one : std::vector<std::pair<std::string, std::string>>{
           {""s, "is truncated"},
           {"\x80\x09."s, "protocol 9"},
           {"."s, "stack is empty"},
           {"(t"s, "is truncated"},
           {"t."s, "no mark"},
           {"NN."s, "left on the stack"},
           {"h\0."s, "never stored"},
           {"}Ns."s, "stack is empty"},
           {"NNa."s, "not a list or dict"},
           {"X\xff\xff\xff\xff"
            "a."s,
            "is truncated"},
           {"cos\nsystem\n."s, "os.system"},
           {"X\2\0\0\0osX\6\0\0\0system\x93."s, "os.system"},
           {"cbuiltins\neval\nX\1\0\0\0"
            "1\x85R."s,
            "builtins.eval"},
           {"ccollections\nOrderedDict\nNR."s, "not a global"},
           {"ctorch\nFloatStorage\n)R."s, "torch.FloatStorage"},
           {"ctorch._utils\n_rebuild_tensor_v2\n)R."s, "storage"},
           {"NQ."s, "persistent id"},
           {"P12\n."s, "0x50"},
           {"(ios\nsystem\n."s, "0x69"},
           {"\x82\1."s, "0x82"}}) {
    const std::string message = refusal_of([&] { delete read_pickle(one.first); });
    EXPECT_NE(message.find(one.second), std::string::npos) << message << ", expected " << one.second;
  }
}

TEST(HuggingFace, PicklesStandInForSafetensors) {
  const auto source = open_tensors(golden("llama-tied"));
  EXPECT_EQ(source.files.size(), 2u);
  const auto info = inspect_checkpoint(golden("llama-tied"));
  EXPECT_EQ(info.tensors.size(), source.tensors.size());
  EXPECT_TRUE(verify_checkpoint(golden("llama-tied")).empty());

  ScratchFolder folder;
  std::filesystem::copy(golden("llama-tied"), folder / "model");
  std::filesystem::remove(folder / "model/pytorch_model-00002-of-00002.bin");
  expect_contains(refusal_of([&] { open_tensors(folder / "model"); }),
                  {"pytorch_model.bin.index.json", "pytorch_model-00002-of-00002.bin", "missing"});
}

}  // namespace
}  // namespace strata::checkpoint
