// Every order that the GPU device asks the driver for is needed: without any single event, wait for one, or wait of the host,
// the twin finds a race, a read of unwritten memory or a change of pinned memory, or values are wrong. One thread does
// what a run does, so that the K-th call is the same one every time.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "base/error.h"
#include "device/gpu/queue.h"
#include "device/open/open.h"
#include "kernels/gpu/args.h"
#include "twin/twin.h"

namespace strata::gpu_tests {
namespace {

constexpr int64_t kN = 1024;                // elements of a batch, of a step's sums and of weights
constexpr int64_t kLarge = 9 * 256 * 1024;  // of a tensor of weights that takes three copies
constexpr int64_t kBytes = kN * 4, kLargeBytes = kLarge * 4;

std::vector<float> filled(int64_t n, float value) {
  return std::vector<float>(static_cast<size_t>(n), value);
}

// Each of its copies has other values.
std::vector<float> pattern(int value) {
  std::vector<float> values(static_cast<size_t>(kLarge));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(value) + static_cast<float>(i % 1021);
  return values;
}

class Work {
 public:
  Work() : device_(device::open(device::Kind::kCuda)) {
    for (auto* memory : {&batch_, &sums_, &weights_, &next_}) *memory = device_->allocate(kBytes);
    large_ = device_->allocate(kLargeBytes);
    capture_ = device_->make_capture(*sums_, 0, kBytes);
    updated_ = device_->make_point();
    launch_ = device_->begin_launches();
  }

  // Two steps, each with a save, and an evaluation. Nothing waits for the ring. Throws what a run would end with. Returns
  // whether all values were right.
  bool steps() {
    bool right = true;
    upload(*weights_, filled(kN, 1));
    updated_->mark();
    right = downloaded(*weights_, kN, updated_.get()) == filled(kN, 1) && right;
    upload(*batch_, filled(kN, 1));
    add(*next_, *batch_, *batch_);
    for (int step = 1; step <= 2; ++step) {
      const auto value = static_cast<float>(step);
      // The update, then the next step's micro-batches, then a save and this step's numbers.
      add(*weights_, *weights_, *next_);
      add(*sums_, *next_, *next_);
      updated_->mark();
      capture_->take();
      upload(*batch_, filled(kN, value + 1));
      add(*next_, *batch_, *batch_);
      right = downloaded(*weights_, kN, updated_.get()) == filled(kN, step == 1 ? 3 : 7) && right;
      right = holds(reinterpret_cast<const float*>(capture_->content()), kN, 4 * value) && right;
    }
    // An evaluation.
    upload(*batch_, filled(kN, 10));
    add(*sums_, *batch_, *weights_);
    right = downloaded(*sums_, kN, nullptr) == filled(kN, 17) && right;
    // An upload is read back.
    upload(*large_, pattern(5));
    right = downloaded(*large_, kLarge, nullptr) == pattern(5) && right;
    // The work ends with a copy in flight.
    capture_->take();
    return right;
  }
  // Uploads of several times the ring's size.
  bool uploads() {
    for (int i = 0; i < 5; ++i) {
      upload(*batch_, filled(kN, static_cast<float>(i)));
      upload(*large_, pattern(i));
    }
    return downloaded(*batch_, kN, nullptr) == filled(kN, 4) &&
           downloaded(*large_, kLarge, nullptr) == pattern(4);
  }
  // The records that uploads made, by number.
  const std::set<uint64_t>& of_uploads() const { return of_uploads_; }

 private:
  static bool holds(const float* at, int64_t n, float value) {
    const std::vector<float> expected = filled(n, value);
    return std::memcmp(at, expected.data(), expected.size() * sizeof(float)) == 0;
  }
  void upload(device::Memory& to, const std::vector<float>& values) {
    const uint64_t before = twin_.calls("cuEventRecord");
    device_->upload(to, 0, values.data(), static_cast<int64_t>(values.size() * sizeof(float)));
    for (uint64_t k = before + 1; k <= twin_.calls("cuEventRecord"); ++k) of_uploads_.insert(k);
  }
  std::vector<float> downloaded(const device::Memory& from, int64_t n, const device::Point* after) {
    std::vector<float> values(static_cast<size_t>(n));
    if (after == nullptr) {
      device_->download(from, 0, values.data(), 4 * n);
    } else {
      device_->download_after(*after, from, 0, values.data(), 4 * n);
    }
    return values;
  }
  void add(device::Memory& out, const device::Memory& a, const device::Memory& b) {
    launch_.instruction = "add of the test";
    device::start(
        launch_, gpu::elementwise("add", DType::kF32, kN),
        gpu::ElementArgs{.out = out.address(), .a = a.address(), .b = b.address(), .n = kN, .factor = 1});
  }

  const Twin twin_;
  std::set<uint64_t> of_uploads_;
  std::shared_ptr<device::Device> device_;
  std::unique_ptr<device::Memory> batch_, sums_, weights_, next_, large_;
  std::unique_ptr<device::Capture> capture_;
  std::unique_ptr<device::Point> updated_;
  device::Launch launch_;
};

using Subject = bool (Work::*)();

// What shows that something is wrong; empty: nothing does.
std::string symptom(Subject subject, const std::string& settings, std::set<uint64_t>* of_uploads = nullptr) {
  const Twin twin;
  twin.restart(settings);
  bool right = true;
  try {
    Work work;
    right = (work.*subject)();
    if (of_uploads != nullptr) *of_uploads = work.of_uploads();
  } catch (const WorldError&) {
  }
  if (!twin.violation().empty()) return twin.violation();
  return right ? "" : "wrong values";
}

// The calls, by number, without any single one of which nothing is found to be wrong, in any of several orders of streams.
std::set<uint64_t> needless(Subject subject, const std::string& call) {
  EXPECT_EQ(symptom(subject, "seed=5"), "");
  const uint64_t calls = Twin().calls(call);
  EXPECT_GT(calls, 0u) << call;
  std::set<uint64_t> found;
  for (uint64_t k = 1; k <= calls; ++k) {
    bool is_needed = false;
    for (int seed = 1; seed <= 4 && !is_needed; ++seed)
      is_needed =
          !symptom(subject, "seed=" + std::to_string(seed) + ";drop=" + call + ":" + std::to_string(k))
               .empty();
    if (!is_needed) found.insert(k);
  }
  return found;
}

TEST(GpuOrder, OfStepsNeedsEveryEvent) {
  std::set<uint64_t> of_uploads;
  for (const char* seed : {"seed=1", "seed=2", "seed=3"})
    EXPECT_EQ(symptom(&Work::steps, seed, &of_uploads), "") << seed;
  EXPECT_EQ(needless(&Work::steps, "cuStreamWaitEvent"), std::set<uint64_t>{});
  EXPECT_EQ(needless(&Work::steps, "cuEventSynchronize"), std::set<uint64_t>{});
  // Those of uploads are for a later use of the ring, which never comes here; the last capture is not read.
  of_uploads.insert(Twin().calls("cuEventRecord"));
  EXPECT_EQ(needless(&Work::steps, "cuEventRecord"), of_uploads);
}

// The ring waits only for the newest of the copies in the way: every wait is needed, and one event for each.
TEST(GpuOrder, OfUploadsNeedsEveryWait) {
  std::set<uint64_t> of_uploads;
  for (const char* seed : {"seed=1", "seed=2", "seed=3"})
    EXPECT_EQ(symptom(&Work::uploads, seed, &of_uploads), "") << seed;
  const Twin twin;
  const uint64_t of_downloads = 1 + 3;  // copies
  const uint64_t waits = twin.calls("cuEventSynchronize") - of_downloads;
  EXPECT_GE(waits, 3u);
  EXPECT_EQ(needless(&Work::uploads, "cuEventSynchronize"), std::set<uint64_t>{});
  for (const uint64_t record : needless(&Work::uploads, "cuEventRecord")) of_uploads.erase(record);
  EXPECT_EQ(of_uploads.size(), waits);
}

// A call fails while copies use pinned memory, which is then freed: not before they have ended.
TEST(GpuOrder, OutlivesCallsThatFail) {
  const Twin twin;
  for (const std::string call : {"cuEventRecord", "cuStreamWaitEvent", "cuEventSynchronize"}) {
    EXPECT_EQ(symptom(&Work::steps, ""), "");
    const uint64_t calls = twin.calls(call);
    for (uint64_t k = 1; k <= calls; ++k) {
      const std::string fail = "fail=" + call + ":" + std::to_string(k) + ":1";
      twin.restart(fail);
      EXPECT_THROW(Work().steps(), WorldError) << fail;
      EXPECT_EQ(twin.violation(), "") << fail;
    }
  }
}

}  // namespace
}  // namespace strata::gpu_tests
