#include "chat/tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "chat/bpe.h"
#include "chat/pretokenizer.h"
#include "chat/special_tokens.h"
#include "chat/spm.h"

namespace sluice::chat {

namespace {

constexpr size_t kLongestText = size_t{1} << 31;  // positions in a word are 32-bit numbers (bpe_merges.h)

// The flag, or its default; setting it needs the token that it adds.
bool resolve_flag(const char* key, std::optional<bool> flag, bool otherwise, const char* id_key,
                  std::optional<int32_t> id) {
  if (flag.value_or(false) && !id) {
    fail(ErrorKind::kFormat, "{}: true, but {} is missing; add the id or set the flag to false", key, id_key);
  }
  return flag.value_or(otherwise && id);
}

}  // namespace

Tokenizer::Tokenizer(VocabularyData data) {
  bool wants_bos = false;
  if (data.model == "gpt2") {
    const PreTokenizer pre_tokenizer(data.pre);
    wants_bos = pre_tokenizer.adds_bos_by_default();
    vocabulary_ = std::make_unique<const Vocabulary>(data);
    model_ = std::make_unique<const ByteLevelBpe>(*vocabulary_, data.merges, pre_tokenizer);
  } else if (data.model == "llama") {
    wants_bos = true;
    vocabulary_ = std::make_unique<const Vocabulary>(data);
    model_ = std::make_unique<const SentencePieceBpe>(*vocabulary_, data.scores, data.add_space_prefix.value_or(true));
  } else {
    fail(ErrorKind::kUnsupported,
         "tokenizer.ggml.model: \"{}\" is unknown (known: gpt2, llama); use a model with one of these tokenizers",
         data.model);
  }
  special_tokens_ = std::make_unique<const SpecialTokens>(*vocabulary_);
  add_bos_ =
      resolve_flag("tokenizer.ggml.add_bos_token", data.add_bos, wants_bos, "tokenizer.ggml.bos_token_id", bos());
  add_eos_ = resolve_flag("tokenizer.ggml.add_eos_token", data.add_eos, false, "tokenizer.ggml.eos_token_id", eos());
}

Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool parse_special) const {
  std::string repaired;
  if (!utf8::is_valid(text)) {
    repaired = utf8::sanitize(text);
    text = repaired;
  }
  if (text.size() >= kLongestText) {
    fail(ErrorKind::kLimit, "text of {} bytes: a text to encode must be shorter than {}; encode it in parts",
         text.size(), kLongestText);
  }
  std::vector<int32_t> ids;
  size_t done = 0;
  for (const SpecialTokens::Match& match : special_tokens_->find(text, parse_special)) {
    model_->encode(text.substr(done, match.begin - done), ids);
    ids.push_back(match.id);
    done = match.begin + match.length;
  }
  model_->encode(text.substr(done), ids);
  return ids;
}

std::string Tokenizer::piece(int32_t id) const {
  check_id(id);
  switch (vocabulary_->type(id)) {
    case TokenType::kUnused:
      return "";
    case TokenType::kControl:
    case TokenType::kUnknown:
    case TokenType::kUserDefined:
      return vocabulary_->text(id);
    case TokenType::kNormal:
    case TokenType::kByte:
      break;
  }
  return model_->bytes(id);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_control) const {
  std::string out;
  for (const int32_t id : ids) {
    check_id(id);
    if (!skip_control || !is_control(id)) out += piece(id);
  }
  if (model_->adds_space_prefix() && out.starts_with(' ')) out.erase(0, 1);
  return out;
}

const std::string& Tokenizer::text(int32_t id) const {
  check_id(id);
  return vocabulary_->text(id);
}

TokenType Tokenizer::type(int32_t id) const {
  check_id(id);
  return vocabulary_->type(id);
}

bool Tokenizer::is_control(int32_t id) const {
  if (!contains(id)) return false;
  const TokenType type = vocabulary_->type(id);
  return type == TokenType::kControl || type == TokenType::kUnknown;
}

bool Tokenizer::is_unused(int32_t id) const { return contains(id) && vocabulary_->type(id) == TokenType::kUnused; }

bool Tokenizer::is_end_of_generation(int32_t id) const {
  return std::binary_search(ends_of_generation().begin(), ends_of_generation().end(), id);
}

void Tokenizer::check_id(int32_t id) const {
  if (!contains(id)) fail(ErrorKind::kUsage, "token id {}: ids of this model go from 0 to {}", id, size() - 1);
}

}  // namespace sluice::chat
