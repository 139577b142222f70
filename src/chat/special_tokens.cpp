#include "chat/special_tokens.h"

#include <algorithm>

#include "base/utf8.h"

namespace sluice::chat {

namespace {

using Match = SpecialTokens::Match;

bool overlap(const std::vector<Match>& by_begin) {
  for (size_t i = 1; i < by_begin.size(); ++i) {
    if (by_begin[i].begin < by_begin[i - 1].begin + by_begin[i - 1].length) return true;
  }
  return false;
}

// Longest first, then leftmost. A later one is never longer than one that was kept, so it overlaps one exactly if its
// first or last byte is taken.
std::vector<Match> resolve(std::vector<Match> matches, size_t text_size) {
  std::stable_sort(matches.begin(), matches.end(), [](const Match& a, const Match& b) { return a.length > b.length; });
  std::vector<bool> taken(text_size);
  std::vector<Match> kept;
  for (const Match& match : matches) {
    if (taken[match.begin] || taken[match.begin + match.length - 1]) continue;
    for (size_t i = 0; i < match.length; ++i) taken[match.begin + i] = true;
    kept.push_back(match);
  }
  std::sort(kept.begin(), kept.end(), [](const Match& a, const Match& b) { return a.begin < b.begin; });
  return kept;
}

}  // namespace

SpecialTokens::SpecialTokens(const Vocabulary& vocabulary) : nodes_(1) {
  for (int32_t id = 0; id < static_cast<int32_t>(vocabulary.size()); ++id) {
    const TokenType type = vocabulary.type(id);
    const bool needs_parsing = type == TokenType::kControl || type == TokenType::kUnknown;
    if (needs_parsing || type == TokenType::kUserDefined) insert(vocabulary.text(id), id, needs_parsing);
  }
}

void SpecialTokens::insert(std::string_view text, int32_t id, bool needs_parsing) {
  if (text.empty() || !utf8::is_valid(text)) return;  // would match everywhere, or inside of a character
  uint32_t node = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    uint32_t next = step(node, byte);
    if (next == 0) {
      next = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
      nodes_[node].next.emplace_back(byte, next);
      if (node == 0) from_root_[byte] = next;
    }
    node = next;
  }
  nodes_[node].id = id;
  nodes_[node].needs_parsing = needs_parsing;
}

uint32_t SpecialTokens::step(uint32_t node, uint8_t byte) const {
  if (node == 0) return from_root_[byte];
  for (const auto& [label, next] : nodes_[node].next) {
    if (label == byte) return next;
  }
  return 0;
}

std::vector<Match> SpecialTokens::find(std::string_view text, bool parse_special) const {
  std::vector<Match> matches;
  for (size_t begin = 0; begin < text.size(); ++begin) {
    size_t end = begin;
    uint32_t node = 0;
    while (end < text.size() && (node = step(node, static_cast<uint8_t>(text[end]))) != 0) {
      ++end;
      const Node& reached = nodes_[node];
      if (reached.id >= 0 && (parse_special || !reached.needs_parsing))
        matches.push_back({begin, end - begin, reached.id});
    }
  }
  return overlap(matches) ? resolve(std::move(matches), text.size()) : matches;
}

}  // namespace sluice::chat
