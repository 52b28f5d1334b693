// Reads Python pickles without executing anything. A pickle is a program for a small stack machine; this
// reader supports the instructions that build data, and calls nothing: the few callables in PyTorch's state
// dicts are implemented here, those that the caller accepts become inert records, and every other name is a
// DataError, whether or not the pickle calls it.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"

namespace strata::interop {

struct PickleValue {
  enum class Kind : uint8_t {
    kNone,
    kBool,
    kInt,
    kFloat,
    kText,
    kBytes,
    kTuple,
    kList,
    kDict,     // items: key, value, key, value, …, in the order of insertion
    kGlobal,   // text: "module.name"
    kRecord,   // text: the global; items: its arguments (a tuple), its state or null
    kStorage,  // text: the key of its bytes; items: the storage's class; integer: its elements
    kTensor,   // items: storage, offset, sizes, strides
  };
  Kind kind = Kind::kNone;
  int64_t integer = 0;  // kInt, kBool
  double real = 0;
  std::string_view text = {};
  std::vector<const PickleValue*> items = {};

  // The last value under a text key of a dict; null if there is none.
  const PickleValue* at(std::string_view key) const;
};

// The values of a pickle. They refer to each other and to the bytes, and may form cycles.
class Pickle {
 public:
  // `bytes` must outlive the object. `is_record` selects the globals that become records. DataError for an
  // invalid pickle.
  Pickle(std::string_view bytes, const std::string& where, FunctionRef<bool(std::string_view)> is_record);
  Pickle(const Pickle&) = delete;
  Pickle& operator=(const Pickle&) = delete;
  const PickleValue& root() const { return *root_; }

 private:
  friend class PickleMachine;
  std::deque<PickleValue> values_;
  std::deque<std::string> names_;
  const PickleValue* root_ = nullptr;
};

}  // namespace strata::interop
