#include "chat/bpe.h"

#include "base/error.h"
#include "chat/byte_alphabet.h"

namespace sluice::chat {

namespace {

constexpr int32_t kNoToken = -1;  // as a symbol it is in no merge

struct MergeIds {
  int32_t left, right, merged;
};

// The tokens of one line "left right" of the list of merges. `joined` is a buffer: a file has a quarter million lines.
MergeIds parse_merge(const Vocabulary& vocabulary, size_t index, std::string_view merge, std::string& joined) {
  const auto token = [&](std::string_view text) {
    const auto id = vocabulary.find(text);
    if (!id) {
      fail(ErrorKind::kFormat,
           "tokenizer.ggml.merges[{}]: \"{}\" needs \"{}\", which is not in tokenizer.ggml.tokens; convert the file "
           "again",
           index, merge, text);
    }
    return *id;
  };
  const size_t space = merge.find(' ', 1);
  if (space == std::string_view::npos || space + 1 == merge.size()) {
    fail(ErrorKind::kFormat, "tokenizer.ggml.merges[{}]: \"{}\" is not two tokens with a space between", index, merge);
  }
  const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
  joined.assign(left).append(right);
  const MergeIds ids{token(left), token(right), token(joined)};
  const TokenType type = vocabulary.type(ids.merged);
  if (type == TokenType::kControl || type == TokenType::kUnknown) {  // unused ones aren't found
    fail(ErrorKind::kFormat,
         "tokenizer.ggml.merges[{}]: \"{}\" makes token {} of type {}: plain text must not become a control token; "
         "convert the file again",
         index, merge, ids.merged, static_cast<int>(type));
  }
  return ids;
}

}  // namespace

ByteLevelBpe::ByteLevelBpe(const Vocabulary& vocabulary, const std::vector<std::string>& merges,
                           PreTokenizer pre_tokenizer)
    : vocabulary_(vocabulary), pre_tokenizer_(pre_tokenizer), merges_(merges.size()) {
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    const char c = static_cast<char>(byte);
    byte_ids_[byte] = vocabulary.find_normal(to_byte_alphabet({&c, 1})).value_or(kNoToken);
  }
  std::string joined;
  for (size_t i = 0; i < merges.size(); ++i) {
    const MergeIds ids = parse_merge(vocabulary, i, merges[i], joined);
    if (!merges_.add(ids.left, ids.right, {static_cast<uint32_t>(i), ids.merged})) {
      fail(ErrorKind::kFormat, "tokenizer.ggml.merges[{}]: \"{}\" stands there a second time; convert the file again",
           i, merges[i]);
    }
  }
}

void ByteLevelBpe::encode(std::string_view text, std::vector<int32_t>& ids) const {
  PairMerger merger(merges_);
  std::vector<int32_t> symbols;
  while (!text.empty()) {
    const size_t length = pre_tokenizer_.next(text);
    encode_word(text.substr(0, length), merger, symbols, ids);
    text.remove_prefix(length);
  }
}

void ByteLevelBpe::encode_word(std::string_view word, PairMerger& merger, std::vector<int32_t>& symbols,
                               std::vector<int32_t>& ids) const {
  if (pre_tokenizer_.whole_tokens_first()) {
    if (const auto id = vocabulary_.find_normal(to_byte_alphabet(word))) {
      ids.push_back(*id);
      return;
    }
  }
  symbols.clear();
  for (const char c : word) symbols.push_back(byte_ids_[static_cast<uint8_t>(c)]);
  merger.merge(symbols);
  for (const int32_t symbol : symbols) {
    if (symbol != kNoToken) ids.push_back(symbol);
  }
}

std::string ByteLevelBpe::bytes(int32_t id) const {
  if (vocabulary_.type(id) == TokenType::kByte) return std::string(1, static_cast<char>(vocabulary_.byte_value(id)));
  // A text with a character outside the alphabet was added by hand and stands for itself, as in Hugging Face's decoder.
  return from_byte_alphabet(vocabulary_.text(id)).value_or(vocabulary_.text(id));
}

}  // namespace sluice::chat
