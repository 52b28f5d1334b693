// A node's constants: one struct an op, read while a program is made, never while it runs.
//
//   struct ScaleAttrs {
//     double factor = 1;
//     bool operator==(const ScaleAttrs&) const = default;
//     void describe(graph::AttributeText& to) const { to("factor", factor); }
//   };
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::graph {

// "factor=0.5 row=1", for people; or the same as bytes that only equal attributes give.
class AttributeText {
 public:
  enum class Form : uint8_t { kReadable, kExact };
  explicit AttributeText(Form form = Form::kReadable) : form_(form) {}
  void operator()(std::string_view name, bool value) { (*this)(name, int64_t{value}); }
  void operator()(std::string_view name, int64_t value);
  void operator()(std::string_view name, double value);
  void operator()(std::string_view name, std::string_view value);
  void operator()(std::string_view name, const std::vector<double>& values);  // readable: how many
  const std::string& text() const { return text_; }

 private:
  void add_exactly(std::string_view name, const void* bytes, size_t size);

  Form form_;
  std::string text_;
};

// Holds one of those structs, shared between copies and never changed.
class Attributes {
 public:
  Attributes() = default;  // of an op that has none
  template <typename T>
  requires requires(const T& one, AttributeText& to) { one.describe(to); }
  Attributes(T value) : held_(std::make_shared<const Holder<T>>(std::move(value))) {}

  // The struct. InternalError if the attributes hold another type.
  template <typename T>
  const T& as() const {
    const auto* held = dynamic_cast<const Holder<T>*>(held_.get());
    if (held == nullptr) throw_wrong_type();
    return held->value;
  }
  bool operator==(const Attributes& other) const;
  std::string str() const;
  void describe(AttributeText& to) const {
    if (held_ != nullptr) held_->describe(to);
  }
  // Adds them to a key: among nodes of one op what appends the same bytes is equal.
  void append_to(std::string& key) const;

 private:
  struct Base {
    virtual ~Base() = default;
    virtual void describe(AttributeText& to) const = 0;
    virtual bool equals(const Base& other) const = 0;
  };
  template <typename T>
  struct Holder final : Base {
    explicit Holder(T held) : value(std::move(held)) {}
    void describe(AttributeText& to) const override { value.describe(to); }
    bool equals(const Base& other) const override {
      const auto* same = dynamic_cast<const Holder*>(&other);
      return same != nullptr && same->value == value;
    }
    T value;
  };
  [[noreturn]] void throw_wrong_type() const;

  std::shared_ptr<const Base> held_;
};

}  // namespace strata::graph
