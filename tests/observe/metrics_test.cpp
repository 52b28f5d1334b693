#include "observe/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "fixtures/child_process.h"
#include "fixtures/faulty_file_system.h"
#include "fixtures/scratch_folder.h"

#include "base/json.h"

namespace strata::observe {
namespace {

using Json = nlohmann::ordered_json;

std::vector<Json> lines_of(const Path& path) {
  std::vector<Json> lines;
  const std::string text = read_file(path);
  EXPECT_TRUE(text.empty() || text.back() == '\n');
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    lines.push_back(parse_json<Json>(text.substr(begin, end - begin)));
  }
  return lines;
}

std::vector<int64_t> steps_in(const std::vector<Json>& lines) {
  std::vector<int64_t> steps;
  for (const Json& line : lines) {
    if (!line.contains("event")) steps.push_back(line["step"].get<int64_t>());
  }
  return steps;
}

void write_steps(MetricsSink& sink, int64_t first, int64_t last) {
  for (int64_t step = first; step <= last; ++step) {
    sink.step(step, {{"tokens", step * 512}, {"loss", 4.0 / static_cast<double>(step)}});
  }
}

TEST(Metrics, LinesAreOrderedObjectsThatParseBack) {
  const std::string text = step_line(7, {{"tokens", int64_t{1} << 53},
                                         {"loss", 0.1},
                                         {"note", std::string("a \"b\"\n\xff")},
                                         {"skipped", true}});
  EXPECT_EQ(text.find("{\"step\":7,\"tokens\":9007199254740992,\"loss\":0.1,\"note\":"), 0u);
  const Json line = parse_json<Json>(text);
  EXPECT_EQ(line["note"], "a \"b\"\n\xef\xbf\xbd");
  EXPECT_EQ(line["skipped"], true);
  EXPECT_EQ(event_line("save", 3, {{"path", std::string("x")}}),
            "{\"event\":\"save\",\"at_step\":3,\"path\":\"x\"}\n");
  EXPECT_EQ(event_line("start", -1, {}), "{\"event\":\"start\"}\n");
}

TEST(Metrics, NumbersSurviveARoundTrip) {
  const ScratchFolder folder;
  MetricsSink sink(posix_file_system(), folder.path());
  sink.resume_at(0);
  const double third = 1.0 / 3;
  sink.step(1, {{"loss", third}, {"lr", 1e-300}, {"time", 1790000000.123456}});
  sink.step(2, {{"loss", std::numeric_limits<double>::quiet_NaN()},
                {"grad_norm", std::numeric_limits<double>::infinity()}});
  sink.event("spike", 2, {{"ratio", 5.5}});
  const MetricsTable table = read_metrics(folder / "metrics.jsonl");
  ASSERT_EQ(table.steps(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(table.column("loss")[0], third);
  EXPECT_EQ(table.column("lr")[0], 1e-300);
  EXPECT_EQ(table.column("time")[0], 1790000000.123456);
  EXPECT_TRUE(std::isnan(table.column("loss")[1]) && std::isnan(table.column("grad_norm")[1]));
  EXPECT_TRUE(std::isnan(table.column("lr")[1]));
  EXPECT_EQ(table.last("loss"), third);
  EXPECT_TRUE(table.column("absent").empty());
  ASSERT_EQ(table.events().size(), 1u);
  EXPECT_EQ(table.events()[0].event, "spike");
  EXPECT_EQ(table.events()[0].at_step, 2);
}

TEST(Metrics, RefusesStepsOutOfOrder) {
  const ScratchFolder folder;
  MetricsSink sink(posix_file_system(), folder.path());
  EXPECT_THROW(sink.step(1, {}), InternalError);
  sink.resume_at(0);
  sink.step(1, {});
  EXPECT_THROW(sink.step(1, {}), InternalError);
  EXPECT_THROW(sink.step(3, {}), InternalError);
  sink.step(2, {});
}

TEST(Metrics, ResumeMovesRolledBackStepsAndKeepsEvents) {
  const ScratchFolder folder;
  {
    MetricsSink sink(posix_file_system(), folder.path());
    sink.resume_at(0);
    write_steps(sink, 1, 5);
    sink.event("spike", 5, {});
    write_steps(sink, 6, 6);
  }
  MetricsSink sink(posix_file_system(), folder.path());
  sink.resume_at(4);
  sink.event("resume", 4, {});
  write_steps(sink, 5, 7);
  const auto lines = lines_of(folder / "metrics.jsonl");
  EXPECT_EQ(steps_in(lines), (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(lines[4]["event"], "spike");
  EXPECT_EQ(lines[5]["event"], "resume");
  EXPECT_EQ(steps_in(lines_of(folder / "metrics.discarded.jsonl")), (std::vector<int64_t>{5, 6}));
  // A rollback within the process.
  sink.resume_at(5);
  write_steps(sink, 6, 8);
  EXPECT_EQ(steps_in(lines_of(folder / "metrics.jsonl")), (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(steps_in(lines_of(folder / "metrics.discarded.jsonl")), (std::vector<int64_t>{5, 6, 6, 7}));
}

TEST(Metrics, DropsATornLastLine) {
  const ScratchFolder folder;
  const std::string whole = step_line(1, {{"loss", 2.5}}) + event_line("save", 1, {});
  const std::string last = step_line(2, {{"loss", 2.25}});
  for (size_t cut = 1; cut < last.size(); ++cut) {
    put_file(folder / "metrics.jsonl", whole + last.substr(0, cut));
    EXPECT_EQ(read_metrics(folder / "metrics.jsonl").steps(), (std::vector<int64_t>{1}));
    MetricsSink sink(posix_file_system(), folder.path());
    sink.resume_at(1);
    sink.step(2, {{"loss", 2.25}});
    EXPECT_EQ(read_file(folder / "metrics.jsonl"), whole + last);
  }
}

TEST(Metrics, TheReaderSkipsOtherLines) {
  const ScratchFolder folder;
  EXPECT_TRUE(read_metrics(folder / "absent.jsonl").steps().empty());
  put_file(
      folder / "m.jsonl",
      "\n[1]\nnot json\n{\"step\":\"x\"}\n{\"step\":1,\"loss\":3}\n{\"event\":7}\n{\"step\":2,\"loss\":2}\n"
      "{\"step\":2,\"loss\":1.5}\n");
  const MetricsTable table = read_metrics(folder / "m.jsonl");
  EXPECT_EQ(table.steps(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(table.column("loss")[1], 1.5);
}

// Another tool may have written any JSON.
TEST(Metrics, NumbersOutOfRangeAreNotSteps) {
  const ScratchFolder folder;
  put_file(folder / "m.jsonl",
           "{\"step\":1,\"loss\":3,\"count\":18446744073709551615,\"least\":-9223372036854775808}\n"
           "{\"step\":-9223372036854775808,\"loss\":1}\n{\"step\":18446744073709551615,\"loss\":1}\n"
           "{\"step\":-1,\"loss\":1}\n{\"step\":1e300,\"loss\":1}\n{\"step\":2,\"loss\":1e999}\n"
           "{\"event\":\"save\",\"at_step\":18446744073709551615,\"time\":1e300}\n"
           "{\"step\":3,\"loss\":" +
               std::string(1500, '[') + std::string(1500, ']') + "}\n");
  const MetricsTable table = read_metrics(folder / "m.jsonl");
  EXPECT_EQ(table.steps(), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(table.column("count")[0], 18446744073709551615.0);
  EXPECT_EQ(table.column("least")[0], -9223372036854775808.0);
  ASSERT_EQ(table.events().size(), 1U);
  EXPECT_EQ(table.events()[0].at_step, -1);
  MetricsSink sink(posix_file_system(), folder.path());
  sink.resume_at(3);
  sink.step(4, {{"loss", 1.0}});
}

TEST(Metrics, TableDropsRolledBackSteps) {
  MetricsTable table;
  for (int64_t step = 1; step <= 5; ++step) table.add_step(step, {{"loss", static_cast<double>(step)}});
  table.drop_after(3);
  table.add_step(4, {{"lr", 0.5}});
  EXPECT_EQ(table.steps(), (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_TRUE(std::isnan(table.column("loss")[3]));
  EXPECT_EQ(table.column("lr").size(), 4u);
  EXPECT_EQ(table.last("lr"), 0.5);
}

// A resume at step 3 of a run that had reached step 5, then three more steps.
void resume_and_go_on(FileSystem& files, const Path& folder) {
  MetricsSink sink(files, folder);
  sink.resume_at(3);
  sink.event("resume", 3, {});
  write_steps(sink, 4, 6);
  sink.sync();
}

void prepare(const Path& folder) {
  MetricsSink sink(posix_file_system(), folder);
  sink.resume_at(0);
  write_steps(sink, 1, 4);
  sink.event("spike", 4, {});
  write_steps(sink, 5, 5);
}

int64_t calls_of_resume() {
  const ScratchFolder folder;
  prepare(folder.path());
  FaultyFileSystem files;
  resume_and_go_on(files, folder.path());
  return files.calls();
}

// After an error at any call the next resume finds every step once, and the events.
void expect_whole_after_another_resume(const Path& folder) {
  resume_and_go_on(posix_file_system(), folder);
  const auto lines = lines_of(folder / "metrics.jsonl");
  EXPECT_EQ(steps_in(lines), (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const Json& line) {
    return line.contains("event") && line["event"] == "spike";
  }));
  const std::vector<int64_t> moved = steps_in(lines_of(folder / "metrics.discarded.jsonl"));
  EXPECT_GE(moved.size(), 2u);
}

TEST(Metrics, SurvivesAKillAtAnyCall) {
  for (const FaultKind kind : {FaultKind::kKillBefore, FaultKind::kKillAfter}) {
    for (int64_t at = 1; at <= calls_of_resume(); ++at) {
      SCOPED_TRACE(at);
      const ScratchFolder folder;
      prepare(folder.path());
      const int status = exit_code_of_child([&] {
        FaultyFileSystem files({.kind = kind, .at = at});
        resume_and_go_on(files, folder.path());
      });
      EXPECT_EQ(status, FaultyFileSystem::kKilled);
      expect_whole_after_another_resume(folder.path());
    }
  }
}

TEST(Metrics, SurvivesAFullDiskAndFailedCalls) {
  for (const FaultKind kind : {FaultKind::kError, FaultKind::kDiskFull}) {
    for (int64_t at = 1; at <= calls_of_resume(); ++at) {
      SCOPED_TRACE(at);
      const ScratchFolder folder;
      prepare(folder.path());
      FaultyFileSystem files({.kind = kind, .at = at});
      try {
        resume_and_go_on(files, folder.path());
      } catch (const WorldError&) {
      }
      expect_whole_after_another_resume(folder.path());
    }
  }
}

// A failed write leaves half a line, which the next write removes.
TEST(Metrics, AFailedWriteIsNotJoinedToTheNextLine) {
  const ScratchFolder folder;
  class HalfOnce final : public WritableFile {
   public:
    HalfOnce(std::unique_ptr<WritableFile> file, bool& armed) : file_(std::move(file)), armed_(armed) {}
    void append(const void* bytes, size_t size) override {
      file_->append(bytes, armed_ ? size / 2 : size);
      if (std::exchange(armed_, false)) throw WorldError("[test] the disk is full");
    }
    void write_at(uint64_t offset, const void* bytes, size_t size) override {
      file_->write_at(offset, bytes, size);
    }
    void sync() override { file_->sync(); }
    void close() override { file_->close(); }

   private:
    std::unique_ptr<WritableFile> file_;
    bool& armed_;
  };
  class Files final : public FileSystem {
   public:
    bool armed = false;
    std::unique_ptr<WritableFile> open_for_writing(const Path& path, bool keep) override {
      return std::make_unique<HalfOnce>(posix_file_system().open_for_writing(path, keep), armed);
    }
    std::unique_ptr<WritableFile> open_for_update(const Path& path) override {
      return posix_file_system().open_for_update(path);
    }
    void rename(const Path& from, const Path& to) override { posix_file_system().rename(from, to); }
    void remove(const Path& path) override { posix_file_system().remove(path); }
    void remove_tree(const Path& path) override { posix_file_system().remove_tree(path); }
    void create_directories(const Path& path) override { posix_file_system().create_directories(path); }
    void sync_directory(const Path& path) override { posix_file_system().sync_directory(path); }
    void truncate(const Path& path, uint64_t size) override { posix_file_system().truncate(path, size); }
    uint64_t free_bytes(const Path& path) override { return posix_file_system().free_bytes(path); }
  } files;
  MetricsSink sink(files, folder.path());
  sink.resume_at(0);
  sink.step(1, {});
  files.armed = true;
  EXPECT_THROW(sink.step(2, {{"loss", 1.0}}), WorldError);
  sink.event("disk full", 1, {});
  sink.step(2, {{"loss", 1.0}});
  const auto lines = lines_of(folder / "metrics.jsonl");
  EXPECT_EQ(steps_in(lines), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(lines.size(), 3u);
}

}  // namespace
}  // namespace strata::observe
