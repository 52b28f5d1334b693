#include "graph/attributes.h"

#include "base/error.h"

namespace strata::graph {

void AttributeText::add_exactly(std::string_view name, const void* bytes, size_t size) {
  text_ += name;
  text_ += '=';
  text_.append(reinterpret_cast<const char*>(&size), sizeof size);
  text_.append(static_cast<const char*>(bytes), size);
}

void AttributeText::operator()(std::string_view name, std::string_view value) {
  if (form_ == Form::kExact) return add_exactly(name, value.data(), value.size());
  if (!text_.empty()) text_ += ' ';
  text_ += fmt::format("{}={}", name, value);
}
void AttributeText::operator()(std::string_view name, int64_t value) {
  if (form_ == Form::kExact) return add_exactly(name, &value, sizeof value);
  (*this)(name, std::string_view(fmt::format("{}", value)));
}
void AttributeText::operator()(std::string_view name, double value) {
  if (form_ == Form::kExact) return add_exactly(name, &value, sizeof value);
  (*this)(name, std::string_view(fmt::format("{}", value)));
}
void AttributeText::operator()(std::string_view name, const std::vector<double>& values) {
  if (form_ == Form::kExact) return add_exactly(name, values.data(), values.size() * sizeof(double));
  (*this)(name, std::string_view(fmt::format("[{} numbers]", values.size())));
}

bool Attributes::operator==(const Attributes& other) const {
  if (held_ == other.held_) return true;
  return held_ != nullptr && other.held_ != nullptr && held_->equals(*other.held_);
}

std::string Attributes::str() const {
  AttributeText text;
  if (held_ != nullptr) held_->describe(text);
  return text.text();
}

void Attributes::append_to(std::string& key) const {
  if (held_ == nullptr) return;
  AttributeText text(AttributeText::Form::kExact);
  held_->describe(text);
  key += text.text();
}

void Attributes::throw_wrong_type() const {
  throw InternalError("a node's attributes are of another op: {}", held_ == nullptr ? "none" : str());
}

}  // namespace strata::graph
