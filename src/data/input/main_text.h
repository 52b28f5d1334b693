// The main text of an HTML page: what its author wrote, without menus, sidebars, footers and forms.
#pragma once

#include <string>
#include <string_view>

namespace strata::data {

// Parses by the HTML standard, splits the page into blocks (paragraphs, headings, list items, table rows,
// <pre>) and keeps those of the main part. Boilerplate is recognized by its element (nav, aside, footer,
// form, hidden), by its class or id (sidebar, breadcrumb, cookie, …), and by its share of links. The main
// part is <main> or <article> if that holds most of the running text, else the deepest element that does,
// running text being judged by length and link density (Kohlschütter et al., Boilerplate Detection using
// Shallow Text Features, 2010). A block is a line, the lines of <pre> stay; valid UTF-8 in and out. Empty if
// a page has no text. False if parse_html refuses the page.
bool extract_main_text(std::string_view html, std::string& text);

}  // namespace strata::data
