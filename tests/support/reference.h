// Where golden vectors lie: a small selection in the tree, the full set wherever $SLUICE_REFERENCE points.
#pragma once

#include <optional>
#include <string>

namespace sluice::test {

// The folder of the full reference set, from the environment variable SLUICE_REFERENCE; nullopt when that is unset or
// empty. Tests of the full set then skip themselves and say why: GTEST_SKIP() << kNoReference.
std::optional<std::string> reference_root();

inline constexpr const char* kNoReference =
    "SLUICE_REFERENCE is not set; the selection in tests/data is tested instead";

// tests/data of the source tree that this program was built from.
std::string test_data_dir();

}  // namespace sluice::test
