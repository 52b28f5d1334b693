#include <gumbo.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "data/input/html_names.h"
#include "data/input/html_nodes.h"
#include "data/input/html_rules.h"
#include "data/input/html_scanner.h"

namespace strata::data {
namespace {

bool is_all_white(std::string_view text) {
  return std::all_of(text.begin(), text.end(), is_html_white);
}

class NestedReader {
 public:
  explicit NestedReader(HtmlNodes& out) : out_(out), scanner_(out.page) {}

  bool read() {
    while (!scanner_.at_end()) {
      const std::string_view run = scanner_.next_text();
      if (!run.empty() && !text(run)) return false;
      if (!scanner_.at_end() && !markup()) return false;
    }
    if (!in_body_) begin_body({.tag = GUMBO_TAG_BODY});
    while (!open_.empty()) pop();
    return within_limits();
  }

 private:
  // The elements open around a place, up to the nearest element that hides the others.
  enum Around : uint8_t { kInParagraph = 1, kInItem = 2, kInDefinition = 4, kInAnchor = 8 };

  struct Open {
    GumboTag tag;
    TagRule rule;
    uint8_t around;  // inside the element
    bool skipped;
    uint32_t node;  // kNone: it has none
  };
  static constexpr uint32_t kNone = ~uint32_t{0};

  bool markup() {
    HtmlTag tag;
    const HtmlScanner::Markup markup = scanner_.next_markup(tag);
    after_pre_ = !tag.ends && tag.rule == TagRule::kPreformatted;
    switch (markup) {
      case HtmlScanner::Markup::kTag:
        if (tag.ends) return in_body_ ? end(tag) : end_of_head(tag);
        return in_body_ ? begin(tag) : begin_page(tag);
      case HtmlScanner::Markup::kComment:
        unplaced_.reset();
        return true;
      case HtmlScanner::Markup::kDoctype:
        return !in_html_ && !in_head_ && !in_body_ && !std::exchange(declared_, true);
      case HtmlScanner::Markup::kUnclear:
        break;
    }
    return false;
  }

  // ---- Text

  bool text(std::string_view run) {
    if (std::exchange(after_pre_, false)) {
      // A newline may be written so, too.
      if (run.starts_with("&#") || run.starts_with("&N")) return false;
      if (run.front() == '\n') run.remove_prefix(1);
    }
    if (!in_body_) {
      while (!run.empty() && is_html_white(run.front())) run.remove_prefix(1);
      if (run.empty()) return true;
      if (run.front() == '&') return false;  // white space may be written so, too
      begin_body({.tag = GUMBO_TAG_BODY});
    }
    if ((after_body_ || is_table_part(open_.back().rule)) && !is_all_white(run)) return false;
    if (skipped_ > 0) return true;
    while (!run.empty()) {
      const size_t reference = std::min(run.find('&'), run.size());
      add_text(run.substr(0, reference));
      run.remove_prefix(reference);
      if (!run.empty()) run.remove_prefix(add_reference(run));
    }
    return true;
  }

  void add_text(std::string_view piece) {
    if (piece.empty()) return;
    if (!unplaced_) unplaced_ = out_.nodes.size();
    out_.nodes.push_back({.text = piece});
  }

  // At a '&'; returns the bytes that it takes.
  size_t add_reference(std::string_view run) {
    size_t size = 1;
    if (size < run.size() && run[size] == '#') ++size;
    while (size < run.size() && (is_html_letter(run[size]) || (run[size] >= '0' && run[size] <= '9'))) ++size;
    if (size < run.size() && run[size] == ';') ++size;
    const std::string_view reference = run.substr(0, size);
    if (reference == "&lt;") {
      add_text("<");
    } else if (reference == "&gt;") {
      add_text(">");
    } else if (reference == "&amp;" || reference == "&") {
      add_text("&");
    } else if (reference == "&quot;") {
      add_text("\"");
    } else {
      add_text(decoded(reference));
    }
    return size;
  }

  const std::string& decoded(std::string_view reference) {
    for (const auto& [known, text] : references_) {
      if (known == reference) return *text;
    }
    const std::string& text = out_.strings.emplace_back(decode_reference(reference));
    references_.emplace_back(reference, &text);
    return text;
  }

  // ---- Before the body

  void begin_body(const HtmlTag& tag) {
    in_body_ = true;
    push(tag);
  }

  bool begin_page(const HtmlTag& tag) {
    switch (tag.rule) {
      case TagRule::kHtml:
        return !in_head_ && !std::exchange(in_html_, true);
      case TagRule::kHead:
        return !std::exchange(in_head_, true);
      case TagRule::kMeta:
        in_head_ = true;
        return true;
      case TagRule::kBody:
        begin_body(tag);
        return true;
      case TagRule::kRaw:
        if (tag.tag == GUMBO_TAG_IFRAME || tag.tag == GUMBO_TAG_TEXTAREA) break;
        in_head_ = true;
        return scanner_.skip_raw(tag.tag);
      default:
        break;
    }
    if (tag.tag == GUMBO_TAG_NOSCRIPT && !head_ended_) return false;
    begin_body({.tag = GUMBO_TAG_BODY});
    return begin(tag);
  }

  bool end_of_head(const HtmlTag& tag) {
    return tag.rule == TagRule::kHead && in_head_ && !std::exchange(head_ended_, true);
  }

  // ---- Elements

  static bool is_table_part(TagRule rule) {
    return rule == TagRule::kTable || rule == TagRule::kSection || rule == TagRule::kRow ||
           rule == TagRule::kColumns;
  }

  void push(const HtmlTag& tag) {
    unplaced_.reset();
    const TagFacts& row = tag_facts(tag.tag);
    const bool skipped = row.never_text || (!row.block && is_inline_mark(tag.classes));
    uint32_t node = kNone;
    if (row.block || skipped || tag.link || tag.tag == GUMBO_TAG_BR) {
      node = static_cast<uint32_t>(out_.nodes.size());
      out_.begin({.skipped = skipped, .link = tag.link, .tag = static_cast<uint16_t>(tag.tag)},
                 row.block ? tag.attributes : std::span<const HtmlAttribute>());
    }
    skipped_ += skipped;
    tables_ += row.rule == TagRule::kTable;
    const uint8_t outside = open_.empty() ? uint8_t{0} : open_.back().around;
    open_.push_back({tag.tag, row.rule, around(row, outside), skipped, node});
    deepest_ = std::max(deepest_, open_.size());
  }
  void push_implied(GumboTag tag) { push({.tag = tag}); }

  // The flags for the content of an element.
  static uint8_t around(const TagFacts& row, int outside) {
    if (row.bounds_items) outside &= ~(kInItem | kInDefinition);
    switch (row.rule) {
      case TagRule::kTable:
      case TagRule::kButton:
        outside &= ~kInParagraph;
        break;
      case TagRule::kCell:
      case TagRule::kCaption:
        outside &= ~(kInParagraph | kInAnchor);
        break;
      case TagRule::kParagraph:
        outside |= kInParagraph;
        break;
      case TagRule::kItem:
        outside |= kInItem;
        break;
      case TagRule::kDefinition:
        outside |= kInDefinition;
        break;
      case TagRule::kAnchor:
        outside |= kInAnchor;
        break;
      default:
        break;
    }
    return static_cast<uint8_t>(outside);
  }
  bool is_around(Around bit) const { return (open_.back().around & bit) != 0; }

  void pop() {
    unplaced_.reset();
    const Open& last = open_.back();
    if (last.node != kNone) out_.end(last.node);
    skipped_ -= last.skipped;
    tables_ -= last.rule == TagRule::kTable;
    open_.pop_back();
  }

  // Ends the innermost element, if it is such a one.
  bool end_last(GumboTag tag) {
    if (open_.back().tag != tag) return false;
    pop();
    return true;
  }
  // Ends the innermost elements whose end tags may be left out, but not `except`.
  void end_implied(GumboTag except = GUMBO_TAG_LAST) {
    while (open_.back().tag != except &&
           (open_.back().rule == TagRule::kParagraph || open_.back().rule == TagRule::kItem ||
            open_.back().rule == TagRule::kDefinition))
      pop();
  }
  bool end_paragraph() {
    if (!is_around(kInParagraph)) return true;
    end_implied(GUMBO_TAG_P);
    return end_last(GUMBO_TAG_P);
  }
  bool end_item() {
    if (!is_around(kInItem)) return true;
    end_implied(GUMBO_TAG_LI);
    return end_last(GUMBO_TAG_LI);
  }
  bool end_definition() {
    if (!is_around(kInDefinition)) return true;
    while (open_.back().rule == TagRule::kParagraph || open_.back().rule == TagRule::kItem) pop();
    return open_.back().rule == TagRule::kDefinition && end_last(open_.back().tag);
  }
  bool end_cell() {
    end_implied();
    return open_.back().rule == TagRule::kCell && end_last(open_.back().tag);
  }

  bool begin(const HtmlTag& tag) {
    if (after_body_) return false;
    if (tag.rule >= TagRule::kCaption && tag.rule <= TagRule::kCell) return begin_table_part(tag);
    if (tag.rule == TagRule::kRaw) return begin_raw(tag);
    if (is_table_part(open_.back().rule) || !may_begin(tag)) return false;
    push(tag);
    if (tag.rule == TagRule::kSelect && !scanner_.skip_select()) return false;
    if (tag.rule == TagRule::kDrawing && !scanner_.skip_drawing(tag)) return false;
    if (tag.rule == TagRule::kSelect || tag.rule == TagRule::kDrawing || tag.rule == TagRule::kVoid ||
        tag.rule == TagRule::kMeta || tag.rule == TagRule::kRuler)
      pop();
    return true;
  }

  // Ends what a tag ends that is neither part of a table nor raw.
  bool may_begin(const HtmlTag& tag) {
    switch (tag.rule) {
      case TagRule::kInLine:
      case TagRule::kVoid:
      case TagRule::kMeta:
      case TagRule::kSelect:
      case TagRule::kDrawing:
        return true;
      case TagRule::kAnchor:
        return !is_around(kInAnchor);
      case TagRule::kBlock:
      case TagRule::kParagraph:
      case TagRule::kPreformatted:
      case TagRule::kRuler:
        return end_paragraph();
      case TagRule::kHeading:
        return end_paragraph() && open_.back().rule != TagRule::kHeading;
      case TagRule::kForm:
        return !std::exchange(in_form_, true) && end_paragraph();
      case TagRule::kItem:
        return end_item() && end_paragraph();
      case TagRule::kDefinition:
        return end_definition() && end_paragraph();
      case TagRule::kButton:
        return !std::exchange(in_button_, true);
      case TagRule::kTable:
        // It ends a paragraph only on pages that declare to keep to the standard.
        return !is_around(kInParagraph) || (declares_standards() && end_paragraph());
      default:
        return false;
    }
  }

  bool declares_standards() const {
    constexpr std::string_view kDoctype = "doctype html";
    const std::string_view found = scanner_.doctype();
    return std::equal(found.begin(), found.end(), kDoctype.begin(), kDoctype.end(),
                      [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b; });
  }

  bool begin_raw(const HtmlTag& tag) {
    const TagRule outer = open_.back().rule;
    const bool anywhere = tag.tag == GUMBO_TAG_SCRIPT || tag.tag == GUMBO_TAG_STYLE;
    if (is_table_part(outer) && (outer == TagRule::kColumns || !anywhere)) return false;
    push(tag);
    if (!scanner_.skip_raw(tag.tag)) return false;
    pop();
    return true;
  }

  // Begins the element that the tag needs as a parent, and ends those that it closes.
  bool begin_table_part(const HtmlTag& tag) {
    const TagRule rule = tag.rule;
    while (true) {
      switch (open_.back().rule) {
        case TagRule::kTable:
          if (rule == TagRule::kRow || rule == TagRule::kCell) {
            push_implied(GUMBO_TAG_TBODY);
          } else if (rule == TagRule::kColumn) {
            push_implied(GUMBO_TAG_COLGROUP);
          } else {
            push(tag);
            return true;
          }
          break;
        case TagRule::kColumns:
          if (rule == TagRule::kColumn) {
            push(tag);
            pop();
            return true;
          }
          pop();
          break;
        case TagRule::kSection:
          if (rule == TagRule::kRow) {
            push(tag);
            return true;
          }
          if (rule == TagRule::kCell) {
            push_implied(GUMBO_TAG_TR);
          } else {
            pop();
          }
          break;
        case TagRule::kRow:
          if (rule == TagRule::kCell) {
            push(tag);
            return true;
          }
          pop();
          break;
        default:
          if (!end_cell()) return false;
      }
    }
  }

  bool end(const HtmlTag& tag) {
    if (tag.rule == TagRule::kHtml || tag.rule == TagRule::kBody) return end_body(tag.rule);
    if (after_body_) return false;
    switch (tag.rule) {
      case TagRule::kInLine:
      case TagRule::kAnchor:
      case TagRule::kColumns:
        return end_last(tag.tag);
      case TagRule::kParagraph:
        if (is_table_part(open_.back().rule)) return false;
        // With nothing to end it stands for an empty paragraph.
        if (!is_around(kInParagraph)) push_implied(GUMBO_TAG_P);
        return end_paragraph();
      case TagRule::kItem:
      case TagRule::kDefinition:
        end_implied(tag.tag);
        return end_last(tag.tag);
      case TagRule::kVoid:
      case TagRule::kMeta:
      case TagRule::kRuler:
        // Ignored, since no such element is ever open; but </br> stands for a line break.
        return tag.tag != GUMBO_TAG_BR && !is_table_part(open_.back().rule);
      case TagRule::kForm:
        return end_form();
      case TagRule::kButton:
        in_button_ = false;
        break;
      case TagRule::kBlock:
      case TagRule::kPreformatted:
      case TagRule::kHeading:
      case TagRule::kCaption:
      case TagRule::kCell:
        break;
      case TagRule::kTable:
      case TagRule::kSection:
      case TagRule::kRow:
        return end_table_part(tag);
      default:
        return false;
    }
    end_implied();
    return end_last(tag.tag);
  }

  // The full parser puts text at a form's end after the form.
  bool end_form() {
    in_form_ = false;
    end_implied();
    const std::optional<size_t> trailing = unplaced_;
    const uint32_t form = open_.back().node;
    if (!end_last(GUMBO_TAG_FORM)) return false;
    if (trailing) {
      std::rotate(out_.nodes.begin() + static_cast<ptrdiff_t>(*trailing), out_.nodes.end() - 1,
                  out_.nodes.end());
      out_.nodes[form].end = static_cast<uint32_t>(*trailing);
      unplaced_ = *trailing + 1;
    }
    return true;
  }

  bool end_body(TagRule rule) {
    if (tables_ > 0 || html_ended_ || (after_body_ && rule == TagRule::kBody)) return false;
    after_body_ = true;
    html_ended_ = rule == TagRule::kHtml;
    return true;
  }

  // A row ends with its section, and all of it with the table.
  bool end_table_part(const HtmlTag& tag) {
    while (open_.back().tag != tag.tag) {
      const TagRule inner = open_.back().rule;
      if (!is_table_part(inner)) {
        if (!end_cell()) return false;
      } else if (tag.rule == TagRule::kTable || (tag.rule == TagRule::kSection && inner == TagRule::kRow)) {
        pop();
      } else {
        return false;
      }
    }
    pop();
    return true;
  }

  // ---- Limits

  // Whether the full parser surely takes the page too.
  bool within_limits() const {
    const std::string& page = out_.page;
    // More than it takes for a tag, an attribute, a byte.
    constexpr size_t kFirst = size_t{1} << 20, kTag = 640, kAttribute = 480, kByte = 8;
    if (kFirst + scanner_.tags() * kTag + scanner_.attributes() * kAttribute + page.size() * kByte >
        tree_limit(page.size()))
      return false;
    // nested_too_deep sees no other open tags than are open here, except inside comments and the like: there
    // it may see a false begin tag, or miss the same number of end tags.
    const size_t others = count_less_than(page) - scanner_.tags();
    const size_t depth = deepest_ + scanner_.deepest_drawing();
    return (depth + 1) * (others + 1) + scanner_.closed_in_drawings() < 2000 || !nested_too_deep(page);
  }

  HtmlNodes& out_;
  HtmlScanner scanner_;
  std::vector<Open> open_;
  std::vector<std::pair<std::string_view, const std::string*>> references_;  // that were decoded
  std::optional<size_t> unplaced_;    // the first text node since an element or a comment
  int64_t skipped_ = 0, tables_ = 0;  // open ones
  size_t deepest_ = 0;
  bool declared_ = false;
  bool in_html_ = false, in_head_ = false, head_ended_ = false;
  bool in_body_ = false, after_body_ = false, html_ended_ = false;
  bool in_form_ = false, in_button_ = false;
  bool after_pre_ = false;  // a newline here is none of the text
};

}  // namespace

bool read_nested_page(std::string_view html, HtmlNodes& out) {
  copy_with_newlines(html, out.page);
  return !has_odd_characters(out.page) && NestedReader(out).read();
}

}  // namespace strata::data
