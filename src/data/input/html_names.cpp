#include "data/input/html_names.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string>

namespace strata::data {
namespace {

template <size_t N>
bool is_one_of(std::string_view name, const std::string_view (&names)[N]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return result;
}

// Words that mark boilerplate as a whole part of a name, and those that also do so inside one.
constexpr std::string_view kNameParts[] = {"nav",     "menu",   "footer",  "ad",        "ads",     "share",
                                           "sharing", "social", "related", "comments",  "comment", "tags",
                                           "pager",   "popup",  "modal",   "toc",       "login",   "search",
                                           "toolbar", "topbar", "promo",   "banner",    "widget",  "hidden",
                                           "noprint", "skip",   "crumbs",  "subscribe", "signup"};
constexpr std::string_view kNameInfixes[] = {
    "sidebar", "breadcrumb", "navbar",   "navigation", "navbox",      "newsletter", "pagination", "cookie",
    "advert",  "sponsor",    "masthead", "copyright",  "site-footer", "disclaimer", "related-"};

}  // namespace

bool closes_itself(std::string_view tag) {
  constexpr std::string_view kTags[] = {
      "area", "base",  "br",     "col",   "embed", "hr",       "img",     "input",    "link",
      "meta", "param", "source", "track", "wbr",   "p",        "li",      "dt",       "dd",
      "tr",   "td",    "th",     "thead", "tbody", "tfoot",    "option",  "optgroup", "rp",
      "rt",   "rb",    "html",   "head",  "body",  "colgroup", "caption", "keygen",   "frame"};
  return is_one_of(tag, kTags);
}

bool is_block(GumboTag tag) {
  switch (tag) {
    case GUMBO_TAG_BODY:
    case GUMBO_TAG_ADDRESS:
    case GUMBO_TAG_ARTICLE:
    case GUMBO_TAG_ASIDE:
    case GUMBO_TAG_BLOCKQUOTE:
    case GUMBO_TAG_CAPTION:
    case GUMBO_TAG_CENTER:
    case GUMBO_TAG_DD:
    case GUMBO_TAG_DETAILS:
    case GUMBO_TAG_DIR:
    case GUMBO_TAG_DIV:
    case GUMBO_TAG_DL:
    case GUMBO_TAG_DT:
    case GUMBO_TAG_FIELDSET:
    case GUMBO_TAG_FIGCAPTION:
    case GUMBO_TAG_FIGURE:
    case GUMBO_TAG_FOOTER:
    case GUMBO_TAG_FORM:
    case GUMBO_TAG_H1:
    case GUMBO_TAG_H2:
    case GUMBO_TAG_H3:
    case GUMBO_TAG_H4:
    case GUMBO_TAG_H5:
    case GUMBO_TAG_H6:
    case GUMBO_TAG_HEADER:
    case GUMBO_TAG_HGROUP:
    case GUMBO_TAG_HR:
    case GUMBO_TAG_LEGEND:
    case GUMBO_TAG_LI:
    case GUMBO_TAG_LISTING:
    case GUMBO_TAG_MAIN:
    case GUMBO_TAG_MENU:
    case GUMBO_TAG_NAV:
    case GUMBO_TAG_OL:
    case GUMBO_TAG_P:
    case GUMBO_TAG_PRE:
    case GUMBO_TAG_SECTION:
    case GUMBO_TAG_SUMMARY:
    case GUMBO_TAG_TABLE:
    case GUMBO_TAG_TBODY:
    case GUMBO_TAG_TD:
    case GUMBO_TAG_TFOOT:
    case GUMBO_TAG_TH:
    case GUMBO_TAG_THEAD:
    case GUMBO_TAG_TR:
    case GUMBO_TAG_UL:
    case GUMBO_TAG_XMP:
      return true;
    default:
      return false;
  }
}

bool is_never_text(GumboTag tag) {
  switch (tag) {
    case GUMBO_TAG_SCRIPT:
    case GUMBO_TAG_STYLE:
    case GUMBO_TAG_NOSCRIPT:
    case GUMBO_TAG_TEMPLATE:
    case GUMBO_TAG_IFRAME:
    case GUMBO_TAG_OBJECT:
    case GUMBO_TAG_EMBED:
    case GUMBO_TAG_APPLET:
    case GUMBO_TAG_CANVAS:
    case GUMBO_TAG_AUDIO:
    case GUMBO_TAG_VIDEO:
    case GUMBO_TAG_SVG:
    case GUMBO_TAG_BUTTON:
    case GUMBO_TAG_SELECT:
    case GUMBO_TAG_INPUT:
    case GUMBO_TAG_TEXTAREA:
    case GUMBO_TAG_DATALIST:
    case GUMBO_TAG_PROGRESS:
    case GUMBO_TAG_METER:
    case GUMBO_TAG_TITLE:
    case GUMBO_TAG_NOFRAMES:
      return true;
    default:
      return false;
  }
}

bool is_skipped(GumboTag tag, std::string_view class_names) {
  return is_never_text(tag) || (!is_block(tag) && is_inline_mark(class_names));
}

std::optional<HtmlName> html_name(std::string_view name) {
  switch (name.size()) {
    case 2:
      if (name == "id") return HtmlName::kId;
      break;
    case 4:
      if (name == "role") return HtmlName::kRole;
      break;
    case 5:
      if (name == "class") return HtmlName::kClass;
      if (name == "style") return HtmlName::kStyle;
      break;
    case 6:
      if (name == "hidden") return HtmlName::kHidden;
      break;
    case 8:
      if (name == "itemprop") return HtmlName::kItemProperty;
      break;
    case 11:
      if (name == "aria-hidden") return HtmlName::kAriaHidden;
      break;
    default:
      break;
  }
  return std::nullopt;
}

bool is_list(GumboTag tag) {
  return tag == GUMBO_TAG_UL || tag == GUMBO_TAG_OL || tag == GUMBO_TAG_DL;
}

bool breaks_table(GumboTag tag) {
  switch (tag) {
    case GUMBO_TAG_TABLE:
    case GUMBO_TAG_H1:
    case GUMBO_TAG_H2:
    case GUMBO_TAG_H3:
    case GUMBO_TAG_H4:
    case GUMBO_TAG_H5:
    case GUMBO_TAG_H6:
    case GUMBO_TAG_UL:
    case GUMBO_TAG_OL:
    case GUMBO_TAG_DL:
    case GUMBO_TAG_PRE:
    case GUMBO_TAG_ARTICLE:
    case GUMBO_TAG_SECTION:
    case GUMBO_TAG_NAV:
    case GUMBO_TAG_FORM:
    case GUMBO_TAG_BLOCKQUOTE:
      return true;
    default:
      return false;
  }
}

bool is_main(GumboTag tag, std::string_view role, std::string_view item_property) {
  return tag == GUMBO_TAG_MAIN || tag == GUMBO_TAG_ARTICLE || role == "main" || role == "article" ||
         item_property == "articleBody";
}

bool is_boilerplate_tag(GumboTag tag) {
  return tag == GUMBO_TAG_NAV || tag == GUMBO_TAG_ASIDE || tag == GUMBO_TAG_FOOTER || tag == GUMBO_TAG_FORM ||
         tag == GUMBO_TAG_MENU;
}

bool is_boilerplate_role(std::string_view role) {
  constexpr std::string_view kRoles[] = {"navigation", "banner", "contentinfo", "search",  "complementary",
                                         "menu",       "dialog", "menubar",     "toolbar", "alert"};
  return is_one_of(role, kRoles);
}

bool is_boilerplate_name(std::string_view class_or_id) {
  if (class_or_id.empty()) return false;
  // Parts end at anything but letters, and where lower case turns to upper case.
  std::string part;
  bool was_lower = false;
  for (const char c : class_or_id) {
    const auto byte = static_cast<unsigned char>(c);
    const bool letter = std::isalpha(byte) != 0;
    if (!letter || (was_lower && std::isupper(byte))) {
      if (is_one_of(part, kNameParts)) return true;
      part.clear();
    }
    if (letter) part += static_cast<char>(std::tolower(byte));
    was_lower = letter && std::islower(byte);
  }
  if (is_one_of(part, kNameParts)) return true;
  const std::string name = lower(class_or_id);
  return std::any_of(std::begin(kNameInfixes), std::end(kNameInfixes),
                     [&](std::string_view infix) { return name.find(infix) != name.npos; });
}

bool is_inline_mark(std::string_view class_names) {
  constexpr std::string_view kMarks[] = {"headerlink", "anchorlink",    "permalink",      "mw-editsection",
                                         "sr-only",    "screen-reader", "visually-hidden"};
  return !class_names.empty() &&
         std::any_of(std::begin(kMarks), std::end(kMarks),
                     [&](std::string_view mark) { return class_names.find(mark) != class_names.npos; });
}

}  // namespace strata::data
