// The main text of an HTML page: what its author wrote, without menus, sidebars, footers and forms.
#pragma once

#include <string>
#include <string_view>

namespace strata::data {

// Parses by the HTML standard, cuts the page into blocks (paragraphs, headings, list items, table rows,
// <pre>) and keeps those of the main part. Boilerplate is what its element says (nav, aside, footer, form,
// hidden), what its class or id is called (sidebar, breadcrumb, cookie, …), and blocks that are mostly links.
// The main part is <main> or <article> where it holds most of the running text, else the deepest element that
// does, running text being judged by length and link density (Kohlschütter et al., Boilerplate Detection
// using Shallow Text Features, 2010). A block is a line, the lines of <pre> stay; valid UTF-8 in and out.
// Empty where a page has no text. False where parse_html refuses the page.
bool extract_main_text(std::string_view html, std::string& text);

}  // namespace strata::data
