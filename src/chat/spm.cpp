#include "chat/spm.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "base/error.h"
#include "base/utf8.h"

namespace sluice::chat {

namespace {

constexpr std::string_view kSpaceMarkText = "\xE2\x96\x81";  // U+2581 stands for a space

// A character without a token, as a symbol: negative, so no id, and it still says which character it is. It can be a
// part of merges, since the text of a token may begin with a character that is none.
int32_t lone_character(char32_t code_point) { return -1 - static_cast<int32_t>(code_point); }
char32_t code_point_of(int32_t symbol) { return static_cast<char32_t>(-1 - symbol); }

const std::vector<float>& checked(const Vocabulary& vocabulary, const std::vector<float>& scores) {
  if (scores.size() != vocabulary.size()) {
    fail(ErrorKind::kFormat,
         "tokenizer.ggml.scores: {} entries for {} tokens; tokenizer model \"llama\" needs one each, convert the file "
         "again",
         scores.size(), vocabulary.size());
  }
  for (size_t id = 0; id < scores.size(); ++id) {
    if (!std::isfinite(scores[id])) {
      fail(ErrorKind::kFormat, "tokenizer.ggml.scores[{}]: {} is not a finite number; convert the file again", id,
           scores[id]);
    }
  }
  return scores;
}

// Byte offsets of the characters of `text` but the first.
std::vector<size_t> inner_borders(std::string_view text) {
  std::vector<size_t> borders;
  size_t position = 0;
  while (position < text.size()) {
    if (position > 0) borders.push_back(position);
    position += utf8::decode(text.substr(position)).length;
  }
  return borders;
}

}  // namespace

SentencePieceBpe::SentencePieceBpe(const Vocabulary& vocabulary, const std::vector<float>& scores, bool space_prefix)
    : vocabulary_(vocabulary), space_prefix_(space_prefix), merges_(build_merges(checked(vocabulary, scores))) {
  byte_ids_.fill(-1);
  for (int32_t id = 0; id < static_cast<int32_t>(vocabulary.size()); ++id) {
    if (vocabulary.type(id) == TokenType::kByte) byte_ids_[vocabulary.byte_value(id)] = id;
  }
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    if (byte_ids_[byte] >= 0) continue;
    if (!vocabulary.unknown()) {
      fail(ErrorKind::kFormat,
           "tokenizer.ggml.tokens: no token \"<0x{:02X}>\" and no tokenizer.ggml.unknown_token_id, so not every text "
           "can be encoded; convert the file again",
           byte);
    }
    byte_ids_[byte] = *vocabulary.unknown();
  }
}

// SentencePiece looks up the joined text of two symbols and takes the highest score. That is a table of pairs whose
// rank is the place of the score: every way to cut a token in two parts that can be symbols is a merge.
MergeTable SentencePieceBpe::build_merges(const std::vector<float>& scores) const {
  std::vector<float> descending = scores;
  std::sort(descending.begin(), descending.end(), std::greater<>());
  descending.erase(std::unique(descending.begin(), descending.end()), descending.end());
  const auto rank_of = [&](float score) {
    return static_cast<uint32_t>(std::lower_bound(descending.begin(), descending.end(), score, std::greater<>()) -
                                 descending.begin());
  };

  struct Entry {
    int32_t left, right;
    Merge merge;
  };
  std::vector<Entry> entries;
  for (int32_t id = 0; id < static_cast<int32_t>(vocabulary_.size()); ++id) {
    const std::string_view text = vocabulary_.text(id);
    if (vocabulary_.type(id) != TokenType::kNormal || !utf8::is_valid(text)) continue;  // text is always valid
    const Merge merge{rank_of(scores[static_cast<size_t>(id)]), id};
    for (const size_t border : inner_borders(text)) {
      const int32_t left = symbol_of(text.substr(0, border)), right = symbol_of(text.substr(border));
      if (left != MergeTable::kGone && right != MergeTable::kGone) entries.push_back({left, right, merge});
    }
  }
  MergeTable table(entries.size());
  for (const Entry& entry : entries) table.add(entry.left, entry.right, entry.merge);  // texts differ, so pairs do
  return table;
}

// The symbol with this text, valid UTF-8 and not empty; kGone if it can't be one.
int32_t SentencePieceBpe::symbol_of(std::string_view text) const {
  if (const auto id = vocabulary_.find_normal(text)) return *id;
  const utf8::Decoded first = utf8::decode(text);
  return first.length == text.size() ? lone_character(first.code_point) : MergeTable::kGone;
}

void SentencePieceBpe::encode(std::string_view text, std::vector<int32_t>& ids) const {
  if (text.empty()) return;
  std::vector<int32_t> symbols;
  if (space_prefix_) symbols.push_back(symbol_of(kSpaceMarkText));
  while (!text.empty()) {
    const size_t length = utf8::decode(text).length;
    symbols.push_back(symbol_of(text[0] == ' ' ? kSpaceMarkText : text.substr(0, length)));
    text.remove_prefix(length);
  }
  PairMerger(merges_).merge(symbols);
  for (const int32_t symbol : symbols) {
    if (symbol >= 0) {
      ids.push_back(symbol);
    } else {
      append_bytes(code_point_of(symbol), ids);
    }
  }
}

void SentencePieceBpe::append_bytes(char32_t code_point, std::vector<int32_t>& ids) const {
  std::string encoded;
  utf8::append(encoded, code_point);
  for (const char byte : encoded) ids.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
}

std::string SentencePieceBpe::bytes(int32_t id) const {
  if (vocabulary_.type(id) == TokenType::kByte) return std::string(1, static_cast<char>(vocabulary_.byte_value(id)));
  std::string_view text = vocabulary_.text(id);
  std::string out;
  for (size_t mark; (mark = text.find(kSpaceMarkText)) != std::string_view::npos;) {
    out += text.substr(0, mark);
    out += ' ';
    text.remove_prefix(mark + kSpaceMarkText.size());
  }
  out += text;
  return out;
}

}  // namespace sluice::chat
