#include "data/input/html_rules.h"

#include <array>

#include "data/input/html_names.h"

namespace strata::data {
namespace {

TagRule tag_rule(GumboTag tag) {
  switch (tag) {
    case GUMBO_TAG_A:
      return TagRule::kAnchor;
    case GUMBO_TAG_P:
      return TagRule::kParagraph;
    case GUMBO_TAG_ADDRESS:
    case GUMBO_TAG_ARTICLE:
    case GUMBO_TAG_ASIDE:
    case GUMBO_TAG_BLOCKQUOTE:
    case GUMBO_TAG_CENTER:
    case GUMBO_TAG_DETAILS:
    case GUMBO_TAG_DIR:
    case GUMBO_TAG_DIV:
    case GUMBO_TAG_DL:
    case GUMBO_TAG_FIELDSET:
    case GUMBO_TAG_FIGCAPTION:
    case GUMBO_TAG_FIGURE:
    case GUMBO_TAG_FOOTER:
    case GUMBO_TAG_HEADER:
    case GUMBO_TAG_HGROUP:
    case GUMBO_TAG_MAIN:
    case GUMBO_TAG_MENU:
    case GUMBO_TAG_NAV:
    case GUMBO_TAG_OL:
    case GUMBO_TAG_SECTION:
    case GUMBO_TAG_SUMMARY:
    case GUMBO_TAG_UL:
      return TagRule::kBlock;
    case GUMBO_TAG_H1:
    case GUMBO_TAG_H2:
    case GUMBO_TAG_H3:
    case GUMBO_TAG_H4:
    case GUMBO_TAG_H5:
    case GUMBO_TAG_H6:
      return TagRule::kHeading;
    case GUMBO_TAG_PRE:
    case GUMBO_TAG_LISTING:
      return TagRule::kPreformatted;
    case GUMBO_TAG_FORM:
      return TagRule::kForm;
    case GUMBO_TAG_LI:
      return TagRule::kItem;
    case GUMBO_TAG_DD:
    case GUMBO_TAG_DT:
      return TagRule::kDefinition;
    case GUMBO_TAG_BUTTON:
      return TagRule::kButton;
    case GUMBO_TAG_AREA:
    case GUMBO_TAG_BR:
    case GUMBO_TAG_EMBED:
    case GUMBO_TAG_IMG:
    case GUMBO_TAG_INPUT:
    case GUMBO_TAG_KEYGEN:
    case GUMBO_TAG_PARAM:
    case GUMBO_TAG_SOURCE:
    case GUMBO_TAG_TRACK:
    case GUMBO_TAG_WBR:
      return TagRule::kVoid;
    case GUMBO_TAG_HR:
      return TagRule::kRuler;
    case GUMBO_TAG_IFRAME:
    case GUMBO_TAG_NOFRAMES:
    case GUMBO_TAG_SCRIPT:
    case GUMBO_TAG_STYLE:
    case GUMBO_TAG_TEXTAREA:
    case GUMBO_TAG_TITLE:
      return TagRule::kRaw;
    case GUMBO_TAG_SELECT:
      return TagRule::kSelect;
    case GUMBO_TAG_SVG:
      return TagRule::kDrawing;
    case GUMBO_TAG_BASE:
    case GUMBO_TAG_LINK:
    case GUMBO_TAG_META:
      return TagRule::kMeta;
    case GUMBO_TAG_TABLE:
      return TagRule::kTable;
    case GUMBO_TAG_CAPTION:
      return TagRule::kCaption;
    case GUMBO_TAG_COLGROUP:
      return TagRule::kColumns;
    case GUMBO_TAG_COL:
      return TagRule::kColumn;
    case GUMBO_TAG_TBODY:
    case GUMBO_TAG_TFOOT:
    case GUMBO_TAG_THEAD:
      return TagRule::kSection;
    case GUMBO_TAG_TR:
      return TagRule::kRow;
    case GUMBO_TAG_TD:
    case GUMBO_TAG_TH:
      return TagRule::kCell;
    case GUMBO_TAG_HTML:
      return TagRule::kHtml;
    case GUMBO_TAG_HEAD:
      return TagRule::kHead;
    case GUMBO_TAG_BODY:
      return TagRule::kBody;
    case GUMBO_TAG_ABBR:
    case GUMBO_TAG_ACRONYM:
    case GUMBO_TAG_B:
    case GUMBO_TAG_BDI:
    case GUMBO_TAG_BDO:
    case GUMBO_TAG_BIG:
    case GUMBO_TAG_CITE:
    case GUMBO_TAG_CODE:
    case GUMBO_TAG_DATA:
    case GUMBO_TAG_DEL:
    case GUMBO_TAG_DFN:
    case GUMBO_TAG_EM:
    case GUMBO_TAG_FONT:
    case GUMBO_TAG_I:
    case GUMBO_TAG_INS:
    case GUMBO_TAG_KBD:
    case GUMBO_TAG_LABEL:
    case GUMBO_TAG_MARK:
    case GUMBO_TAG_NOSCRIPT:
    case GUMBO_TAG_Q:
    case GUMBO_TAG_S:
    case GUMBO_TAG_SAMP:
    case GUMBO_TAG_SMALL:
    case GUMBO_TAG_SPAN:
    case GUMBO_TAG_STRIKE:
    case GUMBO_TAG_STRONG:
    case GUMBO_TAG_SUB:
    case GUMBO_TAG_SUP:
    case GUMBO_TAG_TIME:
    case GUMBO_TAG_TT:
    case GUMBO_TAG_U:
    case GUMBO_TAG_VAR:
    case GUMBO_TAG_VIDEO:
    case GUMBO_TAG_AUDIO:
    case GUMBO_TAG_CANVAS:
    case GUMBO_TAG_UNKNOWN:
      return TagRule::kInLine;
    default:
      return TagRule::kRare;
  }
}

bool bounds_items(GumboTag tag) {
  switch (tag_rule(tag)) {
    case TagRule::kBlock:
      return tag != GUMBO_TAG_ADDRESS && tag != GUMBO_TAG_DIV && tag != GUMBO_TAG_MAIN;
    case TagRule::kInLine:
      return tag == GUMBO_TAG_NOSCRIPT;
    case TagRule::kAnchor:
    case TagRule::kDrawing:
    case TagRule::kParagraph:
      return false;
    default:
      return true;
  }
}

struct FactTable {
  std::array<TagFacts, GUMBO_TAG_LAST + 1> rows;
  FactTable() : rows() {
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto tag = static_cast<GumboTag>(i);
      rows[i] = {tag_rule(tag), bounds_items(tag), is_block(tag), is_never_text(tag)};
    }
  }
};

}  // namespace

const TagFacts& tag_facts(GumboTag tag) {
  static const FactTable table;
  return table.rows[tag];
}

}  // namespace strata::data
