// Vocabularies made of arbitrary bytes: each is refused with an Error, or encodes any text so that decoding gives it
// back where the vocabulary allows, and the streaming detokenizer agrees with decoding.
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "chat/byte_alphabet.h"
#include "chat/detokenizer.h"
#include "chat/tokenizer.h"

namespace {

using namespace sluice::chat;

// Hands out the input piece by piece; past its end there are zeros.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}
  uint8_t byte() {
    const std::string one = take(1);
    return one.empty() ? uint8_t{0} : static_cast<uint8_t>(one[0]);
  }
  std::string take(size_t length) {
    const std::string out(rest_.substr(0, length));
    rest_.remove_prefix(out.size());
    return out;
  }
  std::string rest() { return take(rest_.size()); }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

constexpr std::string_view kPreTokenizers[] = {"qwen35", "qwen2", "llama-bpe", "smollm", "gpt-2", "default", "none"};

// "gpt2" with all bytes, "llama" with all byte tokens; what comes after is the input's.
VocabularyData base_vocabulary(Input& input) {
  VocabularyData data;
  const uint8_t kind = input.byte();
  data.model = kind % 2 ? "gpt2" : "llama";
  data.pre = kPreTokenizers[kind / 2 % std::size(kPreTokenizers)];
  data.add_space_prefix = kind >= 128;
  for (unsigned byte = 0; byte < 256; ++byte) {
    constexpr char kHex[] = "0123456789ABCDEF";
    data.tokens.push_back(kind % 2 ? to_byte_alphabet(std::string(1, static_cast<char>(byte)))
                                   : std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">");
    data.types.push_back(kind % 2 ? TokenType::kNormal : TokenType::kByte);
  }
  if (data.model == "llama") {  // without this token a space becomes the bytes of U+2581 and stays that
    data.tokens.push_back("\xE2\x96\x81");
    data.types.push_back(TokenType::kNormal);
  }
  return data;
}

VocabularyData make_vocabulary(Input& input) {
  VocabularyData data = base_vocabulary(input);
  const auto added = [&] { return data.tokens[input.byte() % data.tokens.size()]; };
  for (unsigned count = input.byte() % 24; count > 0 && !input.empty(); --count) {
    const uint8_t kind = input.byte();
    if (kind % 3 == 0) {  // the result of a merge of what is there
      const std::string left = added(), right = added();
      data.tokens.push_back(left + right);
      data.merges.push_back(left + " " + right);
      data.types.push_back(TokenType::kNormal);
    } else {
      data.tokens.push_back(input.take(kind / 3 % 8));
      data.types.push_back(static_cast<TokenType>(input.byte() % 8));
    }
  }
  if (input.byte() % 8 == 0) data.merges.push_back(input.take(5));
  if (input.byte() % 8 == 0) data.eos = input.byte();
  const uint8_t step = input.byte();  // scores in some order, a few of them equal
  for (size_t i = 0; i < data.tokens.size(); ++i) data.scores.push_back(static_cast<float>(i * step % 251));
  return data;
}

void require(bool condition) {
  if (!condition) std::abort();
}

std::string stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  Detokenizer detokenizer(tokenizer);
  std::string out;
  for (const int32_t id : ids) {
    const std::string text = detokenizer.push(id);
    require(sluice::utf8::is_valid(text));
    out += text;
  }
  return out + detokenizer.finish();
}

// SentencePiece can't tell U+2581 from a space.
bool has_space_mark(const std::string& text) { return text.find("\xE2\x96\x81") != std::string::npos; }

void check(const Tokenizer& tokenizer, bool sentence_piece, bool space_prefix, const std::string& bytes) {
  const std::string text = sluice::utf8::sanitize(bytes);
  for (const bool parse_special : {false, true}) {
    const std::vector<int32_t> ids = tokenizer.encode(bytes, parse_special);
    require(ids == tokenizer.encode(text, parse_special));
    bool special = false;
    for (const int32_t id : ids) {
      require(tokenizer.contains(id) && !tokenizer.is_unused(id));
      require(parse_special || !tokenizer.is_control(id));  // user text can't forge them
      special = special || tokenizer.is_control(id) || tokenizer.type(id) == TokenType::kUserDefined;
    }
    const std::string decoded = tokenizer.decode(ids, false);
    const bool exact = !sentence_piece || (!has_space_mark(text) && !(special && space_prefix));
    if (exact) require(decoded == text);
    std::string streamed = stream(tokenizer, ids);
    if (space_prefix && sentence_piece && streamed.starts_with(' ')) streamed.erase(0, 1);
    require(streamed == sluice::utf8::sanitize(tokenizer.decode(ids, true)));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  VocabularyData vocabulary = make_vocabulary(input);
  const bool sentence_piece = vocabulary.model == "llama", space_prefix = vocabulary.add_space_prefix.value_or(false);
  std::optional<Tokenizer> tokenizer;
  try {
    tokenizer.emplace(std::move(vocabulary));
  } catch (const sluice::Error&) {
    return 0;
  }
  check(*tokenizer, sentence_piece, space_prefix, input.rest());
  return 0;
}
