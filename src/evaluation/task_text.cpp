#include "evaluation/task_text.h"

#include <utf8proc.h>

#include "data/text/characters.h"

namespace strata::evaluation {
namespace {

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t at = 0;
  for (size_t found = text.find(from); found != text.npos; found = text.find(from, at)) {
    out.append(text.substr(at, found - at)).append(to);
    at = found + from.size();
  }
  return out.append(text.substr(at));
}

// re.sub(r"\[.*?\]", "", text): "." is any character but a newline.
std::string without_brackets(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t open = text.find('[', at);
    if (open == text.npos) return out.append(text.substr(at));
    const size_t close = text.find_first_of("]\n", open);
    const bool whole = close != text.npos && text[close] == ']';
    out.append(text.substr(at, open - at + (whole ? 0 : 1)));
    at = whole ? close + 1 : open + 1;
  }
  return out;
}

}  // namespace

std::string capitalized(std::string_view text) {
  if (text.empty()) return {};
  const data::Character first = data::decode_utf8(text.data(), text.data() + text.size());
  std::string lower_first, lower_all, out;
  data::lower(text.substr(0, first.size), lower_first);
  data::lower(text, lower_all);
  data::append_code_point(
      out, static_cast<uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(first.value))));
  return out.append(lower_all, lower_first.size());
}

std::string without_wikihow_marks(std::string_view text) {
  return replaced(without_brackets(replaced(data::strip(text), " [title]", ". ")), "  ", " ");
}

LastWord split_last_word(std::string_view text) {
  const size_t space = text.rfind(' ');
  if (space == text.npos) return {"", std::string(text)};
  return {std::string(text.substr(0, space)), std::string(text.substr(space + 1))};
}

}  // namespace strata::evaluation
