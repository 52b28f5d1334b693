#include "data/input/html_blocks.h"

#include <gumbo.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <memory>
#include <new>

#include "data/input/html_names.h"

namespace strata::data {
namespace {

constexpr size_t kArenaChunk = size_t{1} << 18;
constexpr size_t kArenaLimit = size_t{64} << 20;
constexpr size_t kArenaLimitPerByte = 64;
constexpr int64_t kMaxDepth = 2000;

// The parser's memory, given back at once: freeing its tree node by node would recurse as deep as the page.
class Arena {
 public:
  explicit Arena(size_t limit) : limit_(limit) {}
  // Throws std::bad_alloc, through the parser's C frames, beyond the limit. The parser holds nothing but
  // memory.
  void* take(size_t size) {
    size = (size + 15) / 16 * 16;
    if (size > left_) {
      const size_t chunk = std::max(size, kArenaChunk);
      if (total_ + chunk > limit_) throw std::bad_alloc();
      total_ += chunk;
      chunks_.push_back(std::make_unique_for_overwrite<char[]>(chunk));
      next_ = chunks_.back().get();
      left_ = chunk;
    }
    void* const taken = next_;
    next_ += size;
    left_ -= size;
    return taken;
  }

 private:
  size_t limit_;
  size_t total_ = 0;
  char* next_ = nullptr;
  size_t left_ = 0;
  std::vector<std::unique_ptr<char[]>> chunks_;
};

// Where the content of <script> or <style> ends, which begins at `at`: tags in it are none.
size_t raw_text_end(std::string_view html, size_t at, std::string_view tag) {
  for (at = html.find("</", at); at != html.npos; at = html.find("</", at + 2)) {
    const std::string_view name = html.substr(at + 2, tag.size());
    if (std::equal(name.begin(), name.end(), tag.begin(), tag.end(),
                   [](unsigned char a, char b) { return std::tolower(a) == b; }))
      return at;
  }
  return html.size();
}

// Whether open tags without an end tag pile up. The parser looks through all open elements for many a tag, so
// its time grows with depth times size.
bool nested_too_deep(std::string_view html) {
  if (html.empty()) return false;
  int64_t depth = 0;
  for (size_t at = html.find('<'); at < html.size() - 1; at = html.find('<', at + 1)) {
    const char next = html[at + 1];
    if (next == '/') {
      depth = std::max<int64_t>(0, depth - 1);
    } else if (html.substr(at).starts_with("<!--")) {
      at = std::min(html.find("-->", at), html.size() - 1);
    } else if (std::isalpha(static_cast<unsigned char>(next))) {
      const size_t end = std::min(html.find_first_of(" \t\r\n/>", at), at + 16);
      std::string tag(html.substr(at + 1, end - at - 1));
      for (char& c : tag) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      if (!closes_itself(tag) && ++depth > kMaxDepth) return true;
      if (tag == "script" || tag == "style") at = raw_text_end(html, at, tag) - 1;
    }
  }
  return false;
}

std::string_view attribute(const GumboElement& element, const char* name) {
  const GumboAttribute* found = gumbo_get_attribute(&element.attributes, name);
  return found == nullptr ? std::string_view() : std::string_view(found->value);
}

bool is_white(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f';
}

// Whether all of a table is cells of text, so that a row makes a line.
bool is_data_table(const GumboNode* table) {
  const GumboNode* node = table;
  size_t next = 0;
  for (;;) {
    const GumboVector& children = node->v.element.children;
    if (next == children.length) {
      if (node == table) return true;
      next = node->index_within_parent + 1;
      node = node->parent;
      continue;
    }
    const auto* const child = static_cast<const GumboNode*>(children.data[next]);
    if (child->type != GUMBO_NODE_ELEMENT) {
      ++next;
      continue;
    }
    if (breaks_table(child->v.element.tag)) return false;
    node = child;
    next = 0;
  }
}

class Walk {
 public:
  explicit Walk(HtmlPage& page) : page_(page) {}

  // Depth first without recursion: a node is entered, then its children, then it is left.
  void run(const GumboNode* root) {
    const GumboNode* node = root;
    size_t next = 0;
    enter(node);
    for (;;) {
      const GumboVector& children = node->v.element.children;
      if (next < children.length) {
        const auto* const child = static_cast<const GumboNode*>(children.data[next]);
        if (child->type == GUMBO_NODE_ELEMENT && !is_skipped(child->v.element)) {
          enter(child);
          node = child;
          next = 0;
          continue;
        }
        if (child->type == GUMBO_NODE_TEXT || child->type == GUMBO_NODE_WHITESPACE ||
            child->type == GUMBO_NODE_CDATA)
          add_text(child->v.text.text);
        ++next;
        continue;
      }
      leave(node);
      if (node == root) break;
      next = node->index_within_parent + 1;
      node = node->parent;
    }
  }

 private:
  // What never holds text of the page, and small marks inside of lines.
  static bool is_skipped(const GumboElement& element) {
    if (element.tag_namespace != GUMBO_NAMESPACE_HTML) return element.tag_namespace == GUMBO_NAMESPACE_SVG;
    if (is_never_text(element.tag)) return true;
    return !is_block(element.tag) && is_inline_mark(attribute(element, "class"));
  }

  void enter(const GumboNode* node) {
    const GumboElement& element = node->v.element;
    const GumboTag tag = element.tag;
    if (tag == GUMBO_TAG_A && !attribute(element, "href").empty()) ++links_;
    if (tag == GUMBO_TAG_BR) {
      add_break();
      return;
    }
    if (in_data_table_ && tag == GUMBO_TAG_TR) flush();
    if (!is_block(tag) || in_data_table_) {
      if (is_block(tag)) add_space();
      return;
    }
    flush();
    HtmlElement entry;
    entry.parent = open_.empty() ? 0 : open_.back();
    const bool inside_main = !open_.empty() && page_.elements[entry.parent].main;
    entry.main = inside_main || is_main(tag, attribute(element, "role"), attribute(element, "itemprop"));
    entry.boilerplate = !open_.empty() && is_boilerplate(element, inside_main);
    const bool data_table = tag == GUMBO_TAG_TABLE && is_data_table(node);
    entry.list = data_table || is_list(tag);
    open_.push_back(static_cast<uint32_t>(page_.elements.size()));
    page_.elements.push_back(entry);
    if (tag == GUMBO_TAG_PRE || tag == GUMBO_TAG_XMP || tag == GUMBO_TAG_LISTING) ++pre_;
    if (tag == GUMBO_TAG_LI || tag == GUMBO_TAG_DT || tag == GUMBO_TAG_DD) ++items_;
    if (tag >= GUMBO_TAG_H1 && tag <= GUMBO_TAG_H6) heading_ = 1 + tag - GUMBO_TAG_H1;
    if (data_table) in_data_table_ = true;
  }

  void leave(const GumboNode* node) {
    const GumboTag tag = node->v.element.tag;
    if (tag == GUMBO_TAG_A && !attribute(node->v.element, "href").empty()) --links_;
    if (tag == GUMBO_TAG_BR) return;
    if (in_data_table_) {
      if (tag == GUMBO_TAG_TD || tag == GUMBO_TAG_TH) end_cell();
      if (tag == GUMBO_TAG_TR || tag == GUMBO_TAG_CAPTION) flush();
      if (tag != GUMBO_TAG_TABLE) return;
    }
    if (!is_block(tag)) return;
    flush();
    in_data_table_ = false;
    open_.pop_back();
    if (tag == GUMBO_TAG_PRE || tag == GUMBO_TAG_XMP || tag == GUMBO_TAG_LISTING) --pre_;
    if (tag == GUMBO_TAG_LI || tag == GUMBO_TAG_DT || tag == GUMBO_TAG_DD) --items_;
    if (tag >= GUMBO_TAG_H1 && tag <= GUMBO_TAG_H6) heading_ = 0;
  }

  bool is_boilerplate(const GumboElement& element, bool inside_main) const {
    if (element.tag == GUMBO_TAG_HEADER) return !inside_main;
    return is_boilerplate_tag(element.tag) || is_boilerplate_role(attribute(element, "role")) ||
           is_boilerplate_name(attribute(element, "class")) ||
           is_boilerplate_name(attribute(element, "id")) || is_hidden(element);
  }
  static bool is_hidden(const GumboElement& element) {
    if (gumbo_get_attribute(&element.attributes, "hidden") != nullptr) return true;
    if (attribute(element, "aria-hidden") == "true") return true;
    const std::string_view style = attribute(element, "style");
    const size_t display = style.find("display");
    return display != style.npos && style.substr(display, 16).find("none") != style.npos;
  }

  void add_text(std::string_view text) {
    HtmlBlock& block = block_;
    for (size_t i = 0; i < text.size();) {
      const bool no_break_space = text.substr(i).starts_with("\xC2\xA0");
      if (is_white(text[i]) || no_break_space) {
        if (pre_ > 0) {
          block.text += no_break_space ? ' ' : text[i];
          in_word_ = false;
        } else {
          add_space();
        }
        i += no_break_space ? 2 : 1;
        continue;
      }
      if (cell_ended_) {
        block.text += " | ";
        cell_ended_ = false;
      } else if (space_) {
        block.text += ' ';
      }
      space_ = false;
      if (!in_word_) ++block.words;
      in_word_ = true;
      const size_t begin = i;
      while (i < text.size() && !is_white(text[i]) && static_cast<unsigned char>(text[i]) != 0xC2) ++i;
      if (i == begin) ++i;  // another character of two bytes
      while (i < text.size() && (text[i] & 0xC0) == 0x80) ++i;
      const std::string_view run = text.substr(begin, i - begin);
      block.text += run;
      const auto characters = static_cast<uint32_t>(
          std::count_if(run.begin(), run.end(), [](char c) { return (c & 0xC0) != 0x80; }));
      block.characters += characters;
      if (links_ > 0) block.link_characters += characters;
    }
  }

  void add_space() {
    if (!block_.text.empty() && !is_white(block_.text.back())) space_ = true;
    in_word_ = false;
  }
  void add_break() {
    space_ = false;
    in_word_ = false;
    if (in_data_table_) {
      add_space();
    } else if (!block_.text.empty()) {
      block_.text += '\n';
    }
  }
  void end_cell() {
    if (block_.characters > 0) cell_ended_ = true;
    in_word_ = false;
  }

  void flush() {
    if (block_.characters > 0) {
      while (!block_.text.empty() && is_white(block_.text.back())) block_.text.pop_back();
      block_.element = open_.empty() ? 0 : open_.back();
      block_.kind = heading_ > 0     ? BlockKind::kHeading
                    : pre_ > 0       ? BlockKind::kPreformatted
                    : in_data_table_ ? BlockKind::kTableRow
                    : items_ > 0     ? BlockKind::kListItem
                                     : BlockKind::kParagraph;
      block_.heading_level = heading_;
      page_.blocks.push_back(std::move(block_));
    }
    block_ = {};
    space_ = false;
    in_word_ = false;
    cell_ended_ = false;
  }

  HtmlPage& page_;
  HtmlBlock block_;
  std::vector<uint32_t> open_;
  int links_ = 0, pre_ = 0, items_ = 0, heading_ = 0;
  bool in_data_table_ = false;
  bool space_ = false;  // a space is due before the next word
  bool in_word_ = false;
  bool cell_ended_ = false;  // a cell's border is due before the next word
};

}  // namespace

bool parse_html(std::string_view html, HtmlPage& page) {
  page.elements.clear();
  page.blocks.clear();
  if (nested_too_deep(html)) return false;
  Arena arena(kArenaLimit + kArenaLimitPerByte * html.size());
  GumboOptions options = kGumboDefaultOptions;
  options.allocator = [](void* memory, size_t size) { return static_cast<Arena*>(memory)->take(size); };
  options.deallocator = [](void*, void*) {};
  options.userdata = &arena;
  options.max_errors = 0;
  try {
    const GumboOutput* const output = gumbo_parse_with_options(&options, html.data(), html.size());
    const GumboVector& children = output->root->v.element.children;
    for (size_t i = 0; i < children.length; ++i) {
      const auto* const child = static_cast<const GumboNode*>(children.data[i]);
      if (child->type == GUMBO_NODE_ELEMENT && child->v.element.tag == GUMBO_TAG_BODY) {
        Walk(page).run(child);
        break;
      }
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  if (page.elements.empty()) page.elements.emplace_back();
  return true;
}

}  // namespace strata::data
