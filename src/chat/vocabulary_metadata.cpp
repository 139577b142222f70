#include "chat/vocabulary_metadata.h"

#include "base/error.h"

namespace sluice::chat {

namespace {

std::vector<TokenType> read_types(const gguf::Metadata& metadata) {
  constexpr const char* kKey = "tokenizer.ggml.token_type";
  std::vector<TokenType> types;
  const auto numbers = metadata.find<std::vector<int32_t>>(kKey).value_or(std::vector<int32_t>{});
  for (size_t id = 0; id < numbers.size(); ++id) {
    if (numbers[id] < 1 || numbers[id] > 6) {
      fail(ErrorKind::kFormat, "{}: {}[{}]: {} is not a token type (1 to 6); convert the file again", metadata.source(),
           kKey, id, numbers[id]);
    }
    types.push_back(static_cast<TokenType>(numbers[id]));
  }
  return types;
}

}  // namespace

VocabularyData read_vocabulary(const gguf::Metadata& metadata) {
  VocabularyData data;
  data.model = metadata.get<std::string>("tokenizer.ggml.model");
  if (data.model == "gpt2") data.pre = metadata.get<std::string>("tokenizer.ggml.pre");
  data.tokens = metadata.get_strings("tokenizer.ggml.tokens");
  data.types = read_types(metadata);
  data.scores = metadata.find<std::vector<float>>("tokenizer.ggml.scores").value_or(std::vector<float>{});
  if (const auto* merges = metadata.find_strings("tokenizer.ggml.merges")) data.merges = *merges;
  data.bos = metadata.find<uint32_t>("tokenizer.ggml.bos_token_id");
  data.eos = metadata.find<uint32_t>("tokenizer.ggml.eos_token_id");
  data.eot = metadata.find<uint32_t>("tokenizer.ggml.eot_token_id");
  data.padding = metadata.find<uint32_t>("tokenizer.ggml.padding_token_id");
  data.unknown = metadata.find<uint32_t>("tokenizer.ggml.unknown_token_id");
  data.add_bos = metadata.find<bool>("tokenizer.ggml.add_bos_token");
  data.add_eos = metadata.find<bool>("tokenizer.ggml.add_eos_token");
  data.add_space_prefix = metadata.find<bool>("tokenizer.ggml.add_space_prefix");
  return data;
}

}  // namespace sluice::chat
