// Exchanges small values among members of a group. Every member calls the same function at the same point. In
// a group of one it returns the member's own value.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"

namespace strata::comm {

// By member.
std::vector<std::string> gather_texts(Communicator& group, std::string_view text);
std::vector<double> gather_values(Communicator& group, double value);

double max_over(Communicator& group, double value);
double min_over(Communicator& group, double value);
double sum_over(Communicator& group, double value);               // in the members' order
void sum_over(Communicator& group, std::vector<double>& values);  // element by element

// The text of member `root`; those of others are ignored.
std::string broadcast_text(Communicator& group, std::string_view text, int root = 0);

}  // namespace strata::comm
