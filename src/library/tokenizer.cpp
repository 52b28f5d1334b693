#include <filesystem>

#include "data/tokenizer/tokenizer.h"
#include "strata/data.h"

namespace strata {

struct Tokenizer::Impl {
  data::Tokenizer tokenizer;
};

Tokenizer::Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Tokenizer Tokenizer::open(const std::string& path) {
  const Path file = std::filesystem::is_directory(path) ? Path(path) / "tokenizer.json" : Path(path);
  return Tokenizer(std::make_shared<const Impl>(Impl{data::Tokenizer::load(file)}));
}

int64_t Tokenizer::vocab_size() const {
  return impl_->tokenizer.vocab_size();
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool special) const {
  return impl_->tokenizer.encode(text, {.add_special_tokens = special});
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool special) const {
  return impl_->tokenizer.decode_text(ids, {.skip_special = !special});
}

}  // namespace strata
