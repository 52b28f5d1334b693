#include "ptx/flow.h"

#include <algorithm>
#include <vector>

namespace strata::gpu_tests {
namespace {

struct BasicBlock {
  uint32_t begin;
  uint32_t end;
  std::vector<uint32_t> successors;
};

class Flow {
 public:
  explicit Flow(Kernel& kernel) : kernel_(kernel) {}

  void run() {
    make_blocks();
    order();
    dominate();
    for (uint32_t block = 0; block < blocks_.size(); ++block) {
      Instruction& last = kernel_.code[blocks_[block].end - 1];
      if (last.kind != Instruction::Kind::kBranch && last.kind != Instruction::Kind::kIndexedBranch) continue;
      const uint32_t joined = dominator_[block];
      last.join = joined == kNone || joined == exit_ ? kNone : blocks_[joined].begin;
    }
  }

 private:
  void make_blocks() {
    const std::vector<Instruction>& code = kernel_.code;
    const auto count = static_cast<uint32_t>(code.size());
    std::vector<char> starts(count + 1, 0);
    starts[0] = 1;
    for (uint32_t at = 0; at < count; ++at) {
      const Instruction& i = code[at];
      if (i.kind == Instruction::Kind::kBranch) starts[i.target] = 1;
      if (i.kind == Instruction::Kind::kIndexedBranch) {
        for (uint32_t n = 0; n < i.target; ++n) starts[kernel_.targets[i.more + n]] = 1;
      }
      if (i.kind == Instruction::Kind::kBranch || i.kind == Instruction::Kind::kIndexedBranch ||
          i.kind == Instruction::Kind::kExit) {
        starts[at + 1] = 1;
      }
    }
    std::vector<uint32_t> block_of(count + 1, 0);
    for (uint32_t at = 0; at < count; ++at) {
      if (starts[at] != 0) blocks_.push_back({at, at, {}});
      block_of[at] = static_cast<uint32_t>(blocks_.size() - 1);
      blocks_.back().end = at + 1;
    }
    exit_ = static_cast<uint32_t>(blocks_.size());
    block_of[count] = exit_;
    for (BasicBlock& block : blocks_) {
      const Instruction& last = code[block.end - 1];
      const bool always = last.guard == kNone;
      if (last.kind == Instruction::Kind::kBranch) block.successors.push_back(block_of[last.target]);
      if (last.kind == Instruction::Kind::kIndexedBranch) {
        for (uint32_t n = 0; n < last.target; ++n)
          block.successors.push_back(block_of[kernel_.targets[last.more + n]]);
      }
      if (last.kind == Instruction::Kind::kExit) block.successors.push_back(exit_);
      const bool leaves = last.kind == Instruction::Kind::kBranch ||
                          last.kind == Instruction::Kind::kIndexedBranch ||
                          last.kind == Instruction::Kind::kExit;
      if (!leaves || !always) block.successors.push_back(block_of[block.end]);
    }
  }

  // Post-order of the reversed graph, from the exit.
  void order() {
    const uint32_t count = exit_ + 1;
    predecessors_.resize(count);
    for (uint32_t block = 0; block < exit_; ++block) {
      for (const uint32_t to : blocks_[block].successors) predecessors_[to].push_back(block);
    }
    number_.assign(count, kNone);
    std::vector<std::pair<uint32_t, size_t>> stack{{exit_, 0}};
    std::vector<char> seen(count, 0);
    seen[exit_] = 1;
    while (!stack.empty()) {
      auto& [block, next] = stack.back();
      if (next < predecessors_[block].size()) {
        const uint32_t to = predecessors_[block][next++];
        if (seen[to] == 0) {
          seen[to] = 1;
          stack.emplace_back(to, 0);
        }
      } else {
        number_[block] = static_cast<uint32_t>(post_order_.size());
        post_order_.push_back(block);
        stack.pop_back();
      }
    }
  }

  // Cooper, Harvey and Kennedy, "A simple, fast dominance algorithm", on the reversed graph.
  void dominate() {
    dominator_.assign(exit_ + 1, kNone);
    dominator_[exit_] = exit_;
    for (bool changed = true; changed;) {
      changed = false;
      for (auto at = post_order_.rbegin(); at != post_order_.rend(); ++at) {
        if (*at == exit_) continue;
        uint32_t common = kNone;
        for (const uint32_t next : blocks_[*at].successors) {
          if (dominator_[next] == kNone) continue;
          common = common == kNone ? next : intersect(common, next);
        }
        if (dominator_[*at] != common) {
          dominator_[*at] = common;
          changed = true;
        }
      }
    }
  }

  uint32_t intersect(uint32_t a, uint32_t b) const {
    while (a != b) {
      while (number_[a] < number_[b]) a = dominator_[a];
      while (number_[b] < number_[a]) b = dominator_[b];
    }
    return a;
  }

  Kernel& kernel_;
  std::vector<BasicBlock> blocks_;
  std::vector<std::vector<uint32_t>> predecessors_;
  std::vector<uint32_t> post_order_;
  std::vector<uint32_t> number_;
  std::vector<uint32_t> dominator_;
  uint32_t exit_ = 0;
};

}  // namespace

void set_joins(Kernel& kernel) {
  if (!kernel.code.empty()) Flow(kernel).run();
}

}  // namespace strata::gpu_tests
