// Amounts as people read them, in reports of several commands. What programs read is printed as whole numbers.
#pragma once

#include <cstdint>
#include <string>

namespace sluice::cli {

// Three significant digits and a binary unit: 812 B, 1.50 KiB, 20.6 GiB.
std::string human_bytes(uint64_t bytes);
// Three significant digits and a decimal unit, as models are called: 970, 135 M, 34.7 B.
std::string human_count(uint64_t count);

}  // namespace sluice::cli
