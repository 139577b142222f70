#include "chat/vocabulary.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "base/error.h"

namespace sluice::chat {

namespace {

// Texts that end a turn or a text: Qwen, SmolLM2 (im_end, endoftext), Llama 3 (eot_id, eom_id, end_of_text). The last
// three of Qwen stand between files of a repository in its training data: what follows them is another document.
// llama.cpp stops on all of these too; its list is longer, for families that Sluice doesn't run.
constexpr std::string_view kEndsOfGeneration[] = {"<|endoftext|>",   "<|im_end|>",  "<|eot_id|>",    "<|eom_id|>",
                                                  "<|end_of_text|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"};

std::optional<uint8_t> hex_digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<uint8_t>(c - '0');
  if (c >= 'A' && c <= 'F') return static_cast<uint8_t>(c - 'A' + 10);
  if (c >= 'a' && c <= 'f') return static_cast<uint8_t>(c - 'a' + 10);
  return std::nullopt;
}

// "<0xHH>"
std::optional<uint8_t> parse_byte_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || !text.ends_with(">")) return std::nullopt;
  const auto high = hex_digit(text[3]), low = hex_digit(text[4]);
  if (!high || !low) return std::nullopt;
  return static_cast<uint8_t>(*high << 4 | *low);
}

void check_sizes(const VocabularyData& data) {
  const size_t count = data.tokens.size();
  if (count == 0) {
    fail(ErrorKind::kFormat, "tokenizer.ggml.tokens: empty or missing; the file has no vocabulary, convert it again");
  }
  constexpr size_t kLimit = std::numeric_limits<int32_t>::max();
  if (count > kLimit) fail(ErrorKind::kFormat, "tokenizer.ggml.tokens: {} tokens, the limit is {}", count, kLimit);
  const auto same_length = [&](const char* key, size_t length) {
    if (length != 0 && length != count) {
      fail(ErrorKind::kFormat,
           "{}: {} entries, but tokenizer.ggml.tokens has {}; the file contradicts itself, convert it again", key,
           length, count);
    }
  };
  same_length("tokenizer.ggml.token_type", data.types.size());
  same_length("tokenizer.ggml.scores", data.scores.size());
}

void check_type(size_t id, TokenType type, std::string_view text) {
  if (type < TokenType::kNormal || type > TokenType::kByte) {
    fail(ErrorKind::kFormat, "tokenizer.ggml.token_type[{}]: {} is not a token type (1 to 6); convert the file again",
         id, static_cast<int>(type));
  }
  if (type == TokenType::kByte && !parse_byte_token(text)) {
    fail(ErrorKind::kFormat,
         "tokenizer.ggml.tokens[{}]: \"{}\" has the type of a byte (6), but is not \"<0xHH>\"; convert the file again",
         id, text);
  }
}

}  // namespace

Vocabulary::Vocabulary(VocabularyData& data) {
  check_sizes(data);
  texts_ = std::move(data.tokens);
  types_ = std::move(data.types);
  if (types_.empty()) types_.assign(texts_.size(), TokenType::kNormal);
  for (size_t id = 0; id < texts_.size(); ++id) check_type(id, types_[id], texts_[id]);
  index_texts();

  bos_ = checked_id("tokenizer.ggml.bos_token_id", data.bos);
  eos_ = checked_id("tokenizer.ggml.eos_token_id", data.eos);
  eot_ = checked_id("tokenizer.ggml.eot_token_id", data.eot);
  padding_ = checked_id("tokenizer.ggml.padding_token_id", data.padding);
  unknown_ = checked_id("tokenizer.ggml.unknown_token_id", data.unknown);

  auto& ends = ends_of_generation_;
  for (const auto& id : {eos_, eot_}) {
    if (id) ends.push_back(*id);
  }
  for (const std::string_view end : kEndsOfGeneration) {
    if (const auto id = find(end)) ends.push_back(*id);
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
}

std::optional<int32_t> Vocabulary::checked_id(const char* key, std::optional<uint32_t> id) const {
  if (!id) return std::nullopt;
  if (*id >= size()) {
    fail(ErrorKind::kFormat, "{}: {} is not a token: ids end at {}; correct the key or convert the file again", key,
         *id, size() - 1);
  }
  return static_cast<int32_t>(*id);
}

// The slot of the token with this text, or the free one where it would be.
size_t Vocabulary::slot_of(std::string_view text) const {
  size_t slot = std::hash<std::string_view>()(text) & (slots_.size() - 1);
  while (slots_[slot] >= 0 && texts_[static_cast<size_t>(slots_[slot])] != text) {
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slot;
}

void Vocabulary::index_texts() {
  slots_.assign(std::bit_ceil(2 * texts_.size()), -1);
  for (size_t id = 0; id < texts_.size(); ++id) {
    if (types_[id] == TokenType::kUnused) continue;
    int32_t& slot = slots_[slot_of(texts_[id])];
    if (slot >= 0) {
      fail(ErrorKind::kFormat,
           "tokenizer.ggml.tokens[{}] and [{}] are both \"{}\": text could become either; convert the file again", slot,
           id, texts_[id]);
    }
    slot = static_cast<int32_t>(id);
  }
}

std::optional<int32_t> Vocabulary::find(std::string_view text) const {
  const int32_t id = slots_[slot_of(text)];
  if (id < 0) return std::nullopt;
  return id;
}

std::optional<int32_t> Vocabulary::find_normal(std::string_view text) const {
  const int32_t id = slots_[slot_of(text)];
  if (id < 0 || type(id) != TokenType::kNormal) return std::nullopt;
  return id;
}

uint8_t Vocabulary::byte_value(int32_t id) const { return *parse_byte_token(text(id)); }

}  // namespace sluice::chat
