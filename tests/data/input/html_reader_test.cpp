#include <gtest/gtest.h>

#include "data/input/charset.h"
#include "data/input/html_blocks.h"
#include "data/input/main_text.h"
#include "data/input/read_records.h"
#include "fixtures/temporary_folder.h"

namespace strata::data {
namespace {

constexpr const char* kLong = "This paragraph is long enough to be taken for the running text of the page.";

std::string main_text(const std::string& html) {
  std::string text;
  EXPECT_TRUE(extract_main_text(html, text));
  return text;
}

TEST(MainText, RemovesBoilerplateAndKeepsBlocks) {
  const std::string paragraph = std::string("<p>") + kLong + "</p>";
  const std::string html =
      "<html><head><title>T</title><script>var a = '<p>no</p>';</script></head><body>"
      "<header><a href=/>Home</a> <a href=/x>Menu entry</a></header>"
      "<div class='site-sidebar'><ul><li><a href=1>One</a></li><li>Words of a sidebar</li></ul></div>"
      "<div id=content><h1>The <b>title</b></h1>" +
      paragraph +
      "<h2>Empty section</h2><h2>A section</h2><ul><li>first\n   item</li><li>second item</li></ul>"
      "<pre>code {\n    indented\n}</pre>" +
      paragraph + "<table><tr><th>a<th>b<tr><td><p>1</p><td>2</table>" + paragraph +
      "line<br>break, it reads." +
      "<h2>Read on</h2><p><a href=2>Another page of this site</a></p></div>"
      "<footer>Copyright of the author, all rights reserved, and many more words here.</footer>"
      "<p style='display: none'>hidden words that no reader is ever meant to see on this page</p></body>";
  EXPECT_EQ(main_text(html), std::string("The title\n") + kLong +
                                 "\nA section\nfirst item\nsecond item\ncode {\n    indented\n}\n" + kLong +
                                 "\na | b\n1 | 2\n" + kLong + "\nline\nbreak, it reads.");
}

TEST(MainText, TrustsMainAndArticle) {
  const std::string aside = std::string("<div>") + kLong + " But this is only an aside.</div>";
  const std::string html = aside + "<main><p>" + kLong + "</p><p>" + kLong + "</p></main>";
  EXPECT_EQ(main_text(html), std::string(kLong) + "\n" + kLong);
}

// Lists and tables around the running text are kept too; menus and lists of other pages are still removed.
TEST(MainText, KeepsListsAndTablesAtBothEndsOfAnArticle) {
  const std::string paragraph = std::string("<p>") + kLong + "</p>";
  const std::string menu = "<ul><li>Home</li><li>Shop</li></ul>";
  const std::string links =
      "<ul><li><a href=1>Another story</a></li><li><a href=2>One more</a> today</li></ul>";
  const std::pair<const char*, const char*> parts[] = {
      {"<ul><li>200 g flour</li><li>3 eggs</li></ul>", "200 g flour\n3 eggs"},
      {"<ol><li>See <a href=1>the manual</a> first</li><li>Install</li></ol>",
       "See the manual first\nInstall"},
      {"<table><tr><th>a<th>b<tr><td><a href=1>x</a><td>some more</table>", "a | b\nx | some more"},
      {"<table><tr><td><a href=1>Liechtenstein</a><td>38<tr><td><a href=2>Malta</a><td>535000</table>",
       "Liechtenstein | 38\nMalta | 535000"},
      {"<dl><dt>Bread</dt><dd>baked</dd></dl>", "Bread\nbaked"}};
  for (const auto& [html, text] : parts) {
    for (const std::string element : {"article", "main", "div"}) {
      const auto page = [&](const std::string& content) {
        return menu + "<" + element + "><h1>Title</h1>" + content + links + "</" + element + ">" + menu;
      };
      EXPECT_EQ(main_text(page(html + paragraph)), "Title\n" + std::string(text) + "\n" + kLong) << html;
      EXPECT_EQ(main_text(page(paragraph + "<h2>Part</h2><p>Serves 4</p>" + html)),
                "Title\n" + std::string(kLong) + "\nPart\nServes 4\n" + text)
          << html;
    }
  }
}

TEST(MainText, APageInAFormOrASidebarKeepsItsText) {
  EXPECT_EQ(main_text(std::string("<form><p>") + kLong + "</p></form>"), kLong);
  EXPECT_EQ(main_text(std::string("<body class='has-sidebar'><p>") + kLong + "</p>"), kLong);
  EXPECT_EQ(main_text("<p>Short page.</p>"), "Short page.");
  EXPECT_EQ(
      main_text(
          "<p>这是一个很长的段落，它没有空格，但是它是正文，所以它应该被保留下来，因为它有足够多的字。</p>")
          .size(),
      132u);
}

TEST(MainText, OddPages) {
  EXPECT_EQ(main_text(""), "");
  EXPECT_EQ(main_text("<"), "<");
  EXPECT_EQ(main_text("<html>"), "");
  EXPECT_EQ(main_text("<frameset><frame src=a></frameset>"), "");
  EXPECT_EQ(main_text("words &amp; entities &eacute;&nbsp;&#x1F600;"), "words & entities é 😀");
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "<div>";
  std::string text;
  EXPECT_FALSE(extract_main_text(deep + "text", text));
  std::string script = "<script>";
  for (int i = 0; i < 100000; ++i) script += "a<b;";
  EXPECT_TRUE(extract_main_text(script + "</script><p>text</p>", text));
  EXPECT_EQ(text, "text");
}

TEST(Charset, IsReadFromItsDeclaration) {
  EXPECT_EQ(charset_of_content_type("text/html; Charset=\"KOI8-R\""), "koi8-r");
  EXPECT_EQ(charset_of_content_type("text/html"), "");
  EXPECT_EQ(declared_charset("\xEF\xBB\xBF<html>"), "utf-8");
  EXPECT_EQ(declared_charset("<META CHARSET = 'Windows-1251' >"), "windows-1251");
  EXPECT_EQ(declared_charset("<meta http-equiv=Content-Type content='text/html; charset=EUC-JP'>"), "euc-jp");
  EXPECT_EQ(declared_charset("<?xml version='1.0' encoding='iso-8859-15'?><html>"), "iso-8859-15");
  EXPECT_EQ(declared_charset("<p>charset=x"), "");
}

TEST(Charset, DecodesOrReportsAReason) {
  std::string utf8, detail;
  EXPECT_TRUE(decode_page("caf\xe9 \x80", "latin1", utf8, detail));
  EXPECT_EQ(utf8, "café €");
  EXPECT_TRUE(decode_page("caf\xe9", "", utf8, detail));
  EXPECT_EQ(utf8, "café");
  EXPECT_TRUE(decode_page("\xcf\xf0\xe8", "windows-1251", utf8, detail));
  EXPECT_EQ(utf8, "При");
  EXPECT_TRUE(decode_page(std::string_view("\xFE\xFF\x00"
                                           "a\x20\xAC",
                                           6),
                          "utf-16be", utf8, detail));
  EXPECT_EQ(utf8, "a€");
  EXPECT_TRUE(decode_page("valid é", "no-such-encoding", utf8, detail));
  EXPECT_FALSE(decode_page("invalid \xe9", "no-such-encoding", utf8, detail));
  EXPECT_NE(detail.find("no-such-encoding"), std::string::npos);
  EXPECT_FALSE(decode_page("\xff\xff\xff", "utf-8", utf8, detail));
  EXPECT_TRUE(decode_page(std::string(5000, 'a') + "\xff", "utf-8", utf8, detail));
  EXPECT_EQ(utf8, std::string(5000, 'a') + "\uFFFD");
}

// A character of each encoding, by the less usual of its labels.
TEST(Charset, LabelsOfTheWebAreRead) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"latin2", "\xb1", "ą"},          {"iso8859-5", "\xbf", "П"},
      {"cp1253", "\xe1", "α"},          {"koi8", "\xf0", "П"},
      {"koi8-ru", "\xa4", "є"},         {"x-mac-cyrillic", "\x8f", "П"},
      {"logical", "\xe0", "א"},         {"866", "\x8f", "П"},
      {"dos-874", "\xa1", "ก"},         {"iso_8859-15", "\xa4", "€"},
      {"x-cp1250", "\xb9", "ą"},        {"ks_c_5601-1989", "\xb0\xa1", "가"},
      {"x-euc-jp", "\xb0\xa1", "亜"},   {"chinese", "\xb0\xa1", "啊"},
      {"cn-big5", "\xa4\x40", "一"},    {"ms_kanji", "\x88\x9f", "亜"},
      {"unicodefffe", "\x20\xAC", "€"}, {"csiso2022jp", "\x1b$B0!\x1b(B", "亜"}};
  for (const auto& [label, bytes, expected] : cases) {
    std::string utf8, detail;
    EXPECT_TRUE(decode_page(bytes, label, utf8, detail)) << label << ": " << detail;
    EXPECT_EQ(utf8, expected) << label;
  }
}

// Labels that iconv reads and browsers do not, and labels that neither reads.
TEST(Charset, OtherLabelsAreRejected) {
  for (const char* label : {"utf-7", "utf-32", "hz-gb-2312", "iso-2022-kr", "iso-2022-cn-ext", "ebcdic-us",
                            "utf-8//ignore", "x-user-defined", "klingon"}) {
    std::string utf8, detail;
    EXPECT_FALSE(decode_page("caf\xe9", label, utf8, detail)) << label;
    EXPECT_NE(detail.find(label), std::string::npos) << detail;
  }
}

TEST(HtmlReader, EachFileIsAPage) {
  const TemporaryFolder folder;
  const auto records = read_records(folder.write("a.html", "<meta charset=latin1><p>caf\xe9</p>"));
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].document.text, "café");
  EXPECT_EQ(read_records(folder.write("b.htm", ""))[0].status, ReadStatus::kEmptyText);
  EXPECT_EQ(read_records(folder.write("c.html", "<p>\x81\x81"))[0].status, ReadStatus::kNotText);
}

}  // namespace
}  // namespace strata::data
