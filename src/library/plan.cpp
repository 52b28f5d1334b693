#include "base/error.h"
#include "base/log.h"
#include "library/config_impl.h"
#include "library/plan_impl.h"
#include "strata/train.h"

namespace strata {

Plan::Plan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Plan plan(const Config& config, const PlanOptions& options) {
  const LogSink lines(options.log);
  if (options.ranks < 1) throw ConfigError("[ranks] found {}, expected at least 1", options.ranks);
  const config::RunConfig& asked = config.impl().config;
  library::Explanation explanation(
      library::plan_as_trained(asked, options.ranks, library::places_from(asked, options.ranks, 0)), 0);
  const std::string toml = config::resolved_toml(explanation.plan().config, "");
  auto chosen = std::make_shared<const Config::Impl>(Config::Impl{
      explanation.plan().config,
      [toml](const std::vector<std::string>& sets) { return config::parse_run_config(toml, "plan", sets); },
      {}});
  return Plan(std::make_shared<const Plan::Impl>(
      Plan::Impl{config, Config(std::move(chosen)), options.ranks, std::move(explanation)}));
}

const Config& Plan::config() const {
  return impl_->chosen;
}
int64_t Plan::parameters() const {
  return models::parameter_count(impl_->explanation.plan().model);
}
MemoryPlan Plan::memory() const {
  return impl_->explanation.memory();
}
TimePlan Plan::time() const {
  return impl_->explanation.time();
}
std::string Plan::text() const {
  return impl_->explanation.text();
}
std::string Plan::json() const {
  return dump_json(impl_->explanation.json());
}

}  // namespace strata
