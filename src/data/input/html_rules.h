// The HTML standard's rules for each tag ("tree construction"), as far as pages without errors need them.
#pragma once

#include <gumbo.h>

#include <cstdint>

namespace strata::data {

enum class TagRule : uint8_t {
  kRare,       // left to the full parser
  kInLine,     // begins and ends at its tags
  kAnchor,     // the same, and never inside of another
  kBlock,      // ends an open paragraph
  kParagraph,  // the same; its end tag may be left out
  kHeading,    // ends an open paragraph; never directly inside of another
  kPreformatted,
  kForm,        // never inside of another
  kItem,        // <li>: ends the one before it
  kDefinition,  // <dt>, <dd>: the same
  kButton,
  kVoid,     // has no content
  kRuler,    // <hr>: the same, and ends an open paragraph
  kRaw,      // its content is not markup
  kMeta,     // void, and also allowed in the head of a page
  kSelect,   // holds nothing but choices
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
  bool bounds_items;  // open items and definitions are looked for up to the innermost of these
  bool block;         // as of is_block
  bool never_text;    // as of is_never_text
};

const TagFacts& tag_facts(GumboTag tag);

}  // namespace strata::data
