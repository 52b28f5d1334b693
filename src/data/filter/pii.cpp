// Masking of e-mail and IP addresses as datatrove does it, and of telephone numbers as dolma finds them. The
// replacements take turns within a document, not across documents, so that the result depends on no order.
#include "data/filter/pii.h"

#include "base/error.h"
#include "data/filter/kinds.h"

namespace strata::data {
namespace {

constexpr std::string_view kKind = "pii";
using Strings = std::vector<std::string>;

struct Scratch {
  std::vector<Found> found;
  std::string text;
};

class Pii final : public DocumentStage {
 public:
  explicit Pii(const StageParameters& parameters)
      : remove_emails_(parameters.get<bool>("remove_emails")),
        remove_ips_(parameters.get<bool>("remove_ips")),
        remove_phones_(parameters.get<bool>("remove_phones")),
        only_public_(parameters.get<bool>("only_remove_public_ips")),
        emails_(replacements(parameters, "email_replacement")),
        ips_(replacements(parameters, "ip_replacement")),
        phones_(replacements(parameters, "phone_replacement")) {}

  std::string_view apply(TextView& text, const Document&, StageStats& stats) const override {
    Scratch& scratch = text.scratch<Scratch>();
    if (remove_emails_) {
      email_.find(text.bytes(), scratch.found);
      replace(text, scratch, emails_, stats, "emails");
    }
    if (remove_ips_) {
      find_ipv4(text.bytes(), scratch.found);
      std::erase_if(scratch.found, [&](const Found& found) {
        return !is_masked_ipv4(text.bytes().substr(found.begin, found.end - found.begin), only_public_);
      });
      replace(text, scratch, ips_, stats, "ips");
    }
    if (remove_phones_) {
      find_phones(text.bytes(), scratch.found);
      replace(text, scratch, phones_, stats, "phones");
    }
    return {};
  }

 private:
  static Strings replacements(const StageParameters& parameters, const std::string& name) {
    Strings out = parameters.get<Strings>(name);
    if (out.empty()) throw ConfigError("[{}] {} is empty, expected at least one replacement", kKind, name);
    return out;
  }

  static void replace(TextView& text, Scratch& scratch, const Strings& by, StageStats& stats,
                      std::string_view name) {
    if (scratch.found.empty()) return;
    const std::string_view bytes = text.bytes();
    scratch.text.clear();
    size_t done = 0, turn = 0;
    for (const Found& found : scratch.found) {
      scratch.text += bytes.substr(done, found.begin - done);
      scratch.text += by[turn++ % by.size()];
      done = found.end;
    }
    scratch.text += bytes.substr(done);
    text.replace(scratch.text);
    stats.count(name, static_cast<int64_t>(scratch.found.size()));
  }

  const bool remove_emails_, remove_ips_, remove_phones_, only_public_;
  const Strings emails_, ips_, phones_;
  const EmailPattern email_;
};

}  // namespace

StageKind pii_kind() {
  return {.name = std::string(kKind),
          .help = "masks e-mail and IP addresses (as datatrove) and telephone numbers (as dolma)",
          .parameters =
              {
                  {"remove_emails", true, "whether e-mail addresses are masked"},
                  {"remove_ips", true, "whether IPv4 addresses are masked"},
                  {"only_remove_public_ips", true, "whether private and reserved addresses stay"},
                  {"remove_phones", true, "whether US telephone numbers are masked"},
                  {"email_replacement", Strings{"email@example.com", "firstname.lastname@example.org"},
                   "replacements of e-mail addresses, in turn"},
                  {"ip_replacement",
                   Strings{"22.214.171.124", "126.96.36.199", "188.8.131.52", "184.108.40.206",
                           "220.127.116.11", "18.104.22.168"},
                   "replacements of IP addresses, in turn (these answered no ping)"},
                  {"phone_replacement", Strings{"|||PHONE_NUMBER|||"},
                   "replacements of telephone numbers, in turn"},
              },
          .make = [](const StageParameters& parameters) -> AnyStage {
            return std::make_unique<Pii>(parameters);
          }};
}

}  // namespace strata::data
