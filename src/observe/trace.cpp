#include "observe/trace.h"

#include <fmt/core.h>

#include "base/json.h"

namespace strata::observe {
namespace {

std::string quoted(const std::string& text) {
  return dump_json(nlohmann::json(text), -1, InvalidUtf8::kReplace);
}

std::string name_record(const char* what, int64_t thread, const std::string& name) {
  return fmt::format(R"({{"name":"{}","ph":"M","pid":0,"tid":{},"args":{{"name":{}}}}})", what, thread,
                     quoted(name));
}

}  // namespace

std::string trace_json(std::span<const TraceEvent> events, const std::string& process,
                       std::span<const std::string> thread_names) {
  std::string out =
      "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + name_record("process_name", 0, process);
  for (size_t i = 0; i < thread_names.size(); ++i) {
    out += ",\n" + name_record("thread_name", static_cast<int64_t>(i), thread_names[i]);
  }
  for (const TraceEvent& event : events) {
    out += fmt::format(
        ",\n"
        R"({{"name":{},"cat":{},"ph":"X","ts":{:.3f},"dur":{:.3f},"pid":0,"tid":{}}})",
        quoted(event.name), quoted(event.category), event.start_us, event.duration_us, event.thread);
  }
  return out + "\n]}\n";
}

void write_trace(FileSystem& files, const Path& path, std::span<const TraceEvent> events,
                 const std::string& process, std::span<const std::string> thread_names) {
  write_file_atomically(files, path, trace_json(events, process, thread_names));
}

}  // namespace strata::observe
