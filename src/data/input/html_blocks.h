// Splits an HTML page into blocks of text, with the features that separate text from boilerplate.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::data {

enum class BlockKind { kParagraph, kHeading, kListItem, kTableRow, kPreformatted };

struct HtmlBlock {
  BlockKind kind = BlockKind::kParagraph;
  int heading_level = 0;         // 1 to 6
  uint32_t element = 0;          // the block element around it
  uint32_t characters = 0;       // code points other than white space
  uint32_t link_characters = 0;  // of them, inside <a href>
  uint32_t words = 0;
  std::string text;  // white space collapsed but for kPreformatted; <br> is a newline
};

// Block elements in the order of the page: a parent precedes its children.
struct HtmlElement {
  uint32_t parent = 0;
  bool boilerplate = false;  // by its tag, role, class or id
  bool main = false;         // <main>, <article> or the like
  bool list = false;         // of items or definitions, or a table whose rows make lines
};

struct HtmlPage {
  std::vector<HtmlElement> elements;  // [0] is the body, its own parent
  std::vector<HtmlBlock> blocks;
};

// False for pages nested deeper than 2000 elements, and where the tree would take more than 64 MiB and 64
// bytes for a byte (read_any_page). `html` is valid UTF-8.
bool parse_html(std::string_view html, HtmlPage& page);

struct HtmlNodes;
void cut_into_blocks(const HtmlNodes& nodes, HtmlPage& page);

}  // namespace strata::data
