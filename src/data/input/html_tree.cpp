// Pages as the HTML standard repairs them, by the gumbo library.
#include <gumbo.h>

#include <algorithm>
#include <cctype>
#include <new>
#include <optional>

#include "data/input/html_names.h"
#include "data/input/html_nodes.h"

namespace strata::data {
namespace {

constexpr size_t kArenaChunk = size_t{1} << 18;
constexpr size_t kArenaLimit = size_t{64} << 20;
constexpr size_t kArenaLimitPerByte = 64;
constexpr int64_t kMaxDepth = 2000;

// The parser's memory, freed as a whole: freeing its tree node by node would recurse as deep as the page.
class Arena {
 public:
  Arena(size_t limit, std::vector<std::unique_ptr<char[]>>& chunks) : limit_(limit), chunks_(chunks) {}
  // Throws std::bad_alloc, through the parser's C frames, beyond the limit. The parser holds nothing but
  // memory.
  void* take(size_t size) {
    size = (size + 15) / 16 * 16;
    if (size > left_) {
      const size_t chunk = std::max(size, kArenaChunk);
      if (total_ + chunk > limit_) throw std::bad_alloc();
      total_ += chunk;
      chunks_.push_back(std::make_unique_for_overwrite<char[]>(chunk));
      next_ = chunks_.back().get();
      left_ = chunk;
    }
    void* const taken = next_;
    next_ += size;
    left_ -= size;
    return taken;
  }

 private:
  size_t limit_;
  size_t total_ = 0;
  char* next_ = nullptr;
  size_t left_ = 0;
  std::vector<std::unique_ptr<char[]>>& chunks_;
};

const GumboNode* parse(std::string_view html, Arena& arena) {
  GumboOptions options = kGumboDefaultOptions;
  options.allocator = [](void* memory, size_t size) { return static_cast<Arena*>(memory)->take(size); };
  options.deallocator = [](void*, void*) {};
  options.userdata = &arena;
  options.max_errors = 0;
  const GumboOutput* const output = gumbo_parse_with_options(&options, html.data(), html.size());
  const GumboVector& children = output->root->v.element.children;
  for (size_t i = 0; i < children.length; ++i) {
    const auto* const child = static_cast<const GumboNode*>(children.data[i]);
    if (child->type == GUMBO_NODE_ELEMENT && child->v.element.tag == GUMBO_TAG_BODY) return child;
  }
  return nullptr;
}

// Where the content of <script> or <style> ends, which begins at `at`: tags in it are none.
size_t raw_text_end(std::string_view html, size_t at, std::string_view tag) {
  for (at = html.find("</", at); at != html.npos; at = html.find("</", at + 2)) {
    const std::string_view name = html.substr(at + 2, tag.size());
    if (std::equal(name.begin(), name.end(), tag.begin(), tag.end(),
                   [](unsigned char a, char b) { return std::tolower(a) == b; }))
      return at;
  }
  return html.size();
}

bool is_text(const GumboNode* node) {
  return node->type == GUMBO_NODE_TEXT || node->type == GUMBO_NODE_WHITESPACE ||
         node->type == GUMBO_NODE_CDATA;
}

// Splits the tree into blocks, in order.
class Flattening {
 public:
  explicit Flattening(HtmlNodes& out) : out_(out) {}

  // Depth first without recursion: a node is entered, then its children, then it is left.
  void run(const GumboNode* root) {
    const GumboNode* node = root;
    size_t next = 0;
    enter(node);
    for (;;) {
      const GumboVector& children = node->v.element.children;
      if (next < children.length) {
        const auto* const child = static_cast<const GumboNode*>(children.data[next]);
        if (child->type == GUMBO_NODE_ELEMENT) {
          enter(child);
          node = child;
          next = 0;
          continue;
        }
        if (is_text(child) && *child->v.text.text != '\0') out_.nodes.push_back({.text = child->v.text.text});
        ++next;
        continue;
      }
      leave();
      if (node == root) break;
      next = node->index_within_parent + 1;
      node = node->parent;
    }
  }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};

  void enter(const GumboNode* node) {
    const GumboElement& element = node->v.element;
    const bool is_html = element.tag_namespace == GUMBO_NAMESPACE_HTML;
    HtmlNode begun{.tag = static_cast<uint16_t>(element.tag)};
    const bool block = is_block(element.tag);
    std::string_view classes;
    attributes_.clear();
    for (size_t i = 0; i < element.attributes.length; ++i) {
      const auto* const attribute = static_cast<const GumboAttribute*>(element.attributes.data[i]);
      const std::optional<HtmlName> name = html_name(attribute->name);
      if (name && block) attributes_.push_back({*name, attribute->value});
      if (name == HtmlName::kClass) classes = attribute->value;
      if (element.tag == GUMBO_TAG_A && std::string_view(attribute->name) == "href")
        begun.link = *attribute->value != '\0';
    }
    begun.skipped = is_html ? is_skipped(element.tag, classes) : element.tag_namespace == GUMBO_NAMESPACE_SVG;
    const bool matters = block || begun.link || begun.skipped || element.tag == GUMBO_TAG_BR;
    open_.push_back(matters ? static_cast<uint32_t>(out_.nodes.size()) : kNone);
    if (matters) out_.begin(begun, attributes_);
  }

  void leave() {
    if (open_.back() != kNone) out_.end(open_.back());
    open_.pop_back();
  }

  HtmlNodes& out_;
  std::vector<uint32_t> open_;
  std::vector<HtmlAttribute> attributes_;  // of the node that is entered
};

}  // namespace

void HtmlNodes::begin(HtmlNode node, std::span<const HtmlAttribute> of_node) {
  node.kind = HtmlNode::kBegin;
  node.attribute = static_cast<uint32_t>(attributes.size());
  node.of = static_cast<uint32_t>(of_node.size());
  attributes.insert(attributes.end(), of_node.begin(), of_node.end());
  nodes.push_back(node);
}

void HtmlNodes::end(uint32_t begun) {
  nodes[begun].end = static_cast<uint32_t>(nodes.size());
  nodes.push_back({.kind = HtmlNode::kEnd, .link = nodes[begun].link, .tag = nodes[begun].tag});
}

bool nested_too_deep(std::string_view html) {
  if (html.empty()) return false;
  // The parser looks through all open elements for many a tag, so its time grows with depth times size.
  int64_t depth = 0;
  for (size_t at = html.find('<'); at < html.size() - 1; at = html.find('<', at + 1)) {
    const char next = html[at + 1];
    if (next == '/') {
      depth = std::max<int64_t>(0, depth - 1);
    } else if (html.substr(at).starts_with("<!--")) {
      at = std::min(html.find("-->", at), html.size() - 1);
    } else if (std::isalpha(static_cast<unsigned char>(next))) {
      const size_t end = std::min(html.find_first_of(" \t\r\n/>", at), at + 16);
      std::string tag(html.substr(at + 1, end - at - 1));
      for (char& c : tag) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      if (!closes_itself(tag) && ++depth > kMaxDepth) return true;
      if (tag == "script" || tag == "style") at = raw_text_end(html, at, tag) - 1;
    }
  }
  return false;
}

size_t tree_limit(size_t page_bytes) {
  return kArenaLimit + kArenaLimitPerByte * page_bytes;
}

bool read_any_page(std::string_view html, HtmlNodes& out) {
  if (nested_too_deep(html)) return false;
  Arena arena(tree_limit(html.size()), out.memory);
  try {
    if (const GumboNode* const body = parse(html, arena)) Flattening(out).run(body);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

std::string decode_reference(std::string_view reference) {
  const std::string page = "<!doctype html><body>" + std::string(reference);
  std::vector<std::unique_ptr<char[]>> memory;
  Arena arena(tree_limit(page.size()), memory);
  std::string text;
  const GumboVector& children = parse(page, arena)->v.element.children;
  for (size_t i = 0; i < children.length; ++i)
    text += static_cast<const GumboNode*>(children.data[i])->v.text.text;
  return text;
}

}  // namespace strata::data
