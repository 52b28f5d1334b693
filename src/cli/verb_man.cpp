// strata man: files that the build installs with the program.
#include "base/file.h"
#include "cli/describe.h"
#include "cli/verbs.h"

namespace strata::cli {
namespace {

int write_pages(const Path& folder) {
  FileSystem& files = posix_file_system();
  const auto verbs = describe_commands();
  const auto write = [&](const Path& path, const std::string& text) {
    files.create_directories(path.parent_path());
    write_file_atomically(files, path, text);
  };
  write(folder / "man/man1/strata.1", manual_page(verbs, ""));
  for (const std::string& name : verbs.front().verbs) {
    write(folder / "man/man1" / ("strata-" + name + ".1"), manual_page(verbs, name));
  }
  write(folder / "bash-completion/completions/strata", bash_completion(verbs));
  write(folder / "zsh/site-functions/_strata", zsh_completion(verbs));
  write(folder / "fish/vendor_completions.d/strata.fish", fish_completion(verbs));
  return 0;
}

}  // namespace

void add_man(Verb root) {
  auto folder = std::make_shared<std::string>();
  Verb verb = root.verb("man", "Write manual pages and completions into a folder, as share/ has them",
                        "strata man ~/.local/share");
  verb.option("FOLDER", *folder, "Where man/, bash-completion/, zsh/ and fish/ go").required();
  verb.action([folder] { return write_pages(*folder); });
}

}  // namespace strata::cli
