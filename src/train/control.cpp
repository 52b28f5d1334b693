#include "train/control.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "config/value_json.h"

namespace strata::training {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSuffix = ".json";
// Time stamps of folders are coarse, and other hosts' clocks may differ: the folder is read now and then even
// if its time has not changed.
constexpr double kLookAgainSeconds = 2;
// Of one take(): the next ones wait for the next step.
constexpr size_t kMostAtOnce = 100;
constexpr size_t kMostSettings = 100;
constexpr size_t kMostNameBytes = 100;

bool is_request_id(std::string_view text) {
  return !text.empty() && text.size() <= kMostNameBytes && text.front() != '.' &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
         });
}

// For messages and answers: printable, and not long.
std::string harmless(std::string_view text) {
  std::string out;
  size_t size = std::min(text.size(), kMostNameBytes);
  // Not in the middle of a character of several bytes.
  while (size > 0 && size < text.size() && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;
  for (const char c : text.substr(0, size))
    out.push_back(static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c);
  return out;
}

std::string text_field(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end()) throw ConfigError("\"{}\" is missing", key);
  if (!found->is_string()) throw ConfigError("\"{}\" is not a text", key);
  return found->get<std::string>();
}

void read_settings(const Json& json, Request& request) {
  if (!json.is_object() || json.empty()) throw ConfigError("\"set\" is not an object with keys and values");
  if (json.size() > kMostSettings)
    throw ConfigError("\"set\" has {} keys, expected at most {}", json.size(), kMostSettings);
  request.what = Request::What::kSet;
  for (const auto& [key, value] : json.items()) {
    if (key.empty() || key.find_first_of("=\n ") != std::string::npos)
      throw ConfigError("\"{}\" is not a key, expected one such as optimizer.lr", harmless(key));
    // Keys of tables have no order: one request is written in one way.
    const Json sorted = nlohmann::json(value);
    request.settings.push_back({key, to_toml(config::value_from_json(sorted))});
  }
}

Json settings_json(const Request& request) {
  Json json = Json::object();
  for (const config::NewSetting& setting : request.settings) {
    ConfigValue root{.data = ConfigValue::Table{}, .origin = {}};
    apply_set(root, "value=" + setting.value);
    json[setting.key] = config::to_json(*root.find("value"));
  }
  return json;
}

// The members after "by" and, in an answer, after "at_step".
void add_what(Json& json, const Request& request) {
  if (request.what == Request::What::kSet) {
    json["set"] = settings_json(request);
  } else {
    json["do"] = request.what == Request::What::kStop ? "stop" : "save";
  }
}

std::string error_text(int error) {
  return std::strerror(error);
}

// RUN/control, or the reason why it cannot be used.
struct OpenedFolder {
  int descriptor = -1;
  std::string problem;
};
OpenedFolder open_control_folder(const Path& path) {
  const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return {-1, fmt::format("it cannot be opened as a folder: {}", error_text(errno))};
  struct stat found = {};
  if (::fstat(folder, &found) == 0 && found.st_uid == ::geteuid() && (found.st_mode & 0077) == 0)
    return {folder, {}};
  ::close(folder);
  return {-1, fmt::format("it belongs to user {} with mode {:o}, expected user {} with mode 700",
                          found.st_uid, found.st_mode & 0777, ::geteuid())};
}

struct FileCloser {
  int descriptor;
  ~FileCloser() { ::close(descriptor); }
};

// The content of a request; ConfigError with the reason to refuse it. Nothing if it has been taken back.
std::optional<std::string> read_request_file(int folder, const std::string& name) {
  // Without O_NONBLOCK a pipe would stop the run.
  const int descriptor =
      ::openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (descriptor < 0 && errno == ENOENT) return std::nullopt;
  if (descriptor < 0 && errno == ELOOP) throw ConfigError("it is a link, expected a file");
  if (descriptor < 0) throw ConfigError("it cannot be opened: {}", error_text(errno));
  const FileCloser closer{descriptor};
  struct stat found = {};
  if (::fstat(descriptor, &found) != 0) throw ConfigError("it cannot be read: {}", error_text(errno));
  if (!S_ISREG(found.st_mode)) throw ConfigError("it is not a file");
  if (found.st_uid != ::geteuid())
    throw ConfigError("it belongs to user {}, expected the run's user {}", found.st_uid, ::geteuid());
  if (found.st_nlink > 1) throw ConfigError("it is a link to another file");
  std::string text(kMostRequestBytes + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(descriptor, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw ConfigError("it cannot be read: {}", error_text(errno));
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size > kMostRequestBytes) throw ConfigError("it has more than {} bytes", kMostRequestBytes);
  text.resize(size);
  return text;
}

}  // namespace

std::string to_json(const Request& request) {
  Json json{{"id", request.id}, {"by", request.by}};
  add_what(json, request);
  return dump_json(json, -1, InvalidUtf8::kReplace) + "\n";
}

Request parse_request(std::string_view text) {
  const Json json = parse_json_or_discard<Json>(text);
  if (json.is_discarded()) throw ConfigError("it is not complete JSON");
  if (!json.is_object()) throw ConfigError("it is not a JSON object");
  for (const auto& [key, value] : json.items()) {
    if (key != "id" && key != "by" && key != "do" && key != "set")
      throw ConfigError("unknown key \"{}\", expected id, by, and do or set", harmless(key));
  }
  Request request;
  request.id = text_field(json, "id");
  if (!is_request_id(request.id))
    throw ConfigError("\"id\" is \"{}\", expected letters, digits, \"-\", \"_\" and \".\"",
                      harmless(request.id));
  request.by = harmless(text_field(json, "by"));
  if (json.contains("do") == json.contains("set")) throw ConfigError("expected one of \"do\" and \"set\"");
  if (json.contains("set")) {
    read_settings(json["set"], request);
    return request;
  }
  const std::string what = text_field(json, "do");
  if (what != "stop" && what != "save")
    throw ConfigError("\"do\" is \"{}\", expected \"stop\" or \"save\"", harmless(what));
  request.what = what == "stop" ? Request::What::kStop : Request::What::kSave;
  return request;
}

std::string new_request_id() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format("{:020}-{:08x}", std::chrono::duration_cast<std::chrono::nanoseconds>(now).count(),
                     std::random_device()());
}

void ControlFolder::begin(FileSystem& files, const Path& run) {
  const Path path = run / kControlFolder;
  const bool is_new = ::mkdir(path.c_str(), 0700) == 0;
  if (!is_new && errno != EEXIST) {
    log_warning("[{}] cannot be made: {}; the run takes no requests", path.string(), error_text(errno));
    return;
  }
  const OpenedFolder opened = open_control_folder(path);
  if (opened.descriptor < 0) {
    log_warning("[{}] {}; the run takes no requests (strata stop, save, set); remove it and start again",
                path.string(), opened.problem);
    return;
  }
  ::close(opened.descriptor);
  if (is_new) return;  // a request that finds a new folder is for this run
  ControlFolder folder(files, run);
  for (const std::string& name : folder.names())
    folder.refuse(name, 0, "the run that it was sent to has ended; send it again");
}

ControlFolder::ControlFolder(FileSystem& files, const Path& run)
    : files_(files), run_(run), folder_(open_control_folder(run / kControlFolder).descriptor) {}

ControlFolder::~ControlFolder() {
  if (folder_ >= 0) ::close(folder_);
}

bool ControlFolder::changed() {
  if (folder_ < 0) return false;
  struct stat found = {};
  if (::fstat(folder_, &found) != 0) return false;
  const int64_t time = int64_t{found.st_mtim.tv_sec} * 1'000'000'000 + found.st_mtim.tv_nsec;
  const double now = monotonic_seconds();
  if (time == seen_ && now - looked_ < kLookAgainSeconds) return false;
  // A time this new may be that of a later request, too.
  constexpr double kTickSeconds = 0.1;
  const bool settled = unix_seconds() - static_cast<double>(time) * 1e-9 > kTickSeconds;
  seen_ = settled ? time : -1;
  looked_ = now;
  return !names().empty();
}

// Without those that are still being written, whose names begin with a dot.
std::vector<std::string> ControlFolder::names() {
  std::vector<std::string> out;
  // Another descriptor: reading moves its position.
  const int again = ::openat(folder_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const open = again < 0 ? nullptr : ::fdopendir(again);
  if (open == nullptr) {
    if (again >= 0) ::close(again);
    return out;
  }
  while (const dirent* entry = ::readdir(open)) {
    const std::string name = entry->d_name;
    if (name.front() != '.' && !stuck_.contains(name)) out.push_back(name);
  }
  ::closedir(open);
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<Request> ControlFolder::take(int64_t step) {
  std::vector<Request> requests;
  if (folder_ < 0) return requests;
  std::vector<std::string> found = names();
  if (found.size() > kMostAtOnce) {
    found.resize(kMostAtOnce);
    seen_ = -1;
  }
  for (const std::string& name : found) {
    try {
      if (!name.ends_with(kSuffix)) throw ConfigError("its name does not end in .json");
      const auto text = read_request_file(folder_, name);
      if (!text) continue;
      Request request = parse_request(*text);
      remove(name);
      requests.push_back(std::move(request));
    } catch (const Error& error) {
      refuse(name, step, error.what());
    }
  }
  return requests;
}

void ControlFolder::remove(const std::string& name) {
  if (::unlinkat(folder_, name.c_str(), 0) != 0 && errno != ENOENT) stuck_.insert(name);
}

void ControlFolder::refuse(const std::string& name, int64_t step, const std::string& why) {
  std::string id = harmless(name);
  if (id.ends_with(kSuffix)) id.resize(id.size() - kSuffix.size());
  struct stat found = {};
  const bool known = ::fstatat(folder_, name.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0;
  remove(name);
  log_warning("request {} was refused: {}", id, why);
  append(dump_json(Json{{"id", id},
                        {"at_step", step},
                        {"by", known ? fmt::format("user {}", found.st_uid) : ""},
                        {"do", "unknown"},
                        {"result", std::string(kRefused) + why}},
                   -1, InvalidUtf8::kReplace) +
         "\n");
}

void ControlFolder::answer(const Request& request, int64_t at_step, std::string_view result) {
  Json json{{"id", request.id}, {"at_step", at_step}, {"by", request.by}};
  add_what(json, request);
  json["result"] = result;
  append(dump_json(json, -1, InvalidUtf8::kReplace) + "\n");
}

void ControlFolder::append(const std::string& line) {
  const Path path = run_ / kControlLog;
  try {
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    // A line that a crash cut short must not swallow this one.
    char last = '\n';
    if (!error && size > 0) ReadableFile(path).read_at(size - 1, &last, 1);
    auto file = files_.open_for_writing(path, true);
    file->append((last == '\n' ? "" : "\n") + line);
    file->sync();
    file->close();
  } catch (const Error& failure) {
    log_warning("[{}] a request's answer could not be written: {}", path.string(), failure.what());
  }
}

}  // namespace strata::training
