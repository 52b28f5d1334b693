// Compares the fast reader of well nested pages with the full parser: if it accepts a page, both read the
// same.
#include <gtest/gtest.h>

#include <iterator>
#include <random>

#include "data/input/html_blocks.h"
#include "data/input/html_nodes.h"

namespace strata::data {
namespace {

std::string described(const HtmlNodes& nodes) {
  HtmlPage page;
  cut_into_blocks(nodes, page);
  std::string out;
  for (const HtmlElement& e : page.elements) {
    out += std::to_string(e.parent) + (e.boilerplate ? " boilerplate" : "") + (e.main ? " main" : "") +
           (e.list ? " list" : "") + "\n";
  }
  for (const HtmlBlock& b : page.blocks) {
    for (const uint32_t number : {static_cast<uint32_t>(b.kind), static_cast<uint32_t>(b.heading_level),
                                  b.element, b.characters, b.link_characters, b.words})
      out += std::to_string(number) + " ";
    out += b.text + "\n";
  }
  return out;
}

// Whether the fast reader accepts the page; fails if it reads it differently.
bool is_nested(const std::string& html) {
  HtmlNodes quick, full;
  if (!read_nested_page(html, quick)) return false;
  EXPECT_TRUE(read_any_page(html, full)) << html;
  EXPECT_EQ(described(quick), described(full)) << html;
  return true;
}

TEST(NestedPage, AcceptsTypicalPages) {
  for (const char* const page :
       {"", " \n", "words", "<p>One<p>Two",
        // NOLINTNEXTLINE(bugprone-suspicious-missing-comma): a text in two lines
        "<!DOCTYPE html><html lang=en><head><title>a<b</title></head><body "
        "class=nav role=main><h1>T</h1></body></html>\n",
        "<ul><li>a<li>b<ul><li>c</ul></ul>", "<dl><dt>a<dd>b<p>c<dt>d</dl>",
        "<table><tr><th>a<th>b<tr><td><p>1</p><td>2</table>",
        "<table><caption>c</caption><col><col><thead><tr><td>x</thead><tbody><tr><td><table><tr><td>y</table>"
        "</tbody></table>",
        "<pre>\n\n x &lt; y\r\n</pre>", "<pre>&quot;</pre>", "a &eacute;&copy2&nbsp;&#8217;&zz;&",
        "<script>if (a<b) '</p>'</script><style>a>b{}</style>", "<select><option>a<option>b</select>",
        "<svg width=1><title>t</title><path d='M0'/><g></g></svg>text", "<a href='x>y' title=\"<b>\">z</a>",
        "<a href=x>a</a><a href=''>b</a><a>c</a>", "<form><input> word </form> after", "<p>a</p></p>b</img>",
        "<!-- <p> -- --><?xml?>a<!---->", "<x-y><b>c</b></x-y>",
        "<p hidden>a</p><p style='display:none'>b</p><div aria-hidden=true id=menu "
        "itemprop=articleBody>c</div>",
        "<h2>a <span class='headerlink'>#</span></h2>", "<!doctype HTML><p>a<table><tr><td>b</table>"})
    EXPECT_TRUE(is_nested(page)) << page;
}

TEST(NestedPage, LeavesRepairsToTheFullParser) {
  for (const char* const page : {"<b><p>a</b>",
                                 "<a href=x><a href=y>b</a>",
                                 "<table>text</table>",
                                 "<table><tr><b>x</table>",
                                 "a < b",
                                 "<p>a<table><tr><td>b</table>",
                                 "<frameset><frame></frameset>",
                                 "<b>a",
                                 "</div>",
                                 "<math><mi>x</math>",
                                 "<svg><p>a</p></svg>",
                                 "<div class='a&amp;b'>c</div>",
                                 "a\fb",
                                 "\x7f",
                                 "\xC2\x80",
                                 "\xEF\xBF\xBF",
                                 "<p",
                                 "<!-- a",
                                 "<script>a",
                                 "<button><button>a</button></button>",
                                 "<form><form></form></form>",
                                 "<body><body>",
                                 "</body>text",
                                 "<pre>&#10;a</pre>",
                                 "<script><!-- <script> --></script>"}) {
    const std::string html = page;
    // The elements that are open at the end of a page need no end tag.
    EXPECT_EQ(is_nested(html), html == "<b>a") << html;
  }
}

TEST(NestedPage, RejectsPagesThatTheFullParserRejects) {
  std::string deep, drawing = "<svg>";
  for (int i = 0; i < 2100; ++i) {
    deep = "<div>" + deep + "</div>";
    drawing += "<path/>";
  }
  EXPECT_FALSE(is_nested(deep));
  EXPECT_FALSE(is_nested(drawing + "</svg>"));
  EXPECT_TRUE(is_nested(deep.substr(0, 500 * 5) + deep.substr(deep.size() - 500 * 6)));
}

// A page of random elements, most of them closed where they should be.
std::string random_page(std::mt19937& random) {
  static constexpr const char* kTags[] = {"p",
                                          "p",
                                          "div",
                                          "div",
                                          "div",
                                          "ul",
                                          "li",
                                          "li",
                                          "dl",
                                          "dt",
                                          "dd",
                                          "table",
                                          "tr",
                                          "td",
                                          "th",
                                          "tbody",
                                          "thead",
                                          "caption",
                                          "colgroup",
                                          "a href=x",
                                          "a name=x",
                                          "b",
                                          "i",
                                          "code",
                                          "span class=headerlink",
                                          "span",
                                          "em",
                                          "h1",
                                          "h2",
                                          "pre",
                                          "form",
                                          "button",
                                          "section",
                                          "main",
                                          "article role=main",
                                          "nav",
                                          "header",
                                          "address",
                                          "noscript",
                                          "x-y",
                                          "svg",
                                          "select",
                                          "div class='site-sidebar x'",
                                          "p hidden",
                                          "ul id=menu style='display:none'",
                                          "nobr",
                                          "object",
                                          "ruby",
                                          "div aria-hidden=true itemprop=articleBody"};
  static constexpr const char* kAlone[] = {"word ",
                                           "two words",
                                           " ",
                                           "\n",
                                           "\t \n",
                                           "caf\xC3\xA9",
                                           "\xC2\xA0",
                                           "<br>",
                                           "<hr>",
                                           "<img src='a>b'>",
                                           "<!-- a > b -->",
                                           "<!---->",
                                           "&amp;",
                                           "&eacute;",
                                           "&copy2",
                                           "&#8217;",
                                           "&",
                                           "&zz;",
                                           "<input>",
                                           "<script>if (a<b) x('</p>')</script>",
                                           "<style>p>a{}</style>",
                                           "<textarea><b></textarea>",
                                           "<svg><title>x</title><g><path/></g></svg>",
                                           "<select><option>a<option>b</select>",
                                           "\r\n",
                                           "</img>",
                                           "</p>",
                                           "<col>",
                                           "<p/>",
                                           "<svg/>",
                                           "&#10;",
                                           "&#x80;",
                                           "&#0;",
                                           "<!-->",
                                           "<!--a--!>",
                                           "</br>",
                                           "</li>",
                                           "</body>",
                                           "</html>",
                                           "</head>",
                                           "<head>",
                                           "<link rel=x>",
                                           "<!doctype html>",
                                           "<?xml?>",
                                           "<",
                                           "<3",
                                           "\f",
                                           "<a class=x class=headerlink>",
                                           "</ul>",
                                           "</table>",
                                           "</b>",
                                           "</td>",
                                           "<td>",
                                           "<tr>",
                                           "<path d=1/>"};
  const auto below = [&](size_t n) { return static_cast<size_t>(random()) % n; };
  const bool tidy = below(3) > 0;
  std::string page;
  if (below(3) > 0) page += "<!DOCTYPE html>";
  if (below(3) > 0) page += "<html><head><title>T</title></head><body>\n";
  std::vector<std::string> open;
  for (size_t n = 3 + below(25); n > 0; --n) {
    const size_t what = below(10);
    if (what < 4) {
      const std::string tag = kTags[below(std::size(kTags))];
      page += "<" + tag + ">";
      open.push_back(tag.substr(0, tag.find(' ')));
    } else if (what < 8 && !open.empty()) {
      if (below(8) > 0) page += "</" + open.back() + ">";
      if (tidy || below(10) > 0) open.pop_back();
    } else {
      page += kAlone[below(tidy ? 26 : std::size(kAlone))];
    }
  }
  for (; !open.empty() && (tidy || below(8) > 0); open.pop_back()) page += "</" + open.back() + ">";
  return page + (below(2) == 0 ? "</body></html>\n" : "");
}

TEST(NestedPage, AgreesWithTheFullParserOnRandomPages) {
  std::mt19937 random(1);
  int nested = 0;
  for (int i = 0; i < 20000; ++i) nested += is_nested(random_page(random));
  EXPECT_GT(nested, 2000);
}

}  // namespace
}  // namespace strata::data
