#include "train/copy_exchange.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace strata::training {
namespace {

constexpr int64_t kChunk = int64_t{1} << 20;

}  // namespace

CopyExchange::CopyExchange(comm::World& world) {
  std::vector<int> everybody(static_cast<size_t>(world.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  group_ = world.group(everybody, "copies");
}

template <typename BufferOf>
void CopyExchange::pass(const BufferOf& buffer_of) {
  std::vector<comm::Ticket> started;
  for (Link& link : links_) {
    const Buffer buffer = buffer_of(link);
    if (buffer.size <= 0) continue;
    const int peer = link.message.peer;
    started.push_back(link.message.sends ? group_->send(peer, buffer.bytes, buffer.size)
                                         : group_->receive(peer, buffer.bytes, buffer.size));
  }
  for (const comm::Ticket ticket : started) group_->wait(ticket);
}

std::string CopyExchange::run(int64_t step, int64_t keep, const std::vector<CopyMessage>& messages) {
  std::string problem;
  // What happens to a file must not stop the messages, for which other ranks wait.
  const auto attempt = [&](Link& link, const auto& work) {
    if (link.fails) return;
    try {
      work();
    } catch (const Error& error) {
      link.fails = true;
      if (problem.empty()) problem = error.what();
    }
  };

  links_.clear();
  for (const CopyMessage& message : messages) {
    Link& link = links_.emplace_back();
    link.message = message;
    if (!message.sends) continue;
    attempt(link, [&] {
      if (!message.slots->has(step)) return;
      const FoundCopy copy = message.slots->find(step);
      link.manifest = read_file(copy.manifest);
      link.file.emplace(copy.data);
      link.size = {std::ssize(link.manifest), copy.content->bytes()};
    });
  }
  pass([](Link& link) { return Buffer{&link.size, sizeof link.size}; });

  pass([](Link& link) {
    if (!link.message.sends)
      link.manifest.resize(static_cast<size_t>(std::max<int64_t>(0, link.size.manifest)));
    return Buffer{link.manifest.data(), link.size.manifest};
  });
  for (Link& link : links_) {
    link.chunk.resize(static_cast<size_t>(std::min(kChunk, link.size.data)));
    if (!link.message.sends && link.size.manifest > 0)
      attempt(link, [&] { link.message.slots->begin(link.size.data, keep); });
  }

  const auto size_of = [](const Link& link) { return std::min(kChunk, link.size.data - link.done); };
  const auto is_open = [&](const Link& link) { return size_of(link) > 0; };
  while (std::any_of(links_.begin(), links_.end(), is_open)) {
    for (Link& link : links_) {
      if (!link.message.sends || !is_open(link)) continue;
      attempt(link, [&] {
        link.file->read_at(static_cast<uint64_t>(link.done), link.chunk.data(),
                           static_cast<size_t>(size_of(link)));
      });
    }
    pass([&](Link& link) { return Buffer{link.chunk.data(), size_of(link)}; });
    for (Link& link : links_) {
      if (!is_open(link)) continue;
      const int64_t size = size_of(link);
      if (!link.message.sends) {
        attempt(link,
                [&] { link.message.slots->write(link.done, link.chunk.data(), static_cast<size_t>(size)); });
      }
      link.done += size;
    }
  }
  for (Link& link : links_)
    if (!link.message.sends && link.size.manifest > 0)
      attempt(link, [&] { link.message.slots->commit(step, link.manifest); });
  return problem;
}

}  // namespace strata::training
