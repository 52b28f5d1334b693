#include "observe/layer_log.h"

#include <cmath>

#include "base/json.h"
#include "observe/lines.h"

namespace strata::observe {
namespace {

using Json = nlohmann::ordered_json;

Json number(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json();
}

// nullopt: not a line of the file.
std::optional<int64_t> step_of_line(std::string_view text) {
  try {
    const Json line = parse_json<Json>(text);
    if (!line.at("layers").is_array()) return std::nullopt;
    return line.at("step").get<int64_t>();
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

std::string layers_line(int64_t step, const std::vector<LayerStatistics>& layers) {
  Json list = Json::array();
  for (const LayerStatistics& one : layers) {
    list.push_back({{"layer", one.layer ? Json(*one.layer) : Json()},
                    {"tensor", one.tensor},
                    {"grad_rms", number(one.grad_rms)},
                    {"weight_rms", number(one.weight_rms)},
                    {"update_ratio", number(one.update_ratio)},
                    {"act_rms", number(one.act_rms)},
                    {"act_max", number(one.act_max)},
                    {"zero_share", number(one.zero_share)}});
  }
  return dump_json(Json{{"step", step}, {"layers", std::move(list)}}) + "\n";
}

LayerLog::LayerLog(FileSystem& files, const Path& folder, int64_t interval, int64_t step)
    : files_(files), path_(folder / "layers.jsonl"), interval_(interval) {
  const std::string content = read_or_empty(path_);
  size_t kept = 0;
  for_each_line(content, [&](std::string_view text) {
    const std::optional<int64_t> of = step_of_line(text);
    if (!of || *of > step || (!lines_.empty() && *of <= lines_.back().step)) return;
    // A longer distance is that of a file whose lines were removed.
    while (!lines_.empty() && interval_ < *of - lines_.back().step) interval_ *= 2;
    kept += text.size();
    lines_.push_back({*of, std::string(text)});
  });
  if (kept != content.size()) {
    rewrite();
  } else {
    file_ = files.open_for_writing(path_, /*keep=*/true);
  }
}

LayerLog::~LayerLog() = default;

void LayerLog::rewrite() {
  std::string content;
  for (const Line& line : lines_) content += line.text;
  file_.reset();
  write_file_atomically(files_, path_, content);
  file_ = files_.open_for_writing(path_, /*keep=*/true);
}

void LayerLog::halve() {
  interval_ *= 2;
  std::erase_if(lines_, [&](const Line& line) { return line.step % interval_ != 0; });
  rewrite();
}

void LayerLog::step(int64_t step, const std::vector<LayerStatistics>& layers) {
  if (step % interval_ != 0) return;
  lines_.push_back({step, layers_line(step, layers)});
  file_->append(lines_.back().text);
  if (lines_.size() > kMostKept) halve();
}

}  // namespace strata::observe
