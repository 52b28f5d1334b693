#include "interop/torch/pickle.h"

#include <bit>
#include <cstring>
#include <unordered_map>

#include "base/error.h"

namespace strata::interop {

using Kind = PickleValue::Kind;

const PickleValue* PickleValue::at(std::string_view key) const {
  if (kind != Kind::kDict) return nullptr;
  for (size_t i = items.size(); i >= 2; i -= 2) {
    if (items[i - 2]->kind == Kind::kText && items[i - 2]->text == key) return items[i - 1];
  }
  return nullptr;
}

// Enough for a million tensors. Without a limit a hostile pickle of one-byte instructions could take a
// hundred times its size in memory.
constexpr size_t kMaxValues = 8'000'000;
constexpr size_t kMaxStack = 8'000'000;

class PickleMachine {
 public:
  PickleMachine(Pickle& pickle, std::string_view bytes, const std::string& where,
                FunctionRef<bool(std::string_view)> is_record)
      : pickle_(pickle), bytes_(bytes), where_(where), is_record_(is_record) {}

  const PickleValue* run() {
    for (;;) {
      const auto code = static_cast<uint8_t>(take(1)[0]);
      if (code == '.') {
        const PickleValue* value = pop();
        if (!stack_.empty() || !marks_.empty()) fail("it ends with values left on the stack");
        return value;
      }
      if (!scalar(code) && !container(code) && !reference(code)) refuse(code);
    }
  }

 private:
  // Numbers, texts and other scalars, which push one value; and framing, which is skipped.
  bool scalar(uint8_t code) {
    switch (code) {
      case 0x80:  // PROTO
        if (const auto version = number<uint8_t>(); version > 5)
          fail("protocol {} is not supported", version);
        return true;
      case 0x95:  // FRAME
        number<uint64_t>();
        return true;
      case 'N':
        return push({});
      case 0x88:
        return push({.kind = Kind::kBool, .integer = 1});
      case 0x89:
        return push({.kind = Kind::kBool});
      case 'J':
        return push_integer(number<int32_t>());
      case 'K':
        return push_integer(number<uint8_t>());
      case 'M':
        return push_integer(number<uint16_t>());
      case 0x8a:  // LONG1
        return push_long(take(number<uint8_t>()));
      case 0x8b:  // LONG4
        return push_long(take(number<uint32_t>()));
      case 'G': {
        uint64_t bits = 0;
        for (const char c : take(8)) bits = bits << 8 | static_cast<uint8_t>(c);
        return push({.kind = Kind::kFloat, .real = std::bit_cast<double>(bits)});
      }
      case 'X':
        return push_text(Kind::kText, number<uint32_t>());
      case 0x8c:
        return push_text(Kind::kText, number<uint8_t>());
      case 0x8d:
        return push_text(Kind::kText, number<uint64_t>());
      case 'U':  // a str of Python 2
        return push_text(Kind::kText, number<uint8_t>());
      case 'T':
        return push_text(Kind::kText, number<uint32_t>());
      case 'C':
        return push_text(Kind::kBytes, number<uint8_t>());
      case 'B':
        return push_text(Kind::kBytes, number<uint32_t>());
      case 0x8e:
      case 0x96:
        return push_text(Kind::kBytes, number<uint64_t>());
      default:
        return false;
    }
  }

  bool container(uint8_t code) {
    switch (code) {
      case '(':
        if (marks_.size() >= kMaxStack) fail("it is nested too deep");
        marks_.push_back(stack_.size());
        return true;
      case ')':
        return push({.kind = Kind::kTuple});
      case ']':
        return push({.kind = Kind::kList});
      case '}':
        return push({.kind = Kind::kDict});
      case 0x85:
      case 0x86:
      case 0x87:
        return push({.kind = Kind::kTuple, .items = pop_last(size_t{code} - 0x84)});
      case 't':
        return push({.kind = Kind::kTuple, .items = pop_to_mark()});
      case 'l':
        return push({.kind = Kind::kList, .items = pop_to_mark()});
      case 'd': {
        auto items = pop_to_mark();
        if (items.size() % 2 != 0) fail("a dict has a key without a value");
        return push({.kind = Kind::kDict, .items = std::move(items)});
      }
      case 'a':
        return add_to(Kind::kList, pop_last(1));
      case 'e':
        return add_to(Kind::kList, pop_to_mark());
      case 's':
        return add_to(Kind::kDict, pop_last(2));
      case 'u':
        return add_to(Kind::kDict, pop_to_mark());
      default:
        return false;
    }
  }

  // The memo, globals and calls.
  bool reference(uint8_t code) {
    switch (code) {
      case '0':
        pop();
        return true;
      case 'q':
        return memoize(number<uint8_t>());
      case 'r':
        return memoize(number<uint32_t>());
      case 0x94:
        return memoize(memo_.size());
      case 'h':
        return recall(number<uint8_t>());
      case 'j':
        return recall(number<uint32_t>());
      case 'c': {
        const std::string_view module = line();
        return push_global(module, line());
      }
      case 0x93: {
        const auto names = pop_last(2);
        if (names[0]->kind != Kind::kText || names[1]->kind != Kind::kText)
          fail("the name of a global is not a text");
        return push_global(names[0]->text, names[1]->text);
      }
      case 'Q':
        return push_storage(pop());
      case 'R':
      case 0x81: {  // NEWOBJ creates an object of a class, like a call
        const auto call = pop_last(2);
        return reduce(*call[0], *call[1]);
      }
      case 'b':
        return build(pop());
      default:
        return false;
    }
  }

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw DataError("[{}] invalid pickle at byte {}: {}", where_, at_,
                    fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void refuse(uint8_t code) const {
    fail("instruction 0x{:02x} is not needed for data and not supported", code);
  }
  [[noreturn]] void refuse(std::string_view name) const {
    throw DataError(
        "[{}] its pickle refers to '{}', which could run code: expected a state dict; nothing was run. If "
        "you trust the file, load it with PyTorch and save its tensors as safetensors",
        where_, name);
  }

  std::string_view take(uint64_t n) {
    if (n > bytes_.size() - at_) fail("it is truncated");
    const auto taken = bytes_.substr(at_, n);
    at_ += n;
    return taken;
  }
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view line() {
    const size_t end = bytes_.find('\n', at_);
    if (end == bytes_.npos) fail("it is truncated");
    const auto text = take(end - at_);
    ++at_;
    return text;
  }

  PickleValue* make(PickleValue value) {
    if (pickle_.values_.size() >= kMaxValues) fail("it creates more than {} values", kMaxValues);
    pickle_.values_.push_back(std::move(value));
    return &pickle_.values_.back();
  }
  bool push_made(PickleValue* value) {
    if (stack_.size() >= kMaxStack) fail("its stack grows beyond {} values", kMaxStack);
    stack_.push_back(value);
    return true;
  }
  bool push(PickleValue value) { return push_made(make(std::move(value))); }
  bool push_integer(int64_t value) { return push({.kind = Kind::kInt, .integer = value}); }
  // An integer of more than 64 bits, such as a random generator's, is stored as bytes.
  bool push_long(std::string_view bytes) {
    if (bytes.size() > 8) return push({.kind = Kind::kBytes, .text = bytes});
    uint64_t value = !bytes.empty() && (bytes.back() & 0x80) != 0 ? ~uint64_t{0} : 0;
    std::memcpy(&value, bytes.data(), bytes.size());
    return push_integer(static_cast<int64_t>(value));
  }
  bool push_text(Kind kind, uint64_t size) { return push({.kind = kind, .text = take(size)}); }

  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  PickleValue* pop() {
    if (stack_.size() <= floor()) fail("its stack is empty");
    PickleValue* value = stack_.back();
    stack_.pop_back();
    return value;
  }
  std::vector<const PickleValue*> pop_last(size_t n) {
    if (stack_.size() < floor() + n) fail("its stack is empty");
    std::vector<const PickleValue*> values(stack_.end() - static_cast<ptrdiff_t>(n), stack_.end());
    stack_.resize(stack_.size() - n);
    return values;
  }
  std::vector<const PickleValue*> pop_to_mark() {
    if (marks_.empty()) fail("its stack has no mark");
    auto values = pop_last(stack_.size() - marks_.back());
    marks_.pop_back();
    return values;
  }

  // Adds items to the list or dict on top of the stack; a record discards them.
  bool add_to(Kind kind, const std::vector<const PickleValue*>& items) {
    PickleValue* target = pop();
    if (target->kind == kind) {
      if (kind == Kind::kDict && items.size() % 2 != 0) fail("a dict has a key without a value");
      target->items.insert(target->items.end(), items.begin(), items.end());
    } else if (target->kind != Kind::kRecord) {
      fail("items are added to a value that is not a list or dict");
    }
    return push_made(target);
  }

  bool memoize(uint64_t key) {
    PickleValue* value = pop();
    memo_[key] = value;
    return push_made(value);
  }
  bool recall(uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) fail("memo entry {} was never stored", key);
    return push_made(found->second);
  }

  static bool is_storage(std::string_view name) {
    return name.starts_with("torch.") && name.ends_with("Storage") && name.find('.', 6) == name.npos;
  }
  bool push_global(std::string_view module, std::string_view name) {
    const std::string& full = pickle_.names_.emplace_back(std::string(module) + "." + std::string(name));
    const bool known = full == "collections.OrderedDict" || full == "torch._utils._rebuild_tensor_v2" ||
                       full == "torch._utils._rebuild_parameter" || is_storage(full) || is_record_(full);
    if (!known) refuse(full);
    return push({.kind = Kind::kGlobal, .text = full});
  }

  // ("storage", class, key, device, elements)
  bool push_storage(const PickleValue* id) {
    const auto& parts = id->items;
    if (id->kind != Kind::kTuple || parts.size() < 5 || parts[0]->kind != Kind::kText ||
        parts[0]->text != "storage" || parts[1]->kind != Kind::kGlobal || !is_storage(parts[1]->text) ||
        parts[2]->kind != Kind::kText || parts[4]->kind != Kind::kInt)
      fail("a persistent id does not name a storage");
    return push(
        {.kind = Kind::kStorage, .integer = parts[4]->integer, .text = parts[2]->text, .items = {parts[1]}});
  }

  bool reduce(const PickleValue& callable, const PickleValue& args) {
    if (callable.kind != Kind::kGlobal || args.kind != Kind::kTuple)
      fail("it calls a value that is not a global");
    const auto& values = args.items;
    if (callable.text == "collections.OrderedDict") {
      PickleValue dict{.kind = Kind::kDict};
      if (values.size() > 1) fail("an OrderedDict with {} arguments", values.size());
      if (values.size() == 1) {
        for (const PickleValue* pair : values[0]->items) {
          if (pair->items.size() != 2) fail("an OrderedDict whose argument is not a list of pairs");
          dict.items.insert(dict.items.end(), pair->items.begin(), pair->items.end());
        }
      }
      return push(std::move(dict));
    }
    if (callable.text == "torch._utils._rebuild_tensor_v2") {
      if (values.size() < 6 || values[0]->kind != Kind::kStorage || values[1]->kind != Kind::kInt ||
          values[2]->kind != Kind::kTuple || values[3]->kind != Kind::kTuple)
        fail("a tensor is not made from a storage, an offset, sizes and strides");
      return push({.kind = Kind::kTensor, .items = {values[0], values[1], values[2], values[3]}});
    }
    if (callable.text == "torch._utils._rebuild_parameter") {
      if (values.empty() || values[0]->kind != Kind::kTensor) fail("a parameter without a tensor");
      return push({.kind = Kind::kTensor, .items = values[0]->items});
    }
    if (!is_record_(callable.text)) refuse(callable.text);
    return push({.kind = Kind::kRecord, .text = callable.text, .items = {&args, nullptr}});
  }

  // Sets an object's attributes: stored for a record, ignored for a dict (`_metadata` of a state dict).
  bool build(const PickleValue* state) {
    PickleValue* target = pop();
    if (target->kind == Kind::kRecord) {
      target->items[1] = state;
    } else if (target->kind != Kind::kDict) {
      fail("attributes are set on a value that is not an object");
    }
    return push_made(target);
  }

  Pickle& pickle_;
  std::string_view bytes_;
  const std::string& where_;
  FunctionRef<bool(std::string_view)> is_record_;
  size_t at_ = 0;
  std::vector<PickleValue*> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, PickleValue*> memo_;
};

Pickle::Pickle(std::string_view bytes, const std::string& where,
               FunctionRef<bool(std::string_view)> is_record) {
  root_ = PickleMachine(*this, bytes, where, is_record).run();
}

}  // namespace strata::interop
