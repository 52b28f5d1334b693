#include "data/input/main_text.h"

#include <algorithm>
#include <vector>

#include "data/input/html_blocks.h"

namespace strata::data {
namespace {

// Thresholds of running text; Kohlschütter's shallow features put the borders at a third and at ten words.
constexpr double kMaxLinkDensity = 1.0 / 3;
constexpr uint32_t kRunningWords = 10;
// Scripts without spaces have no words to count: so many characters count as one.
constexpr uint32_t kCharactersPerWord = 6;
// An element that holds this share of the running text is gone down into.
constexpr double kMainShare = 0.9;
constexpr double kSemanticShare = 0.5;
// Lists of links around the text lead elsewhere; one with fewer is a part of it.
constexpr double kListLinkDensity = 0.5;
// A table's rows often begin with a link; a table of only links is a menu.
constexpr double kTableLinkDensity = 0.8;
// What looks like boilerplate by name holds more of the page than this: it is none.
constexpr double kBoilerplateShare = 0.5;

double link_density(const HtmlBlock& block) {
  return static_cast<double>(block.link_characters) / std::max(1u, block.characters);
}

uint32_t word_count(const HtmlBlock& block) {
  return std::max(block.words, block.characters / kCharactersPerWord);
}

bool is_running_text(const HtmlBlock& block) {
  if (block.kind == BlockKind::kHeading) return false;
  if (block.kind == BlockKind::kPreformatted) return true;
  return word_count(block) >= kRunningWords && link_density(block) < kMaxLinkDensity;
}

bool ends_like_a_sentence(const HtmlBlock& block) {
  const std::string_view text = block.text;
  if (text.empty()) return false;
  if (std::string_view(".!?:;\"')").find(text.back()) != std::string_view::npos) return true;
  return text.ends_with("。") || text.ends_with("！") || text.ends_with("？") || text.ends_with("”");
}

bool is_title(const HtmlBlock& block) {
  return block.kind == BlockKind::kHeading && block.heading_level == 1;
}

// Sums a value of blocks over each element with all that is in it.
std::vector<double> sum_up(const HtmlPage& page, const std::vector<double>& of_block) {
  std::vector<double> sums(page.elements.size());
  for (size_t i = 0; i < page.blocks.size(); ++i) sums[page.blocks[i].element] += of_block[i];
  for (size_t e = page.elements.size(); e-- > 1;) sums[page.elements[e].parent] += sums[e];
  return sums;
}

// The elements that are boilerplate by name, or are inside one that is.
std::vector<char> find_boilerplate(const HtmlPage& page) {
  std::vector<double> characters;
  for (const HtmlBlock& block : page.blocks)
    characters.push_back(block.characters - 0.9 * block.link_characters);
  const std::vector<double> sums = sum_up(page, characters);
  std::vector<char> boilerplate(page.elements.size());
  for (size_t e = 1; e < page.elements.size(); ++e) {
    const HtmlElement& element = page.elements[e];
    boilerplate[e] =
        boilerplate[element.parent] || (element.boilerplate && sums[e] < kBoilerplateShare * sums[0]);
  }
  return boilerplate;
}

// The element that holds the main part.
size_t find_main(const HtmlPage& page, const std::vector<double>& running) {
  size_t root = 0;
  for (size_t e = 0; e < page.elements.size(); ++e) {
    // The outermost one with enough text; <main> is found before the <article>s in it.
    if (page.elements[e].main && running[e] >= kSemanticShare * running[0] && running[e] > 0) return e;
  }
  std::vector<char> holds_others(page.elements.size());
  for (size_t e = 1; e < page.elements.size(); ++e) holds_others[page.elements[e].parent] = 1;
  for (size_t e = 1; e < page.elements.size(); ++e) {
    // Elements come before those inside them, and two separate ones cannot both hold this share. The
    // children of a paragraph are not searched: the text around them belongs to it.
    if (holds_others[e] && page.elements[e].parent == root && running[e] >= kMainShare * running[0] &&
        running[e] > 0)
      root = e;
  }
  return root;
}

// Headings stay where something stays under them: text, or a deeper heading that stays.
void drop_bare_headings(const HtmlPage& page, std::vector<char>& keep) {
  bool text_follows = false;
  int next_level = 0;  // of the next kept heading; 0: none
  for (size_t i = page.blocks.size(); i-- > 0;) {
    const HtmlBlock& block = page.blocks[i];
    if (!keep[i]) continue;
    if (block.kind != BlockKind::kHeading) {
      text_follows = true;
      continue;
    }
    keep[i] = text_follows || next_level > block.heading_level;
    if (keep[i]) {
      next_level = block.heading_level;
      text_follows = false;
    }
  }
}

// Blocks of lists and tables that are not menus: as a whole they hold few links.
std::vector<char> find_listed(const HtmlPage& page) {
  const size_t elements = page.elements.size();
  std::vector<size_t> list_of(elements);  // the innermost around each element; the body: none
  for (size_t e = 1; e < elements; ++e)
    list_of[e] = page.elements[e].list ? e : list_of[page.elements[e].parent];
  std::vector<double> characters(elements), links(elements);
  for (const HtmlBlock& block : page.blocks) {
    characters[list_of[block.element]] += block.characters;
    links[list_of[block.element]] += block.link_characters;
  }
  std::vector<char> listed(page.blocks.size());
  for (size_t i = 0; i < page.blocks.size(); ++i) {
    const size_t list = list_of[page.blocks[i].element];
    const double most = page.blocks[i].kind == BlockKind::kTableRow ? kTableLinkDensity : kListLinkDensity;
    listed[i] = list != 0 && links[list] < most * characters[list];
  }
  return listed;
}

// Blocks [begin, end) that the running text spans, with lists and tables of the same element around it: those
// before it only if they follow the title.
struct Span {
  size_t begin = 0, end = 0;
};
Span find_span(const HtmlPage& page, const std::vector<double>& running, const std::vector<char>& inside,
               const std::vector<char>& keep, const std::vector<char>& listed) {
  const size_t count = page.blocks.size();
  size_t first = count, last = 0;
  for (size_t i = 0; i < count; ++i) {
    if (running[i] > 0 && inside[page.blocks[i].element]) {
      first = std::min(first, i);
      last = i;
    }
  }
  if (first == count) return {};
  Span span{first, last + 1};
  const auto belongs = [&](size_t i) { return listed[i] && keep[i] && inside[page.blocks[i].element]; };
  for (size_t i = first; i-- > 0;) {
    if (is_title(page.blocks[i])) break;
    if (belongs(i)) span.begin = i;
  }
  for (size_t i = last + 1; i < count; ++i) {
    if (belongs(i)) span.end = i + 1;
  }
  return span;
}

std::vector<char> choose_blocks(const HtmlPage& page) {
  const size_t count = page.blocks.size();
  const std::vector<char> boilerplate = find_boilerplate(page);
  std::vector<char> keep(count);
  std::vector<double> of_block(count);
  for (size_t i = 0; i < count; ++i) {
    const HtmlBlock& block = page.blocks[i];
    keep[i] = !boilerplate[block.element];
    if (keep[i] && is_running_text(block)) of_block[i] = block.characters;
  }
  const std::vector<double> running = sum_up(page, of_block);
  const size_t root = find_main(page, running);
  std::vector<char> inside(page.elements.size());
  inside[root] = 1;
  for (size_t e = root + 1; e < page.elements.size(); ++e) inside[e] = inside[page.elements[e].parent];

  // Within the span of the text short blocks belong to it; around it only sentences do.
  const std::vector<char> listed = find_listed(page);
  const Span span = find_span(page, of_block, inside, keep, listed);
  const bool any_text = span.begin < span.end;
  for (size_t i = 0; i < count; ++i) {
    const HtmlBlock& block = page.blocks[i];
    if (!inside[block.element]) {
      keep[i] = keep[i] && is_title(block) && i < span.begin;
    } else if (block.kind != BlockKind::kHeading) {
      const bool within = i >= span.begin && i < span.end;
      if (!(within && listed[i]) && link_density(block) > (within ? 0.8 : kMaxLinkDensity)) keep[i] = 0;
      if (any_text && !within && of_block[i] == 0 && !ends_like_a_sentence(block)) keep[i] = 0;
    }
  }
  drop_bare_headings(page, keep);
  return keep;
}

}  // namespace

bool extract_main_text(std::string_view html, std::string& text) {
  text.clear();
  HtmlPage page;
  if (!parse_html(html, page)) return false;
  const std::vector<char> keep = choose_blocks(page);
  for (size_t i = 0; i < page.blocks.size(); ++i) {
    if (!keep[i]) continue;
    const std::string& block = page.blocks[i].text;
    if (!text.empty()) text += '\n';
    text.append(block, block.find_first_not_of('\n'));
  }
  return true;
}

}  // namespace strata::data
