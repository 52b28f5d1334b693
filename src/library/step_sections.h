// Sections of offline pages about a step that was simulated, and the pages of strata simulate and strata plan.
#pragma once

#include <string>
#include <vector>

#include "library/simulation.h"
#include "plan/catalogue.h"

namespace strata::library {

// Each returns one or more <section> elements for a grid of cards (observe/run_page_assets.h).
//
// The first hosts of each place of the pipeline, each rank with its coordinates, and the links that the groups of each axis cross.
std::string ranks_section(const Simulation& step, int64_t devices_per_host);
// Where the time of each place goes, and MFU by convention.
std::string time_section(const Simulation& step);
// Bytes of each place by category, against its budget.
std::string memory_section(const Simulation& step);
// The actions of all places in time; for a long schedule a hint at --trace in their place.
std::string timeline_section(const Simulation& step);
// The figures of the chip and its links with their sources; without a cluster those of this machine.
std::string sources_section(const Simulation& step, const hardware::ClusterSpec* cluster);

// What `hours` of `devices` devices cost at each price, the cheapest first; without prices a hint.
std::string cost_section(double hours, int64_t devices, const std::vector<planning::Price>& prices);

std::string time_text(double seconds);  // "12.3 ms", "1.23 s"

struct Card {
  std::string title;
  std::string content;  // HTML
  bool wide = false;
};
std::string section(const Card& card);
// A table of text; the first row has the headings.
std::string html_table(const std::vector<std::vector<std::string>>& rows);
// A whole page around sections.
std::string page_of(const std::string& title, const std::string& subtitle, const std::string& sections);

// The page of strata simulate. `cluster`: nullptr: this machine, without costs.
std::string simulation_page(const Simulation& step, const hardware::ClusterSpec* cluster,
                            const std::vector<planning::Price>& prices);

}  // namespace strata::library
