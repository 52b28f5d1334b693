#include "library/steering.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/signals.h"
#include "observe/metrics.h"

namespace strata::library {
namespace {

using training::Request;
using Json = nlohmann::ordered_json;

std::string user_name(uid_t user) {
  const passwd* const entry = ::getpwuid(user);
  return entry != nullptr ? entry->pw_name : fmt::format("user {}", user);
}

std::string user_at_host() {
  char host[256] = {};
  if (::gethostname(host, sizeof host - 1) != 0 || host[0] == '\0') return user_name(::geteuid());
  return fmt::format("{}@{}", user_name(::geteuid()), host);
}

bool runs(const Path& run) {
  return is_locked(run / ".lock");
}

Path request_path(const SentRequest& sent) {
  return sent.run / training::kControlFolder / (sent.request.id + ".json");
}

// The line of control.jsonl that answers the request.
std::optional<Json> find_answer(const SentRequest& sent) {
  const Path path = sent.run / training::kControlLog;
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error || size <= sent.answers_from) return std::nullopt;
  std::istringstream lines(read_file(path).substr(sent.answers_from));
  for (std::string line; std::getline(lines, line);) {
    Json json = parse_json_or_discard<Json>(line);
    if (json.is_object() && json.value("id", Json()) == Json(sent.request.id)) return json;
  }
  return std::nullopt;
}

// Takes back a request; false if the run has read it.
bool take_back(const SentRequest& sent) {
  return ::unlink(request_path(sent).c_str()) == 0;
}

[[noreturn]] void give_up_waiting(const SentRequest& sent) {
  if (take_back(sent)) {
    log_info("the request was taken back; nothing has changed");
  } else {
    log_info("the run has read the request; its answer comes in {}",
             (sent.run / training::kControlLog).string());
  }
  throw Interrupted();
}

// How the run ended, if that was clean: "interrupt", "finish" or "time_limit".
bool ended_cleanly(const Path& run) {
  const auto metrics = observe::read_metrics(run / "metrics.jsonl");
  const auto& events = metrics.events();
  const auto last = std::find_if(events.rbegin(), events.rend(), [](const observe::MetricsEvent& event) {
    return event.event != "sample" && event.event != "save";
  });
  return last != events.rend() &&
         (last->event == "interrupt" || last->event == "finish" || last->event == "time_limit");
}

// Calls `done` until it returns true or the run has ended; returns which.
bool wait_until(const SentRequest& sent, const std::function<bool()>& is_stopped,
                const std::function<bool()>& done, const char* what) {
  using std::chrono::milliseconds;
  constexpr double kLockSeconds = 0.25, kNoticeSeconds = 2;
  const double begin = monotonic_seconds();
  double asked = begin;
  bool noted = false;
  for (milliseconds pause(5);; pause = std::min(pause * 2, milliseconds(100))) {
    if (done()) return true;
    if (is_stopped()) give_up_waiting(sent);
    const double now = monotonic_seconds();
    if (now - asked > kLockSeconds) {
      asked = now;
      if (!runs(sent.run)) return done();
    }
    if (!noted && now - begin > kNoticeSeconds) {
      noted = true;
      log_info("{}", what);
    }
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace

Request make_request(Request::What what, const std::vector<std::string>& assignments) {
  return {.id = training::new_request_id(),
          .by = user_at_host(),
          .what = what,
          .settings = config::parse_new_settings(assignments)};
}

SentRequest send_request(const Path& run, const Request& request) {
  std::error_code error;
  if (!std::filesystem::is_directory(run, error) || !std::filesystem::exists(run / ".lock", error)) {
    throw ConfigError("[{}] is not the folder of a run; give run.folder, such as runs/shakespeare",
                      run.string());
  }
  if (!runs(run)) {
    throw ConfigError("[{0}] is not running; `strata train {0}` resumes it, and --set there changes settings",
                      run.string());
  }
  const Path folder = run / training::kControlFolder;
  struct stat found = {};
  if (::stat(folder.c_str(), &found) != 0) {
    throw ConfigError(
        "[{}] does not exist: the run takes no requests; its log has the reason. Stop it with Ctrl-C, or with "
        "kill -INT and the process id in .lock",
        folder.string());
  }
  if (found.st_uid != ::geteuid()) {
    throw ConfigError("[{}] belongs to {}, and only that user can steer the run; you are {}", folder.string(),
                      user_name(found.st_uid), user_name(::geteuid()));
  }
  SentRequest sent{run, request, 0};
  const auto size = std::filesystem::file_size(run / training::kControlLog, error);
  if (!error) sent.answers_from = size;
  const Path temporary = folder / fmt::format(".{}.tmp", request.id);
  FileSystem& files = posix_file_system();
  auto file = files.open_for_writing(temporary);
  file->append(training::to_json(request));
  file->close();
  files.rename(temporary, request_path(sent));
  return sent;
}

SteeringAnswer wait_for_answer(const SentRequest& sent, const std::function<bool()>& is_stopped) {
  std::optional<Json> answer;
  const bool is_stop = sent.request.what == Request::What::kStop;
  const bool found = wait_until(
      sent, is_stopped, [&] { return (answer = find_answer(sent)).has_value(); },
      sent.request.what == Request::What::kSet ? "waiting for the run's next step"
                                               : "waiting for the run's next step and its checkpoint");
  if (!found) {
    take_back(sent);
    throw ConfigError("[{0}] the run has ended without an answer; {0}/index.html shows how",
                      sent.run.string());
  }
  const std::string result = answer->value("result", std::string());
  if (result != training::kDone) {
    const bool refused = result.starts_with(training::kRefused);
    throw ConfigError("[{}] the run refused: {}", sent.run.string(),
                      refused ? result.substr(training::kRefused.size()) : result);
  }
  SteeringAnswer out{dump_json(*answer), answer->value("at_step", int64_t{0})};
  if (!is_stop) return out;
  // Nothing is left to take back.
  wait_until(
      sent, [&] { return is_stopped() ? throw Interrupted() : false; }, [] { return false; },
      "waiting for the run to end");
  if (!ended_cleanly(sent.run)) {
    throw WorldError("[{0}] step {1} is saved, but the run ended with an error after it; see {0}/index.html",
                     sent.run.string(), out.at_step);
  }
  return out;
}

}  // namespace strata::library
