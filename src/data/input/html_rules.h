// Per-tag tree construction rules of the HTML standard, limited to those that pages without errors need.
#pragma once

#include <gumbo.h>

#include <cstdint>

namespace strata::data {

enum class TagRule : uint8_t {
  kRare,       // handled only by the full parser
  kInLine,     // opened and closed only by its own tags
  kAnchor,     // as kInLine, but cannot be nested
  kBlock,      // closes an open paragraph
  kParagraph,  // as kBlock, with an optional end tag
  kHeading,    // as kBlock, but not a direct child of another heading
  kPreformatted,
  kForm,        // cannot be nested
  kItem,        // <li>: closes the previous one
  kDefinition,  // <dt>, <dd>: closes the previous one
  kButton,
  kVoid,     // no content and no end tag
  kRuler,    // <hr>: void, and closes an open paragraph
  kRaw,      // content is not parsed as markup
  kMeta,     // void, and also allowed in <head>
  kSelect,   // contains only options and option groups
  kDrawing,  // <svg>
  kTable,
  kCaption,
  kColumns,
  kColumn,
  kSection,  // <tbody>, <thead>, <tfoot>
  kRow,
  kCell,
  kHtml,
  kHead,
  kBody,
};

struct TagFacts {
  TagRule rule;
  bool bounds_items;  // tags inside this element do not close items or definitions outside it
  bool block;         // is_block()
  bool never_text;    // is_never_text()
};

const TagFacts& tag_facts(GumboTag tag);

}  // namespace strata::data
