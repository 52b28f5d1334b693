// The tags of a page, read as the HTML standard's tokenizer does if nothing has to be repaired.
#pragma once

#include <gumbo.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/input/html_nodes.h"
#include "data/input/html_rules.h"

namespace strata::data {

inline bool is_html_white(char c) {
  return c == ' ' || c == '\t' || c == '\n';
}
inline bool is_html_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Line ends as the standard reads them.
void copy_with_newlines(std::string_view html, std::string& out);
// Whether the full parser may take a character for another one: control characters, noncharacters and a few
// that share bytes with those.
bool has_odd_characters(const std::string& page);
size_t count_less_than(const std::string& page);

struct HtmlTag {
  GumboTag tag = GUMBO_TAG_UNKNOWN;
  TagRule rule = TagRule::kRare;
  bool ends = false;    // </…>
  bool closed = false;  // <…/>
  bool link = false;    // <a> with an address
  std::string_view name = {}, classes = {};
  std::span<const HtmlAttribute> attributes = {};  // until the next tag is read
};

// The page has no carriage returns and must outlive the scanner. A function that returns false has found
// something to repair, or something rare; then the scanner is of no further use.
class HtmlScanner {
 public:
  explicit HtmlScanner(std::string_view page)
      : begin_(page.data()), at_(begin_), end_(begin_ + page.size()) {}

  bool at_end() const { return at_ == end_; }
  std::string_view next_text();  // to the next '<', or the end; empty at a '<'

  // At a '<'.
  enum class Markup { kTag, kComment, kDoctype, kUnclear };
  Markup next_markup(HtmlTag& tag);

  // Skips from the end of an element's begin tag to the end of its end tag: for elements whose content is not
  // markup; for <select>, which holds choices and text and lets no error out; for <svg> without HTML elements
  // but titles.
  bool skip_raw(GumboTag tag);
  bool skip_select();
  bool skip_drawing(const HtmlTag& drawing);

  // So far.
  size_t tags() const { return tags_; }
  size_t attributes() const { return attributes_read_; }
  size_t deepest_drawing() const { return deepest_drawing_; }
  size_t closed_in_drawings() const { return closed_; }  // elements without an end tag
  std::string_view doctype() const { return doctype_; }  // as written after "<!"

 private:
  bool skip_comment();
  bool read_tag(HtmlTag& tag);
  bool read_attributes(const char* at, HtmlTag& tag);
  bool read_value(const char*& at, std::string_view& value) const;
  bool next_inside(HtmlTag& tag);
  std::string_view rest() const { return {at_, static_cast<size_t>(end_ - at_)}; }

  const char* const begin_;
  const char* at_;
  const char* const end_;
  std::vector<HtmlAttribute> attributes_;  // of the tag that was read last
  size_t tags_ = 0, attributes_read_ = 0, deepest_drawing_ = 0, closed_ = 0;
  std::string_view doctype_;
};

}  // namespace strata::data
