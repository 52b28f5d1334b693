#include "cli/output.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace strata::cli {
namespace {

[[noreturn]] void fail(int error) {
  if (error == EPIPE) {  // the parent process ignores SIGPIPE
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  throw WorldError("[standard output] writing failed: {}; free some space or write somewhere else",
                   std::strerror(error));
}

}  // namespace

void print_out(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) fail(errno);
}

void flush_out() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) fail(errno);
}

void refuse_existing(const std::string& where, const Path& path, bool force) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  const bool link = std::filesystem::is_symlink(path, error);
  if (force || (!link && !std::filesystem::exists(status))) return;
  if (std::filesystem::exists(status) && std::filesystem::is_other(status)) return;
  if (std::filesystem::is_directory(status) && std::filesystem::is_empty(path, error)) return;
  throw ConfigError("[{}] {} exists already; choose another name, or replace it with --force", where,
                    path.string());
}

void check_output_file(const std::string& where, const Path& path, bool force) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error) || !path.has_filename())
    throw ConfigError("[{}] {} is a folder, expected the name of a file", where, path.string());
  const Path folder = path.has_parent_path() ? path.parent_path() : Path(".");
  if (!std::filesystem::is_directory(folder, error))
    throw ConfigError("[{}] folder {} does not exist; create it, or name a file elsewhere", where,
                      folder.string());
  refuse_existing(where, path, force);
}

}  // namespace strata::cli
