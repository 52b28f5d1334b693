// Requests to a running run: files in RUN/control, answered in RUN/control.jsonl. There is no port: who may
// write into the folder, which only the run's owner can open, may steer the run.
//
// A request is one JSON object, {"id": …, "by": …, "do": "stop" | "save"} or {"id": …, "by": …, "set":
// {KEY: VALUE, …}}, written under a name that begins with a dot and renamed to NAME.json. Requests are taken in
// the order of their names; the run removes the file.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "config/steerable.h"

namespace strata::training {

struct Request {
  enum class What { kStop, kSave, kSet };
  std::string id;  // letters, digits, "-", "_" and "."
  std::string by;  // who asks, for people
  What what = What::kSet;
  std::vector<config::NewSetting> settings = {};  // kSet: at least one
};

// The largest request, in bytes.
inline constexpr size_t kMostRequestBytes = 65536;

std::string to_json(const Request& request);
// ConfigError with the reason if `text` is not a request. Whether a setting may change is not checked.
Request parse_request(std::string_view text);
// A new id, which sorts after those made earlier on this machine.
std::string new_request_id();

// The name of the folder in a run's folder, and of the file with the answers.
inline constexpr const char* kControlFolder = "control";
inline constexpr const char* kControlLog = "control.jsonl";
// The results of an accepted request and of a refused one, which a reason follows.
inline constexpr std::string_view kDone = "done";
inline constexpr std::string_view kRefused = "refused: ";

// The requests of one run, for its first rank. Used by one thread. Nothing here ends a run: errors of the
// disk are warnings, and a folder that others can write into is not read at all.
class ControlFolder {
 public:
  // A start, when the run has just taken the lock of its folder: makes the folder if it is missing, warns of
  // one that others can open, and refuses requests that were left for an earlier start. From then on a run takes
  // requests, also before its loop begins.
  static void begin(FileSystem& files, const Path& run);
  ControlFolder(FileSystem& files, const Path& run);
  ~ControlFolder();
  ControlFolder(const ControlFolder&) = delete;
  ControlFolder& operator=(const ControlFolder&) = delete;

  // Whether take() may find something: one fstat, and a look into the folder every few seconds.
  bool changed();
  // The new requests, by name; their files are removed. Those that are not valid, or not the owner's, are
  // refused with at_step = `step`.
  std::vector<Request> take(int64_t step);

  // Appends a line to RUN/control.jsonl, durable when this returns.
  void answer(const Request& request, int64_t at_step, std::string_view result);

 private:
  std::vector<std::string> names();
  void remove(const std::string& name);
  void refuse(const std::string& name, int64_t step, const std::string& why);
  void append(const std::string& line);

  FileSystem& files_;
  Path run_;
  int folder_;                   // descriptor; -1: no requests are taken
  int64_t seen_ = -1;            // time of the folder's last change that was looked at, in nanoseconds
  double looked_ = 0;            // when, in monotonic_seconds()
  std::set<std::string> stuck_;  // files that could not be removed
};

}  // namespace strata::training
