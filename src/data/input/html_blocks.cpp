#include "data/input/html_blocks.h"

#include <gumbo.h>

#include <algorithm>

#include "data/input/html_names.h"
#include "data/input/html_nodes.h"

namespace strata::data {
namespace {

bool is_white(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f';
}

// Whether all of the table that begins at `table` is cells of text, so that a row makes a line.
bool is_data_table(const HtmlNodes& page, size_t table) {
  const auto* const nodes = page.nodes.data();
  return std::none_of(nodes + table + 1, nodes + nodes[table].end, [](const HtmlNode& node) {
    return node.kind == HtmlNode::kBegin && breaks_table(static_cast<GumboTag>(node.tag));
  });
}

class Walk {
 public:
  Walk(const HtmlNodes& nodes, HtmlPage& page) : nodes_(nodes), page_(page) {}

  void run() {
    for (size_t i = 0; i < nodes_.nodes.size(); ++i) {
      const HtmlNode& node = nodes_.nodes[i];
      if (node.kind == HtmlNode::kText) {
        add_text(node.text);
      } else if (node.kind == HtmlNode::kEnd) {
        leave(node);
      } else if (node.skipped) {
        i = node.end;
      } else {
        enter(i);
      }
    }
  }

 private:
  void enter(size_t place) {
    const HtmlNode& node = nodes_.nodes[place];
    const auto tag = static_cast<GumboTag>(node.tag);
    if (node.link) ++links_;
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
    entry.main = inside_main || is_main(tag, nodes_.value(node, HtmlName::kRole),
                                        nodes_.value(node, HtmlName::kItemProperty));
    entry.boilerplate = !open_.empty() && is_boilerplate(node, inside_main);
    const bool data_table = tag == GUMBO_TAG_TABLE && is_data_table(nodes_, place);
    entry.list = data_table || is_list(tag);
    open_.push_back(static_cast<uint32_t>(page_.elements.size()));
    page_.elements.push_back(entry);
    if (tag == GUMBO_TAG_PRE || tag == GUMBO_TAG_XMP || tag == GUMBO_TAG_LISTING) ++pre_;
    if (tag == GUMBO_TAG_LI || tag == GUMBO_TAG_DT || tag == GUMBO_TAG_DD) ++items_;
    if (tag >= GUMBO_TAG_H1 && tag <= GUMBO_TAG_H6) heading_ = 1 + tag - GUMBO_TAG_H1;
    if (data_table) in_data_table_ = true;
  }

  void leave(const HtmlNode& node) {
    const auto tag = static_cast<GumboTag>(node.tag);
    if (node.link) --links_;
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

  bool is_boilerplate(const HtmlNode& node, bool inside_main) const {
    if (node.tag == GUMBO_TAG_HEADER) return !inside_main;
    return is_boilerplate_tag(static_cast<GumboTag>(node.tag)) ||
           is_boilerplate_role(nodes_.value(node, HtmlName::kRole)) ||
           is_boilerplate_name(nodes_.value(node, HtmlName::kClass)) ||
           is_boilerplate_name(nodes_.value(node, HtmlName::kId)) || is_hidden(node);
  }
  bool is_hidden(const HtmlNode& node) const {
    if (nodes_.find(node, HtmlName::kHidden) != nullptr) return true;
    if (nodes_.value(node, HtmlName::kAriaHidden) == "true") return true;
    const std::string_view style = nodes_.value(node, HtmlName::kStyle);
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

  const HtmlNodes& nodes_;
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

void cut_into_blocks(const HtmlNodes& nodes, HtmlPage& page) {
  page.elements.clear();
  page.blocks.clear();
  Walk(nodes, page).run();
  if (page.elements.empty()) page.elements.emplace_back();
}

bool parse_html(std::string_view html, HtmlPage& page) {
  HtmlNodes nodes;
  if (!read_nested_page(html, nodes)) {
    nodes = {};
    if (!read_any_page(html, nodes)) return false;
  }
  cut_into_blocks(nodes, page);
  return true;
}

}  // namespace strata::data
