// Any bytes as a pickle: rejected with a DataError, or values that can be traversed.
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "interop/torch/pickle.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;
  using namespace strata::interop;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const Pickle pickle(bytes, "fuzz", [](std::string_view name) { return name.starts_with("argparse."); });
    for (const PickleValue* item : pickle.root().items) {
      if (item != nullptr && item->kind > PickleValue::Kind::kTensor) std::abort();
    }
    if (pickle.root().at("model") == &pickle.root() && pickle.root().kind != PickleValue::Kind::kDict)
      std::abort();
  } catch (const DataError&) {
  }
  return 0;
}
