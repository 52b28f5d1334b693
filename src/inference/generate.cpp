#include "inference/generate.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace strata::inference {

using program::Kind;

std::vector<program::Request> generation_requests(int64_t chunk, int64_t sequences, int64_t encoder_length) {
  STRATA_CHECK(sequences >= 1 && sequences <= kMaxSequences, "{} sequences", sequences);
  std::vector<program::Request> requests{{.kind = encoder_length > 0 ? Kind::kEncoderPrefill : Kind::kPrefill,
                                          .sequences = 1,
                                          .sequence_length = encoder_length > 0 ? 1 : chunk,
                                          .encoder_length = encoder_length}};
  for (int64_t count = 1;; count = std::min(2 * count, sequences)) {
    requests.push_back(
        {.kind = Kind::kDecode, .sequences = count, .sequence_length = 1, .encoder_length = encoder_length});
    if (count == sequences) return requests;
  }
}

int64_t cache_capacity_for(int64_t tokens, int64_t chunk) {
  return (tokens + chunk - 1) / chunk * chunk;
}

Generator::Generator(program::Executor& executor, size_t prefill, size_t decode)
    : executor_(executor),
      prefill_(prefill),
      chunk_(executor.program(prefill).request.sequence_length),
      encoder_length_(executor.program(prefill).request.encoder_length),
      positions_(std::min(executor.set().options.cache_capacity,
                          executor.set().options.model.max_sequence_length())),
      sequences_(executor.set().options.cache_slots),
      logits_(static_cast<size_t>(executor.set().options.model.vocab_size)) {
  for (size_t i = decode; i < executor.set().programs.size(); ++i) {
    if (executor.program(i).request.kind == Kind::kDecode) decodes_.push_back(i);
  }
  STRATA_CHECK(!decodes_.empty() && executor.program(decodes_.back()).request.sequences == sequences_,
               "the decoding programs do not match a cache for {} sequences", sequences_);
}

void Generator::prefill(const Active& active) {
  std::vector<int32_t> ids(static_cast<size_t>(chunk_)), places(static_cast<size_t>(chunk_));
  const auto size = static_cast<int64_t>(active.prompt_size);
  for (int64_t begin = 0; begin < size; begin += chunk_) {
    for (int64_t i = 0; i < chunk_; ++i) {
      // Rows after the prompt are computed and later overwritten; they only must stay inside the tables.
      ids[static_cast<size_t>(i)] = begin + i < size ? active.history[static_cast<size_t>(begin + i)] : 0;
      places[static_cast<size_t>(i)] = static_cast<int32_t>(std::min(begin + i, positions_ - 1));
    }
    executor_.upload_column(prefill_, Column::kTokens, 0, ids);
    executor_.upload_column(prefill_, Column::kPositions, 0, places);
    executor_.write("cache_position", static_cast<int32_t>(begin));
    executor_.write("cache_slot", active.slot);
    const auto count = static_cast<int32_t>(std::min(chunk_, size - begin));
    executor_.write("last_row", count - 1);
    if (has_states()) executor_.write("cache_count", count);
    executor_.run_script(prefill_);
  }
}

void Generator::encode(std::span<const int32_t> prompt, int32_t slot) {
  std::vector<int32_t> ids(static_cast<size_t>(encoder_length_)),
      begins(static_cast<size_t>(encoder_length_));
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool of_prompt = i < prompt.size();
    ids[i] = of_prompt ? prompt[i] : 0;
    begins[i] = of_prompt ? 0 : static_cast<int32_t>(i);  // padding sees only itself
  }
  executor_.upload_column(prefill_, Column::kEncoderTokens, 0, ids);
  executor_.upload_column(prefill_, Column::kEncoderKvBegin, 0, begins);
  executor_.write("cache_slot", slot);
  executor_.run_script(prefill_);
}

void Generator::decode(std::span<const Active> active) {
  const size_t program = *std::find_if(decodes_.begin(), decodes_.end(), [&](size_t i) {
    return executor_.program(i).request.sequences >= static_cast<int64_t>(active.size());
  });
  const auto rows = static_cast<size_t>(executor_.program(program).request.sequences);
  std::vector<int32_t> ids(rows), positions(rows), slots(rows), encoder_ends(rows);
  // Rows without a sequence write to unused cache entries.
  std::vector<bool> taken(static_cast<size_t>(sequences_));
  for (const Active& one : active) taken[static_cast<size_t>(one.slot)] = true;
  int32_t free = 0;
  for (size_t row = 0; row < rows; ++row) {
    if (row < active.size()) {
      ids[row] = active[row].history.back();
      positions[row] = static_cast<int32_t>(active[row].position);
      slots[row] = active[row].slot;
      encoder_ends[row] = static_cast<int32_t>(active[row].encoder_size);
      continue;
    }
    while (taken[static_cast<size_t>(free)]) ++free;
    slots[row] = free++;
  }
  executor_.upload_column(program, Column::kTokens, 0, ids);
  executor_.upload_column(program, Column::kPositions, 0, positions);
  executor_.write("cache_position", positions);
  executor_.write("cache_slot", slots);
  if (has_encoder()) executor_.write("encoder_end", encoder_ends);
  if (has_states()) executor_.write("cache_count", std::vector<int32_t>(rows, 1));
  executor_.run_script(program);
}

Generator::Active Generator::begin(size_t sequence, const std::vector<int32_t>& prompt, int32_t slot) const {
  if (!has_encoder()) return {sequence, slot, static_cast<int64_t>(prompt.size()), prompt, prompt.size()};
  const auto start = static_cast<int32_t>(executor_.set().options.model.start_id.value_or(0));
  return {sequence, slot, 0, {start}, 1, prompt.size()};
}

void Generator::read_logits(int64_t row) {
  const auto bytes = static_cast<int64_t>(logits_.size() * sizeof(float));
  executor_.download("logits", logits_.data(), bytes, row * bytes);
}

void Generator::follow(std::span<const int32_t> text, int64_t prompt, std::span<const int32_t> read,
                       const OnLogits& on_logits) {
  const std::span<const int32_t> first = has_encoder() ? read : text.first(static_cast<size_t>(prompt));
  Active active = begin(0, {first.begin(), first.end()}, 0);
  size_t next = first.size();
  if (has_encoder()) {
    encode(read, 0);
    active.history.clear();
    next = 0;
  } else {
    prefill(active);
    read_logits(0);
    on_logits(next - 1, logits_);
  }
  for (; next < text.size(); ++next) {
    active.history.push_back(text[next]);
    decode({&active, 1});
    ++active.position;
    read_logits(0);
    on_logits(next, logits_);
  }
}

bool Generator::choose(Active& active, int64_t row, const SamplingOptions& options, const OnToken& on_token) {
  read_logits(row);
  const size_t made = active.history.size() - active.prompt_size;
  const int32_t token = sample_token(logits_, active.history, options, made);
  if (std::find(options.stop_ids.begin(), options.stop_ids.end(), token) != options.stop_ids.end())
    return false;
  active.history.push_back(token);
  if (on_token && !on_token(active.sequence, token)) return false;
  return static_cast<int64_t>(made) + 1 < options.max_tokens && active.position < positions_;
}

void Generator::generate(std::span<const SequenceRequest> sequences, const OnToken& on_token,
                         const OnSequence& on_sequence, const std::function<bool()>& stop) {
  for (const SequenceRequest& sequence : sequences) {
    if (sequence.prompt.empty())
      throw ConfigError("[generate] the prompt is empty: expected at least one token");
    const int64_t most = has_encoder() ? encoder_length_ : positions_;
    if (static_cast<int64_t>(sequence.prompt.size()) > most) {
      throw ConfigError("[generate] the prompt has {} tokens: expected at most {}. Shorten it",
                        sequence.prompt.size(), most);
    }
  }
  std::vector<Active> active;
  std::vector<int32_t> free_slots;
  for (int64_t slot = sequences_ - 1; slot >= 0; --slot) free_slots.push_back(static_cast<int32_t>(slot));
  const auto finish = [&](const Active& one) {
    const auto made = one.history.begin() + static_cast<std::ptrdiff_t>(one.prompt_size);
    on_sequence(one.sequence, {made, one.history.end()});
    free_slots.push_back(one.slot);
  };
  for (size_t next = 0; next < sequences.size() || !active.empty();) {
    if (stop && stop()) {
      for (const Active& one : active) finish(one);
      return;
    }
    while (next < sequences.size() && !free_slots.empty()) {
      const SequenceRequest& sequence = sequences[next];
      Active one = begin(next++, sequence.prompt, free_slots.back());
      free_slots.pop_back();
      if (sequence.options.max_tokens < 1) {
        finish(one);
        continue;
      }
      if (has_encoder()) {
        encode(sequence.prompt, one.slot);
        active.push_back(std::move(one));
        continue;
      }
      prefill(one);
      if (choose(one, 0, sequence.options, on_token)) {
        active.push_back(std::move(one));
      } else {
        finish(one);
      }
    }
    if (active.empty()) continue;
    decode(active);
    std::vector<Active> going;
    for (size_t row = 0; row < active.size(); ++row) {
      Active& one = active[row];
      ++one.position;
      if (choose(one, static_cast<int64_t>(row), sequences[one.sequence].options, on_token)) {
        going.push_back(std::move(one));
      } else {
        finish(one);
      }
    }
    active = std::move(going);
  }
}

std::vector<int32_t> Generator::generate(std::span<const int32_t> prompt, const SamplingOptions& options,
                                         const std::function<bool(int32_t)>& on_token) {
  const SequenceRequest sequence{{prompt.begin(), prompt.end()}, options};
  std::vector<int32_t> out;
  generate(
      std::span(&sequence, 1), [&](size_t, int32_t token) { return !on_token || on_token(token); },
      [&](size_t, const std::vector<int32_t>& made) { out = made; });
  return out;
}

}  // namespace strata::inference
