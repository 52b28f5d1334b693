#include "train/copies.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <fstream>
#include <random>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/median.h"
#include "base/parallel.h"
#include "base/version.h"
#include "comm/exchange.h"
#include "train/memory_folder.h"

namespace strata::training {
namespace {

using Json = nlohmann::ordered_json;

double thread_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Keys of [parallel] that do not decide which values a rank has.
bool is_only_about_time(std::string_view key) {
  return key == "parallel.progress" || key == "parallel.silence_limit" || key == "parallel.wait_limit" ||
         key == "parallel.prefetch" || key == "parallel.overlap_chunks" || key == "parallel.backend";
}

// Of this rank's values, and of what decides which parts of the model they are.
std::string layout_digest(const RunInputs& inputs, const program::ProgramSet& set) {
  Hasher hasher;
  for (const config::Setting& setting : config::settings(inputs.config))
    if (setting.key.starts_with("parallel.") && !is_only_about_time(setting.key))
      hasher.update(fmt::format("{} = {}\n", setting.key, setting.value));
  const layers::ExpertLayout& experts = set.options.experts;
  hasher.update(fmt::format("{} {} {}\n", experts.ranks, experts.tensor, experts.node_ranks));
  for (const program::Persistent* value : copied_values(set)) {
    hasher.update(
        fmt::format("{} {} {} {}\n", value->name, name_of(value->dtype), value->shape.str(), value->bytes));
  }
  return to_hex(hasher.digest());
}

// The number that identifies the run in this folder. A folder that was removed and made again has another
// run. "": the folder has none, and none is to be made.
std::string identity_of(FileSystem& files, const Path& run, bool makes) {
  const Path path = run / "copies.json";
  if (std::filesystem::exists(path)) {
    const auto json = parse_json_or_discard<nlohmann::json>(read_file(path));
    if (json.is_object() && json.contains("run") && json.at("run").is_string())
      return json.at("run").get<std::string>();
  }
  if (!makes) return "";
  std::random_device random;
  std::string id = to_hex(static_cast<uint64_t>(random()) << 32 | random());
  write_file_atomically(files, path, dump_json(Json{{"run", id}}) + "\n");
  return id;
}

// Whether numbers of this type are finite; true for other types than those of weights and optimizer states.
bool is_finite(DType dtype, std::span<const std::byte> bytes) {
  const auto none = [&]<typename Bits>(Bits exponent) {
    // Without an early end, so that it is compiled to vector instructions.
    int found = 0;
    for (size_t at = 0; at + sizeof(Bits) <= bytes.size(); at += sizeof(Bits)) {
      Bits bits;
      std::memcpy(&bits, bytes.data() + at, sizeof bits);
      found |= static_cast<int>((bits & exponent) == exponent);
    }
    return found == 0;
  };
  if (dtype == DType::kF32) return none(uint32_t{0x7f800000});
  if (dtype == DType::kBF16) return none(uint16_t{0x7f80});
  if (dtype == DType::kF16) return none(uint16_t{0x7c00});
  return true;
}

constexpr size_t kCosts = 5;  // of which the median counts: one is longer where the machine is busy

}  // namespace

Copies::Copies(FileSystem& files, const Path& run, const RunInputs& inputs, const program::Executor& executor,
               const CopyPlan& plan)
    : files_(files),
      run_(run),
      inputs_(inputs),
      executor_(executor),
      plan_(plan),
      values_(copied_values(executor.set())),
      host_of_(inputs.ranks.world().hosts().domain_of),
      rank_(inputs.ranks.world().rank()),
      due_(plan.interval, config::auto_copy_seconds) {
  host_of_.resize(static_cast<size_t>(inputs.ranks.world().size()), 0);
  comm::Communicator& all = inputs.ranks.all();
  origin_.program = fmt::format("strata {}", program_version());
  origin_.ranks = all.size();
  origin_.run =
      comm::broadcast_text(all, inputs.is_first() ? identity_of(files_, run_, makes_any()) : std::string());
  Hasher hasher;
  for (const std::string& digest : comm::gather_texts(all, layout_digest(inputs, executor.set())))
    hasher.update(digest);
  origin_.layout = to_hex(hasher.digest());
  if (has_partners()) exchange_ = std::make_unique<CopyExchange>(inputs.ranks.world());
}

Copies::~Copies() = default;

std::string Copies::in_words() const {
  return fmt::format("{} per rank in /dev/shm{}, {}",
                     human_bytes(static_cast<double>(copy_bytes(executor_.set()))),
                     has_partners() ? " and on another host" : "", interval_in_words(plan_.interval));
}

void Copies::open_slots(const Path& folder) {
  own_.emplace(files_, folder, rank_);
  held_.clear();
  for (size_t rank = 0; rank < plan_.partners.size(); ++rank)
    if (plan_.partners[rank] == rank_)
      held_.push_back(std::make_unique<CopySlots>(files_, folder, static_cast<int64_t>(rank)));
}

void Copies::take(const TrainingState& state) {
  finish_exchange();
  agree();
  const double begin = monotonic_seconds();
  try {
    problem_ = write(state);
  } catch (const WorldError& error) {  // of a file: nothing here talks to other ranks
    problem_ = error.what();
  }
  const double seconds = monotonic_seconds() - begin;
  cost_ = seconds;
  waited_ += seconds;
  due_.done();
  if (!has_partners()) return;
  std::vector<CopyMessage> messages{
      {.sends = true, .peer = plan_.partners[static_cast<size_t>(rank_)], .slots = &*own_}};
  for (const auto& slots : held_)
    messages.push_back({.sends = false, .peer = static_cast<int>(slots->rank()), .slots = slots.get()});
  thread_ = std::make_unique<OwnedThread>(
      [this, step = state.step, keep = agreed_, messages = std::move(messages)](const std::stop_token&) {
        set_compute_threads(1);  // the other threads compute the next step
        exchange_problem_ = exchange_->run(step, keep, messages);
        exchange_seconds_ = thread_cpu_seconds();
      });
}

// The values go through a buffer that stays in the processor's cache.
std::string Copies::write(const TrainingState& state) {
  CopyManifest manifest{
      .origin = origin_, .rank = rank_, .step = state.step, .state = to_json(state), .values = {}};
  int64_t bytes = 0;
  for (const program::Persistent* value : values_) bytes += value->bytes;
  own_->begin(bytes, agreed_);
  constexpr int64_t kChunk = int64_t{1} << 18;
  std::vector<std::byte> buffer(static_cast<size_t>(kChunk));
  int64_t at = 0;
  for (const program::Persistent* value : values_) {
    Hasher hasher;
    for (int64_t done = 0; done < value->bytes;) {
      const int64_t size = std::min(kChunk, value->bytes - done);
      executor_.download(*value, buffer.data(), size, done);
      // A run that is killed before it notices must not start from them.
      if (!is_finite(value->dtype, {buffer.data(), static_cast<size_t>(size)}))
        return fmt::format("{} is not finite after step {}", value->name, state.step);
      hasher.update(buffer.data(), static_cast<size_t>(size));
      own_->write(at, buffer.data(), static_cast<size_t>(size));
      done += size;
      at += size;
    }
    manifest.values.push_back({value->name, value->bytes, hasher.digest()});
  }
  own_->commit(state.step, to_json(manifest));
  return "";
}

void Copies::finish_exchange() {
  if (!thread_) return;
  const double begin = monotonic_seconds();
  const std::unique_ptr<OwnedThread> thread = std::move(thread_);
  thread->join();
  const double seconds = monotonic_seconds() - begin;
  waited_ += seconds;
  cost_ += seconds + std::exchange(exchange_seconds_, 0.0);
  if (problem_.empty()) problem_ = std::exchange(exchange_problem_, {});
}

void Copies::agree() {
  std::vector<int64_t> steps = own_->steps();
  std::erase_if(steps, [&](int64_t step) {
    return std::any_of(held_.begin(), held_.end(), [&](const auto& slots) { return !slots->has(step); });
  });
  const Json mine{{"steps", steps}, {"cost", cost_}, {"problem", problem_}};
  const std::vector<std::string> all =
      comm::gather_texts(inputs_.ranks.all(), dump_json(mine, -1, InvalidUtf8::kReplace));
  double cost = 0;
  std::string problem;
  for (const std::string& text : all) {
    const auto json = parse_json<nlohmann::json>(text);
    const auto theirs = json.at("steps").get<std::vector<int64_t>>();
    std::erase_if(
        steps, [&](int64_t step) { return std::find(theirs.begin(), theirs.end(), step) == theirs.end(); });
    cost = std::max(cost, json.at("cost").get<double>());
    if (problem.empty()) problem = json.at("problem").get<std::string>();
  }
  if (!steps.empty()) agreed_ = steps.front();
  if (cost > 0) {
    if (costs_.size() == kCosts) costs_.erase(costs_.begin());
    costs_.push_back(cost);
    due_.costs(median_of(costs_));
  }
  if (problem != warned_ && !problem.empty() && inputs_.is_first())
    log_warning("the newest copy of the state is incomplete: {}; older ones stay", problem);
  warned_ = problem;
}

double Copies::take_waited() {
  return std::exchange(waited_, 0.0);
}

void Copies::drop_after(int64_t step) {
  if (!own_) return;
  finish_exchange();
  own_->drop_after(step);
  for (const auto& slots : held_) slots->drop_after(step);
  if (agreed_ > step) agreed_ = -1;
  // Others' too that this host has from an earlier start.
  if (inputs_.ranks.world().local_rank() == 0) {
    for (const FoundCopy& copy : list_copies(memory_folder(run_)))
      if (!copy.content || copy.content->step > step) files_.remove(copy.manifest);
  }
  inputs_.ranks.world().barrier();
}

void Copies::remove() {
  if (!own_) return;
  finish_exchange();
  inputs_.ranks.world().barrier();
  if (inputs_.ranks.world().local_rank() != 0) return;
  const Path folder = memory_folder(run_);
  remove_copies(files_, folder);
  ::rmdir(folder.c_str());  // unless it has other files
}

void Copies::flip(uint64_t draw, int bit) const {
  if (!own_ || own_->steps().empty()) return;
  const FoundCopy copy = own_->find(own_->steps().front());
  std::fstream file(copy.data, std::ios::in | std::ios::out | std::ios::binary);
  const auto at = static_cast<std::streamoff>(draw % static_cast<uint64_t>(copy.content->bytes()));
  file.seekg(at);
  const auto byte = static_cast<char>(file.get() ^ (1 << bit));
  file.seekp(at);
  if (!file.put(byte).flush())
    throw WorldError("[{}] cannot write the bit of debug.inject", copy.data.string());
}

}  // namespace strata::training
