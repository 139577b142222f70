#include "cli/suggest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace sluice::cli {
namespace {

std::string_view without_dashes(std::string_view word) {
  return word.substr(std::min(word.find_first_not_of('-'), word.size()));
}

// One row of the table at a time.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_word(std::string_view wrong, std::span<const std::string> known) {
  wrong = without_dashes(wrong);
  const size_t farthest = wrong.size() < 4 ? 1 : std::max<size_t>(2, wrong.size() / 3);
  std::string best;
  size_t best_distance = farthest + 1;
  size_t best_shared = 0;
  for (const std::string& word : known) {
    const std::string_view right = without_dashes(word);
    const size_t shorter = std::min(wrong.size(), right.size());
    const auto shared =
        static_cast<size_t>(std::mismatch(wrong.begin(), wrong.begin() + shorter, right.begin()).first - wrong.begin());
    size_t distance = edit_distance(wrong, right);
    // --temprature is meant as --temp: sharing all of the shorter word is as good as two typing errors.
    if (shorter >= 3 && shared == shorter) distance = std::min<size_t>(distance, 2);
    // Among equals the one that begins alike: typing errors are rarely in the first letters.
    if (distance < best_distance || (distance == best_distance && shared > best_shared && !best.empty())) {
      best = word;
      best_distance = distance;
      best_shared = shared;
    }
  }
  return best;
}

}  // namespace sluice::cli
