// datatrove's URL filter, over the recipe's lists. Unlike there, hosts and words are compared without case.
#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "data/filter/kinds.h"
#include "data/filter/list_file.h"

namespace strata::data {
namespace {

constexpr std::string_view kKind = "url_blocklist";
using Strings = std::vector<std::string>;

bool is_alnum(char c) {
  return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
}
char lower_ascii(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}

// Lower case, with ASCII letters and digits only.
std::string normalized(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (is_alnum(c)) out += lower_ascii(c);
  }
  return out;
}

// The host of a URL, in lower case.
std::string host_of(std::string_view url) {
  const size_t scheme = url.find("://");
  if (scheme != std::string_view::npos) url.remove_prefix(scheme + 3);
  url = url.substr(0, url.find_first_of("/?#"));
  const size_t user = url.rfind('@');
  if (user != std::string_view::npos) url.remove_prefix(user + 1);
  if (!url.starts_with('[')) url = url.substr(0, url.find(':'));
  while (url.ends_with('.')) url.remove_suffix(1);
  std::string out(url);
  std::transform(out.begin(), out.end(), out.begin(), lower_ascii);
  return out;
}

// With scheme and host in lower case: they mean the same in any.
std::string canonical_url(std::string_view url) {
  const size_t scheme = url.find("://");
  const size_t host_end = scheme == url.npos ? 0 : std::min(url.find_first_of("/?#", scheme + 3), url.size());
  std::string out(url);
  std::transform(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(host_end), out.begin(), lower_ascii);
  return out;
}

// The part of a host that was registered: two labels, or three below a country's general second level.
std::string_view registered_domain(std::string_view host) {
  const size_t last = host.rfind('.');
  if (last == std::string_view::npos || last == 0) return host;
  const size_t second = host.rfind('.', last - 1);
  if (second == std::string_view::npos) return host;
  const std::string_view middle = host.substr(second + 1, last - second - 1);
  constexpr std::string_view kGeneral[] = {"ac", "co", "com", "edu", "gob", "gov",
                                           "go", "ne", "net", "or",  "org"};
  const bool general = host.size() - last - 1 == 2 &&
                       std::find(std::begin(kGeneral), std::end(kGeneral), middle) != std::end(kGeneral);
  if (!general || second == 0) return host.substr(second + 1);
  const size_t third = host.rfind('.', second - 1);
  return third == std::string_view::npos ? host : host.substr(third + 1);
}

class UrlBlocklist final : public DocumentStage {
 public:
  explicit UrlBlocklist(const StageParameters& parameters)
      : field_(parameters.get<std::string>("url_field")),
        soft_word_threshold_(static_cast<size_t>(parameters.get<int64_t>("soft_word_threshold"))),
        domains_(set_of(list_entries(parameters, "extra_domains", "domains_file"), host_of)),
        urls_(set_of(list_entries(parameters, "extra_urls", "urls_file"), canonical_url)),
        banned_words_(normalized_set(parameters, "banned_words")),
        soft_banned_words_(normalized_set(parameters, "soft_banned_words")) {
    for (const std::string& word : normalized_set(parameters, "banned_subwords"))
      banned_subwords_.push_back(word);
    if (parameters.get<int64_t>("soft_word_threshold") < 1)
      throw ConfigError("[{}] soft_word_threshold is below 1", kKind);
  }

  std::string_view apply(TextView&, const Document& document, StageStats& stats) const override {
    const std::string url = string_field(document, field_);
    if (url.empty()) {
      stats.count("no_url");
      return {};
    }
    const std::string host = host_of(url);
    if (domains_.contains(std::string(registered_domain(host)))) return "domain";
    if (domains_.contains(host)) return "subdomain";
    if (urls_.contains(canonical_url(url))) return "url";
    std::unordered_set<std::string> words;
    for (size_t at = 0; at < url.size();) {
      size_t end = at;
      while (end < url.size() && is_alnum(url[end])) ++end;
      if (end > at) words.insert(normalized(std::string_view(url).substr(at, end - at)));
      at = end + 1;
    }
    size_t soft = 0;
    for (const std::string& word : words) {
      if (banned_words_.contains(word)) return "hard_blacklisted";
      soft += soft_banned_words_.contains(word);
    }
    if (soft >= soft_word_threshold_) return "soft_blacklisted";
    const std::string letters = normalized(url);
    for (const std::string& word : banned_subwords_) {
      if (letters.find(word) != std::string::npos) return "blacklisted_subword";
    }
    return {};
  }

 private:
  using Set = std::unordered_set<std::string>;
  static Set set_of(const Strings& entries, std::string (*form)(std::string_view)) {
    Set out;
    for (const std::string& entry : entries) out.insert(form(entry));
    return out;
  }
  static Set normalized_set(const StageParameters& parameters, const std::string& name) {
    Set out;
    for (const std::string& entry : list_entries(parameters, name, name + "_file")) {
      std::string word = normalized(entry);
      if (!word.empty()) out.insert(std::move(word));
    }
    return out;
  }

  const std::string field_;
  const size_t soft_word_threshold_;
  const Set domains_, urls_, banned_words_, soft_banned_words_;
  Strings banned_subwords_;
};

}  // namespace

StageKind url_blocklist_kind() {
  const auto list = [](const char* name, const char* help) { return StageParameter{name, Strings{}, help}; };
  const auto file = [](const char* name) {
    return StageParameter{name, std::string(), "a file with more of them, one a line"};
  };
  return {.name = std::string(kKind),
          .help = "drops documents by their URL: domains, URLs, words (as datatrove, over your own lists)",
          .parameters = {{"url_field", std::string("url"), "the record's field with the URL"},
                         list("extra_domains", "domains to drop, registered ones or whole host names"),
                         file("domains_file"),
                         list("extra_urls", "URLs to drop"),
                         file("urls_file"),
                         list("banned_words", "words of a URL that drop it"),
                         file("banned_words_file"),
                         list("banned_subwords", "the same, also inside words"),
                         file("banned_subwords_file"),
                         list("soft_banned_words", "words of which several drop it"),
                         file("soft_banned_words_file"),
                         {"soft_word_threshold", int64_t{2}, "how many of these"}},
          .make = [](const StageParameters& parameters) -> AnyStage {
            return std::make_unique<UrlBlocklist>(parameters);
          }};
}

}  // namespace strata::data
