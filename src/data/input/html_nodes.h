// A page as a list: the elements that begin and end, and the text between them, in the order of the page.
// Only what affects the split into blocks is included: of inline elements only links, line breaks, and those
// whose text is not part of the page.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata::data {

enum class HtmlName : uint8_t { kClass, kId, kRole, kItemProperty, kStyle, kHidden, kAriaHidden };

struct HtmlAttribute {
  HtmlName name = HtmlName::kClass;
  std::string_view value;
};

struct HtmlNode {
  enum Kind : uint8_t { kText, kBegin, kEnd };
  Kind kind = kText;
  bool skipped = false;            // kBegin: the text inside is none of the page's
  bool link = false;               // <a> with an address, at both ends
  uint16_t tag = 0;                // a GumboTag, at both ends
  uint32_t end = 0;                // kBegin: the place of its kEnd
  uint32_t attribute = 0, of = 0;  // kBegin of a block element: its attributes, the first and how many
  std::string_view text = {};      // kText: never empty
};

struct HtmlNodes {
  std::vector<HtmlNode> nodes;  // [0] begins the body, the last one ends it; empty: there is no body
  std::vector<HtmlAttribute> attributes;

  // The memory that the views point into, besides the page itself.
  std::string page;
  std::deque<std::string> strings;
  std::vector<std::unique_ptr<char[]>> memory;

  // Returns the first attribute of this name, or null.
  const std::string_view* find(const HtmlNode& node, HtmlName name) const {
    for (uint32_t i = node.attribute; i < node.attribute + node.of; ++i) {
      if (attributes[i].name == name) return &attributes[i].value;
    }
    return nullptr;
  }
  std::string_view value(const HtmlNode& node, HtmlName name) const {
    const std::string_view* const found = find(node, name);
    return found == nullptr ? std::string_view() : *found;
  }
  void begin(HtmlNode node, std::span<const HtmlAttribute> of_node);
  void end(uint32_t begun);  // the element that begins there
};

// Valid UTF-8 in and out, read as the HTML standard repairs it. False for pages nested deeper than 2000
// elements, and where the tree would take more than 64 MiB and 64 bytes for a byte: neither is ever a text,
// and both can take hours.
bool read_any_page(std::string_view html, HtmlNodes& out);

// Like read_any_page(), many times faster, for pages that need no repair: each end tag is at a place where
// its element may end, and nothing is missing except tags that the standard lets authors omit (</p>, </li>,
// …). Returns false for other pages, or rare constructs; the nodes are of no use then. Never true if
// read_any_page is false.
bool read_nested_page(std::string_view html, HtmlNodes& out);

// Whether open tags without an end tag pile up to more than 2000.
bool nested_too_deep(std::string_view html);

// Most memory that the tree of a page may take.
size_t tree_limit(size_t page_bytes);

// What a reference such as "&eacute;" stands for in text.
std::string decode_reference(std::string_view reference);

}  // namespace strata::data
