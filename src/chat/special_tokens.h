// Finds the tokens that are matched literally in text, before it is cut in words: control tokens and user-defined ones.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/vocabulary.h"

namespace sluice::chat {

class SpecialTokens {
 public:
  explicit SpecialTokens(const Vocabulary& vocabulary);

  struct Match {
    size_t begin, length;  // bytes of the text
    int32_t id;
  };

  // All occurrences that count, in order and apart from each other. Where occurrences overlap the longest token wins,
  // among equals the leftmost (llama.cpp cuts the text at one token after another, longest first). Control and
  // unknown tokens only if `parse_special`; user-defined ones always. Time: text length x depth of common prefixes.
  std::vector<Match> find(std::string_view text, bool parse_special) const;

 private:
  struct Node {
    std::vector<std::pair<uint8_t, uint32_t>> next;  // byte -> node
    int32_t id = -1;                                 // of the token that ends here
    bool needs_parsing = false;                      // a control or unknown token
  };
  void insert(std::string_view text, int32_t id, bool needs_parsing);
  uint32_t step(uint32_t node, uint8_t byte) const;  // 0: none

  std::vector<Node> nodes_;                // a trie; 0 is the root
  std::array<uint32_t, 256> from_root_{};  // the root's successors: most bytes of a text end here
};

}  // namespace sluice::chat
