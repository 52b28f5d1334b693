#include <fmt/format.h>

#include "base/toml.h"
#include "plan/catalogue.h"
#include "plan/catalogue_schema.h"

namespace strata::planning {
namespace {

std::string quoted(const std::string& text) {
  ConfigValue value;
  value.data = text;
  return strata::to_toml(value);
}

std::string number(double number) {
  ConfigValue value;
  value.data = number;
  return strata::to_toml(value);
}

void write_figure(std::string& out, std::string_view key, const Figure& figure) {
  if (!figure.known()) return;
  out += fmt::format("{} = {{ value = {}, source = {}, mark = \"{}\" }}\n", key, number(figure.value),
                     quoted(figure.source), to_string(figure.evidence));
}

template <typename Spec, size_t n>
void write_figures(std::string& out, const Spec& spec, const detail::FigureKey<Spec> (&figures)[n]) {
  for (const auto& figure : figures) write_figure(out, figure.key, spec.*figure.member);
}

void write_dtypes(std::string& out, const std::string& section, const ByPrecision<Figure>& figures) {
  out += fmt::format("[{}]\n", section);
  for (const Precision one : kAllPrecisions) write_figure(out, to_string(one), figures[one]);
}

}  // namespace

std::string cluster_file(const ClusterSpec& cluster) {
  const ChipSpec& chip = cluster.chip;
  const std::string chip_section = "chip." + toml_key(chip.name);
  const std::string section = "cluster." + toml_key(cluster.name);
  std::string out =
      fmt::format("use = {}\n\n[{}]\ntitle = {}\n", quoted(cluster.name), chip_section, quoted(chip.title));
  if (!chip.vendor.empty()) out += fmt::format("vendor = {}\n", quoted(chip.vendor));
  out += fmt::format("kind = {}\n", quoted(chip.kind));
  std::string aliases;
  for (const std::string& alias : chip.aliases) aliases += (aliases.empty() ? "" : ", ") + quoted(alias);
  if (!aliases.empty()) out += fmt::format("aliases = [{}]\n", aliases);
  write_figures(out, chip, detail::kChipFigures);
  write_dtypes(out, chip_section + ".peak", chip.peak);
  write_dtypes(out, chip_section + ".achievable", chip.achievable);

  out +=
      fmt::format("\n[{}]\ntitle = {}\nchip = {}\ndevices_per_host = {}\nnics_per_host = {}\n", section,
                  quoted(cluster.title), quoted(chip.name), cluster.devices_per_host, cluster.nics_per_host);
  write_figures(out, cluster, detail::kClusterFigures);
  std::string mttf;
  for (const JobMttf& job : cluster.measured_mttf) {
    mttf += fmt::format("{}{{ devices = {}, mttf = {}, source = {} }}", mttf.empty() ? "" : ", ", job.devices,
                        number(job.seconds), quoted(job.source));
  }
  if (!mttf.empty()) out += fmt::format("measured_mttf = [{}]\n", mttf);
  for (const LinkLevel& link : cluster.links) {
    out += fmt::format("[{}.link.{}]\nsize = {}\ntopology = \"{}\"\n", section, toml_key(link.name),
                       link.size == LinkLevel::kAll ? "\"all\"" : std::to_string(link.size),
                       to_string(link.topology));
    write_figures(out, link, detail::kLinkFigures);
  }
  return out;
}

}  // namespace strata::planning
