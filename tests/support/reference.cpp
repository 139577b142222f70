#include "support/reference.h"

#include <cstdlib>

namespace sluice::test {

std::optional<std::string> reference_root() {
  const char* root = std::getenv("SLUICE_REFERENCE");
  if (root == nullptr || *root == '\0') return std::nullopt;
  return std::string(root);
}

std::string test_data_dir() { return SLUICE_SOURCE_DIR "/tests/data"; }

}  // namespace sluice::test
