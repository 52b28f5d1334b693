// The start of a run from copies of its ranks' states: which step all ranks can have, and from which hosts.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "comm/exchange.h"
#include "program/update.h"
#include "train/copies.h"
#include "train/memory_folder.h"

namespace strata::training {
namespace {

using Json = nlohmann::ordered_json;

// Why copies of `found` cannot be used by a run of `mine`; "": they can.
std::string difference(const CopyOrigin& found, const CopyOrigin& mine) {
  if (found.run != mine.run) return "they belong to another run";
  if (found.program != mine.program)
    return fmt::format("{} made them, and this is {}", found.program, mine.program);
  if (found.ranks != mine.ranks)
    return fmt::format("they are of {} ranks, and the run has {}", found.ranks, mine.ranks);
  if (found.layout != mine.layout) return "they are of another layout of the ranks";
  return "";
}

}  // namespace

std::optional<TrainingState> Copies::restore(int64_t at_least, std::string_view why_not) {
  const double begin = monotonic_seconds();
  Offers offers = gather_offers(why_not.empty());
  if (!offers.has_files) {
    if (makes_any()) open_slots(open_memory_folder(run_));
    return std::nullopt;
  }
  std::vector<Offer>& all = offers.all;
  std::optional<TrainingState> state;
  while (const auto step = newest_complete(all, at_least)) {
    const std::vector<Offer> sources = sources_of(*step, all);
    std::set<Offer> useless = find_damaged(sources);
    if (useless.empty()) useless = fetch(sources);
    if (useless.empty()) {
      state = upload(own_copy(*step));
      break;
    }
    std::erase_if(all, [&](const Offer& offer) { return useless.contains(offer); });
  }
  if (inputs_.is_first()) {
    const std::string folder = memory_folder(run_).string();
    if (state) {
      log_info("copies: step {} was restored from {} in {:.2f} s", state->step, folder,
               monotonic_seconds() - begin);
    } else if (!why_not.empty()) {
      log_info("copies: those in {} are not used and are removed: {}", folder, why_not);
    } else if (!offers.obstacle.empty()) {
      log_warning("the copies in {} are not used and are removed: {}", folder, offers.obstacle);
    } else if (offers.newest > 0 && offers.newest < at_least) {
      log_info("copies: those of step {} are older than the checkpoint of step {}", offers.newest, at_least);
    } else {
      log_warning("the copies in {} are not used and are removed: no step has an intact one of every rank",
                  folder);
    }
  }
  settle(state ? state->step : 0);
  return state;
}

Copies::Offers Copies::gather_offers(bool is_used) {
  const comm::World& world = inputs_.ranks.world();
  Json mine{{"offers", Json::array()}, {"damaged", Json::array()}, {"obstacle", ""}, {"has_files", false}};
  if (world.local_rank() == 0) {
    try {
      const auto folder = find_memory_folder(run_);
      std::vector<FoundCopy> found;
      if (folder) found = list_copies(*folder);
      mine["has_files"] = folder && has_copies(*folder);
      for (const FoundCopy& copy : found) {
        if (!is_used) break;
        if (!copy.content) {
          mine["damaged"].push_back(copy.rank);
        } else if (const std::string why = difference(copy.content->origin, origin_); !why.empty()) {
          mine["obstacle"] = why;
        } else if (copy.content->rank == copy.rank && copy.rank < origin_.ranks) {
          mine["offers"].push_back({copy.rank, copy.content->step});
        }
      }
    } catch (const Error& error) {
      mine["obstacle"] = error.what();
    }
  }
  Offers out;
  const std::vector<std::string> texts =
      comm::gather_texts(inputs_.ranks.all(), dump_json(mine, -1, InvalidUtf8::kReplace));
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const auto json = parse_json<Json>(texts[rank]);
    for (const auto& one : json.at("offers")) {
      out.all.push_back({.rank = one[0], .step = one[1], .host = host_of_[rank]});
      out.newest = std::max(out.newest, out.all.back().step);
    }
    for (const auto& one : json.at("damaged"))
      damage_.push_back({.step = 0, .rank = one, .value = "manifest"});
    if (out.obstacle.empty()) out.obstacle = json.at("obstacle").get<std::string>();
    out.has_files = out.has_files || json.at("has_files").get<bool>();
  }
  return out;
}

std::optional<int64_t> Copies::newest_complete(const std::vector<Offer>& offers, int64_t at_least) const {
  std::map<int64_t, std::set<int64_t>> ranks_of;  // by step
  for (const Offer& offer : offers) ranks_of[offer.step].insert(offer.rank);
  for (auto one = ranks_of.rbegin(); one != ranks_of.rend(); ++one)
    if (one->first >= at_least && std::ssize(one->second) == origin_.ranks) return one->first;
  return std::nullopt;
}

std::vector<Copies::Offer> Copies::sources_of(int64_t step, const std::vector<Offer>& offers) const {
  std::vector<std::optional<Offer>> best(static_cast<size_t>(origin_.ranks));
  for (const Offer& offer : offers) {
    if (offer.step != step) continue;
    const auto rank = static_cast<size_t>(offer.rank);
    if (!best[rank] || offer.host == host_of_[rank]) best[rank] = offer;
  }
  std::vector<Offer> sources;
  for (const auto& one : best) sources.push_back(*one);
  return sources;
}

int Copies::reader_of(const Offer& offer) const {
  if (host_of_[static_cast<size_t>(offer.rank)] == offer.host) return static_cast<int>(offer.rank);
  std::vector<int> there;
  for (size_t rank = 0; rank < host_of_.size(); ++rank)
    if (host_of_[rank] == offer.host) there.push_back(static_cast<int>(rank));
  return there[static_cast<size_t>(offer.rank) % there.size()];
}

FoundCopy Copies::own_copy(int64_t step) const {
  return CopySlots(files_, memory_folder(run_), rank_).find(step);
}

std::set<Copies::Offer> Copies::gather_useless(const Json& mine) {
  std::set<Offer> useless;
  for (const std::string& text :
       comm::gather_texts(inputs_.ranks.all(), dump_json(mine, -1, InvalidUtf8::kReplace))) {
    for (const auto& one : parse_json<Json>(text)) {
      const Offer offer{.rank = one[0], .step = one[1], .host = one[2]};
      useless.insert(offer);
      if (const auto value = one[3].get<std::string>(); !value.empty())
        damage_.push_back({.step = offer.step, .rank = offer.rank, .value = value});
    }
  }
  return useless;
}

std::set<Copies::Offer> Copies::find_damaged(const std::vector<Offer>& sources) {
  Json mine = Json::array();
  for (const Offer& offer : sources) {
    if (reader_of(offer) != rank_) continue;
    std::optional<std::string> damage = "manifest";
    try {
      damage = damage_of(CopySlots(files_, memory_folder(run_), offer.rank).find(offer.step));
    } catch (const Error&) {  // it has changed since it was listed
    }
    if (damage) mine.push_back({offer.rank, offer.step, offer.host, *damage});
  }
  return gather_useless(mine);
}

std::set<Copies::Offer> Copies::fetch(const std::vector<Offer>& sources) {
  const auto is_elsewhere = [&](const Offer& offer) { return reader_of(offer) != offer.rank; };
  if (std::none_of(sources.begin(), sources.end(), is_elsewhere)) return {};
  std::vector<std::unique_ptr<CopySlots>> slots;
  std::vector<CopyMessage> messages;
  std::string problem;
  Path folder = memory_folder(run_);
  try {
    folder = open_memory_folder(run_);
  } catch (const Error& error) {  // writing into it fails too
    problem = error.what();
  }
  for (const Offer& offer : sources) {
    if (!is_elsewhere(offer)) continue;
    const bool sends = reader_of(offer) == rank_;
    if (!sends && offer.rank != rank_) continue;
    slots.push_back(std::make_unique<CopySlots>(files_, folder, offer.rank));
    messages.push_back({.sends = sends,
                        .peer = sends ? static_cast<int>(offer.rank) : reader_of(offer),
                        .slots = slots.back().get()});
  }
  const int64_t step = sources.front().step;
  CopyExchange exchange(inputs_.ranks.world());
  if (const std::string found = exchange.run(step, -1, messages); problem.empty()) problem = found;
  Json mine = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    const Offer& offer = sources[static_cast<size_t>(slots[i]->rank())];
    if (messages[i].sends) continue;
    if (!slots[i]->has(step)) {
      log_warning("the copy of step {} could not be fetched from rank {}: {}", step, messages[i].peer,
                  problem.empty() ? "it is gone" : problem);
      mine.push_back({offer.rank, step, offer.host, ""});
    } else if (const auto damage = damage_of(slots[i]->find(step))) {
      mine.push_back({offer.rank, step, offer.host, *damage});
    }
  }
  return gather_useless(mine);
}

TrainingState Copies::upload(const FoundCopy& copy) {
  const MappedFile data(copy.data);
  const std::byte* from = data.bytes().data();
  for (const program::Persistent* value : values_) {
    executor_.upload(*value, from, value->bytes);
    from += value->bytes;
  }
  TrainingState state = training_state_from_json(copy.content->state, copy.manifest.string());
  program::set_updates_made(executor_, state.updates);
  program::set_guard_history(executor_, state.guard);
  return state;
}

void Copies::settle(int64_t step) {
  comm::World& world = inputs_.ranks.world();
  const Path folder = makes_any() ? open_memory_folder(run_) : memory_folder(run_);
  if (world.local_rank() == 0 && is_own_memory_folder(run_)) {
    std::vector<FoundCopy> kept = list_copies(folder);
    std::erase_if(kept, [&](const FoundCopy& copy) {
      return !copy.content || copy.content->step > step || !difference(copy.content->origin, origin_).empty();
    });
    remove_copies(files_, folder, kept);
    if (!makes_any()) ::rmdir(folder.c_str());  // unless it has files
  }
  world.barrier();
  if (step > 0) agreed_ = step;
  if (makes_any() || step > 0) open_slots(folder);
}

}  // namespace strata::training
