// `sluice tokenize` and `sluice detokenize`: text to token ids and back.
#include <iostream>
#include <iterator>

#include "base/error.h"
#include "chat/detokenizer.h"
#include "chat/tokenizer.h"
#include "chat/vocabulary_metadata.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/jsonl.h"
#include "gguf/container.h"

namespace sluice::cli {
namespace {

chat::Tokenizer load_tokenizer(const ModelOptions& model) {
  gguf::OpenOptions options;
  options.overrides = model.overrides;
  const gguf::Container file = gguf::Container::open(model.path, options);
  return chat::Tokenizer(chat::read_vocabulary(file.metadata()));
}

struct TokenizeOptions {
  ModelOptions model;
  std::optional<std::string> text;
  bool parse_special = true, jsonl = false;

  void declare(OptionTable& table) {
    model.declare(table);
    table.group("Text");
    table.positional("TEXT", "the text; not given: standard input", &text);
    table.flag("--parse-special | --no-parse-special", "read the text of control tokens as those tokens",
               &parse_special);
    table.flag("--jsonl", "read lines {\"text\"} or {\"bytes_b64\"}, print lines {\"ids\"}", &jsonl);
  }
};

int tokenize(const TokenizeOptions& options) {
  const chat::Tokenizer tokenizer = load_tokenizer(options.model);
  if (options.jsonl) {
    for_each_json_line([&](const Json& in) -> Json {
      const std::string text = in.contains("bytes_b64") ? base64_decode(in["bytes_b64"].get<std::string>())
                                                        : in.at("text").get<std::string>();
      return {{"ids", tokenizer.encode(text, in.value("parse_special", options.parse_special))}};
    });
    return 0;
  }
  const std::string text = options.text ? *options.text : std::string(std::istreambuf_iterator<char>(std::cin), {});
  for (const int32_t id : tokenizer.encode(text, options.parse_special))
    fmt::print("{:6}  {}\n", id, gguf::printable(tokenizer.piece(id)));
  return 0;
}

struct DetokenizeOptions {
  ModelOptions model;
  std::vector<std::string> ids;
  bool jsonl = false;

  void declare(OptionTable& table) {
    model.declare(table);
    table.group("Ids");
    table.option("--ids", "IDS", "token ids, separated by commas", &ids);
    table.flag("--jsonl", "read lines {\"ids\"}, print lines {\"bytes_b64\", \"stream\", \"stream_end\"}", &jsonl);
  }
};

std::vector<int32_t> checked_ids(const chat::Tokenizer& tokenizer, const Json& list) {
  const auto ids = list.get<std::vector<int32_t>>();
  for (const int32_t id : ids)
    if (!tokenizer.contains(id))
      fail(ErrorKind::kUsage, "token {} is none of the vocabulary's 0..{}", id, tokenizer.size() - 1);
  return ids;
}

int detokenize(const DetokenizeOptions& options) {
  const chat::Tokenizer tokenizer = load_tokenizer(options.model);
  if (options.jsonl) {
    for_each_json_line([&](const Json& in) -> Json {
      const std::vector<int32_t> ids = checked_ids(tokenizer, in.at("ids"));
      chat::Detokenizer stream(tokenizer);
      Json pieces = Json::array();
      for (const int32_t id : ids) pieces.push_back(stream.push(id));
      return {{"bytes_b64", base64_encode(tokenizer.decode(ids, false))},
              {"stream", pieces},
              {"stream_end", stream.finish()}};
    });
    return 0;
  }
  std::string text;
  for (const std::string& list : options.ids) {
    Json parsed;
    try {
      parsed = parse_json("[" + list + "]");
    } catch (const Json::exception&) {
      fail(ErrorKind::kUsage, "--ids {}: write ids separated by commas, such as 1,2,3", list);
    }
    text += tokenizer.decode(checked_ids(tokenizer, parsed), false);
  }
  fmt::print("{}\n", text);
  return 0;
}

}  // namespace

Command tokenize_command() {
  return make_command<TokenizeOptions>(
      {.name = "tokenize",
       .summary = "turn text into token ids",
       .usage = {"-m MODEL [TEXT]", "-m MODEL --jsonl"},
       .examples = {{"sluice tokenize -m model.gguf 'Hello world'", "ids and pieces"}}},
      tokenize);
}

Command detokenize_command() {
  return make_command<DetokenizeOptions>(
      {.name = "detokenize",
       .summary = "turn token ids into text",
       .usage = {"-m MODEL --ids 1,2,3", "-m MODEL --jsonl"},
       .examples = {{"sluice detokenize -m model.gguf --ids 9707,1879", "the text of two tokens"}}},
      detokenize);
}

}  // namespace sluice::cli
